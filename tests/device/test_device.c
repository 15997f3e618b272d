// Devices: what a Program asks of their description, Programs of 1,000 ranks bound to one without memory, and what the
// far device promises its tests.
#include "device/device.h"
#include "runtime/bind.h"
#include "runtime/session.h"
#include "setup/setup.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka wants the four above first
#include <cmocka.h>

static Error error;
#define SUCCEED(call) \
  do { error = (Error){0}; if (call) fail_msg("%s", error.message); } while (0)

static const char model[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 4, \"n_embd\": 40, \"n_head\": 10, \"n_positions\": 6, \"n_inner\": 40, "
    "\"vocab_size\": 31,"
    " \"activation_function\": \"gelu_new\", \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0}";

// A job of a small GPT-2 with the given keys of a recipe, on a device (NULL: as the recipe says). Returns the status.
static int compile(const char *keys, const Device *device, Job **job) {
  char text[] = "{model: {config: /none}, data: {train: /none, seq_len: 6}, run: {dir: /none}}";
  char *key[16], *words = xstrdup(keys), *rest = words;
  int count = 0;
  while ((key[count] = strtok_r(rest, " ", &rest))) count++;
  Recipe recipe;
  ModelConfig config;
  RunPlan plan;
  SUCCEED(recipe_parse("test", text, strlen(text), "/", count, key, &recipe, &error));
  SUCCEED(model_config_parse(&config, model, strlen(model), "model", &error));
  SUCCEED(resolve(&recipe, &config, &(RunSetting){.threads = 1}, &plan, &error));
  if (device) plan.options.device = device;
  int code = job_create(&config, &plan.options,
                        &(JobOptions){.threads = 1, .seed = 1, .evaluate_samples = recipe.batch.global}, job, &error);
  run_plan_free(&plan);
  recipe_free(&recipe);
  model_config_free(&config);
  free(words);
  return code;
}

// ---- descriptions --------------------------------------------------------------------------------------------------

static int find_all_but_softmax_of_the_head(const Device *device, Op op, Dtype dtype, DeviceKernel *kernel) {
  return op == OP_LINEAR_CROSS_ENTROPY ? 0 : device_cpu()->find(device_cpu(), op, dtype, kernel);
}

static void an_op_without_a_kernel_is_refused_by_name(void **state) {
  Device lacks = *device_cpu();
  Job *job;
  lacks.name = "abacus";
  lacks.find = find_all_but_softmax_of_the_head;
  assert_int_equal(compile("batch.global=2 batch.micro=2", &lacks, &job), PLAIT_INFEASIBLE);
  assert_string_equal(error.message, "loss: the device abacus has no kernel for the op linear_cross_entropy in fp32");
  Device narrow = *device_cpu();
  narrow.dtypes = 1u << DTYPE_F32;
  assert_int_equal(compile("batch.global=2 batch.micro=2 precision=fp64", &narrow, &job), PLAIT_INFEASIBLE);
  assert_non_null(strstr(error.message, " in fp64"));
}

static int count_ops(const Job *job, Op op) {
  int n = 0;
  for (int i = 0; i < job_train(job)->graph->node.count; i++) n += job_train(job)->graph->node.data[i].op == op;
  return n;
}

// What a device does not fuse stays a node of its own.
static void only_what_a_device_fuses_is_fused(void **state) {
  Device plain = *device_cpu();
  Job *job;
  plain.fuses = 0;
  SUCCEED(compile("batch.global=4 batch.micro=2", NULL, &job));
  int biases = count_ops(job, OP_BIAS), sums = count_ops(job, OP_ACCUMULATE);
  job_destroy(job);
  SUCCEED(compile("batch.global=4 batch.micro=2", &plain, &job));
  assert_true(count_ops(job, OP_BIAS) > biases && count_ops(job, OP_ACCUMULATE) > sums);
  job_destroy(job);
}

// The CPU runs what it has no fast kernel for by the reference, and says so.
static void reference_kernels_are_named(void **state) {
  char text[2048];
  Job *job;
  SUCCEED(compile("batch.global=2 batch.micro=2", device_reference(), &job));
  graph_reference_ops(job_train(job)->graph, job->options.device, text, sizeof text);
  assert_non_null(strstr(text, "matmul in fp32"));
  job_destroy(job);
}

// A device that this build cannot run can be planned for.
static void what_has_no_implementation_can_be_planned(void **state) {
  Device elsewhere = *device_cpu();
  Job *job;
  State *memory;
  elsewhere.name = "elsewhere";
  elsewhere.implementation = NULL;
  SUCCEED(compile("batch.global=2 batch.micro=2", &elsewhere, &job));
  assert_true(rank_bound_bytes(job, 0) > 0);
  assert_int_equal(state_create(job_program(job, 0), &elsewhere, job->work_bytes[0], 0, &memory, &error),
                   PLAIT_INFEASIBLE);
  assert_non_null(strstr(error.message, "can plan for the device elsewhere, but not run it"));
  job_destroy(job);
}

// ---- the null device -----------------------------------------------------------------------------------------------

static void check_address(const Binding *b, int tensor) {
  const Program *p = b->program;
  const Tensor *t = graph_tensor(p->graph, tensor);
  for (int m = 0; m < p->schedule->microbatches; m++) {
    const char *at = binding_address(b, tensor, m, (Turn){0});
    if (p->place[tensor].area == AREA_INPUT) continue;
    assert_true(at >= b->state->in[0].memory &&
                at + tensor_local_elements(p->graph, t) * (int64_t)dtype_size(t->dtype) <=
                    b->state->in[0].memory + b->state->in[0].bytes);
    assert_int_equal((uintptr_t)at % (uintptr_t)p->device->space[0].alignment, 0);
  }
}

static int check_body(const Binding *b, const BoundBody *body) {
  for (int i = 0; i < body->count; i++) {
    const Bound *x = &body->bound[i];
    for (int k = 0; k < x->ninput; k++)
      if (x->tensor[k] >= 0) check_address(b, x->tensor[k]);
    for (int k = 0; k < x->node->noutput; k++) check_address(b, x->node->output[k]);
    assert_true(x->communicates ? x->pieces > 0 : x->call.queue == b->queue);
  }
  return body->count;
}

// Every rank of a mesh of 1,000: its State and its binding, with nothing in memory but the tables.
static void programs_of_1000_ranks(void **state) {
  Job *job;
  Device null = device_null(device_cpu());
  DeviceQueue *queue;
  int64_t instructions = 0;
  SUCCEED(compile("mesh.pp=4 mesh.dp=25 mesh.tp=10 parallel.zero=3 batch.micro=1 batch.global=50", NULL, &job));
  SUCCEED(device_queue_create(&null, NULL, &queue, &error));
  const Mesh *mesh = &job->options.parallel.mesh;
  assert_int_equal(mesh->ranks, 1000);
  for (int rank = 0; rank < mesh->ranks; rank++) {
    int c = mesh_pipeline_coordinate(mesh, rank);
    State *memory;
    Binding b;
    SUCCEED(state_create(job_program(job, c), &null, job->work_bytes[c], rank, &memory, &error));
    SUCCEED(binding_make(&b, job_train(job)->program[c], memory, queue, NULL, &error));
    instructions += check_body(&b, &b.begin) + check_body(&b, &b.end);
    for (int s = 0; s < job_train(job)->graph->stages; s++)
      for (int phase = 0; phase < PHASE_COUNT; phase++) instructions += check_body(&b, &b.micro[s][phase]);
    binding_free(&b);
    state_destroy(memory);
  }
  assert_true(instructions > 100000);
  device_queue_destroy(queue);
  job_destroy(job);
}

static int load(Rank *r, void *job, Error *e) { return rank_load(r, job, e); }

// What the plan counts is what binding takes.
static void plan_is_real(const Device *device, int mirrored) {
  Job *job;
  Session *session;
  SUCCEED(compile("mesh.pp=2 mesh.dp=2 parallel.zero=3 batch.micro=1 batch.global=4", device, &job));
  SUCCEED(session_open(&(SessionOptions){.ranks = 4}, &session, &error));
  SUCCEED(session_run(session, load, job, &error));
  for (int rank = 0; rank < 4; rank++) {
    const Rank *r = session_rank(session, rank);
    int64_t bytes = executor_host_bytes(r->train) + executor_host_bytes(rank_executor(r, &role_evaluate));
    int c = mesh_pipeline_coordinate(&job->options.parallel.mesh, rank);
    assert_int_equal(bytes, rank_bound_bytes(job, c));
    assert_int_equal(r->state->in[0].bytes, job_state_bytes(job, c));
    if (mirrored) assert_in_range(job_mirror_bytes(job, c), 1, r->state->in[0].bytes); // pages of collectives only
    else assert_int_equal(job_mirror_bytes(job, c), 0);
    assert_int_equal(!!r->state->mirror, mirrored);
  }
  session_close(session);
  job_destroy(job);
}

static void planned_binding_is_the_real_one(void **state) {
  plan_is_real(NULL, device_needs_mirror(device_cpu()));
}

static void mirrors_are_planned(void **state) {
  Device mirrored = device_in_mirror(device_cpu());
  Job *job;
  plan_is_real(&mirrored, 1);
  SUCCEED(compile("batch.micro=1 batch.global=4", &mirrored, &job));
  assert_int_equal(job_mirror_bytes(job, 0), 0); // one rank has nobody to talk to
  job_destroy(job);
}

// ---- the far device ------------------------------------------------------------------------------------------------

// The CPU with far memory, whatever PLAIT_SPACE says.
static const Device *far_cpu(void) {
  char *before = getenv("PLAIT_SPACE") ? xstrdup(getenv("PLAIT_SPACE")) : NULL;
  setenv("PLAIT_SPACE", "far", 1);
  const Device *device = device_cpu();
  if (before) setenv("PLAIT_SPACE", before, 1);
  else unsetenv("PLAIT_SPACE");
  free(before);
  return device;
}

// Whether the host may read an address: in a child, which dies where it may not. Sanitizers would report that.
static int can_read(const char *address) {
  int status;
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(SIGSEGV, SIG_DFL); // cmocka catches it
    _exit(*(volatile const char *)address == 42);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status);
}

static void far_memory_is_out_of_reach(void **state) {
  const Device *far = far_cpu();
  DeviceQueue *queue;
  char *address, in[6] = "hello", out[6] = "";
  SUCCEED(device_allocate(far, 0, far->space[0].page, &address, &error));
  SUCCEED(device_queue_create(far, NULL, &queue, &error));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const int watched = 1;
#else
  const int watched = 0;
#endif
  assert_true(watched || !can_read(address));
  assert_true(watched || can_read(in));
  device_copy(queue, DEVICE_FROM_HOST, 0, address + 7, in, 6);
  device_move(queue, 0, address + 100, 0, address + 7, 6);
  device_copy(queue, DEVICE_TO_HOST, 0, out, address + 100, 6);
  SUCCEED(device_drain(queue, &error));
  assert_string_equal(out, "hello");
  assert_string_equal((char *)device_host_pointer(far, address + 100), "hello");
  device_fill(queue, address, 'x', 6);
  device_copy(queue, DEVICE_TO_HOST, 0, out, address, 6);
  SUCCEED(device_drain(queue, &error));
  assert_memory_equal(out, "xxxxxx", 6);
  device_queue_destroy(queue);
  device_release(far, 0, address, far->space[0].page);
}

static void wait_and_store(const KernelCall *call) {
  usleep(20000);
  *(double *)call->output[0].data = *(const double *)call->input[0].data + *(const double *)call->attr;
}

// Kernels are enqueued with their operands and parameters as they are then, run in order, and not before what their
// queue follows.
static void far_queues_keep_their_order(void **state) {
  const Device *far = far_cpu();
  DeviceQueue *kernels, *copies;
  DeviceBound bound;
  char *address;
  double one = 1, ten = 10, start = 5, result = 0;
  SUCCEED(device_allocate(far, 0, far->space[0].page, &address, &error));
  SUCCEED(device_queue_create(far, NULL, &kernels, &error));
  SUCCEED(device_queue_create(far, NULL, &copies, &error));
  Operand input = {.data = address, .dtype = DTYPE_F64}, output = {.data = address + 64, .dtype = DTYPE_F64};
  KernelCall call = {.ninput = 1, .noutput = 1, .input = &input, .output = &output, .attr = &one, .queue = kernels};
  Arena arena = {0};
  DeviceBound bound_ten;
  KernelCall call_ten = call;
  call_ten.attr = &ten;
  SUCCEED(far->implementation->bind(far, &(DeviceKernel){.host = wait_and_store}, &call, &arena, &bound, &error));
  SUCCEED(
      far->implementation->bind(far, &(DeviceKernel){.host = wait_and_store}, &call_ten, &arena, &bound_ten, &error));
  device_copy(copies, DEVICE_FROM_HOST, 0, address, &start, sizeof start);
  device_follow(kernels, device_record(copies));
  device_run(kernels, &bound, &call); // 64: 5 + 1
  input.data = address + 64;
  output.data = address + 128;
  device_run(kernels, &bound_ten, &call_ten); // 128: 6 + 10
  input.data = output.data = NULL;
  DeviceEvent done = device_record(kernels);
  device_follow(copies, done);
  device_copy(copies, DEVICE_TO_HOST, 0, &result, address + 128, sizeof result);
  SUCCEED(device_drain(copies, &error));
  SUCCEED(device_wait(done, &error));
  assert_true(result == 16);
  device_queue_destroy(copies);
  device_queue_destroy(kernels);
  arena_free(&arena);
  device_release(far, 0, address, far->space[0].page);
}

// Element (i, k) of what a rank holds of a matrix, where the kernels find it: rows of `width` elements.
static float in_memory(const State *s, int v, int64_t width, int64_t i, int64_t k) {
  return (
      (const float *)device_host_pointer(s->device, state_address(s, s->program->variable_place[v])))[i * width + k];
}

// A part of a Variable, sharded and perhaps padded, lands where the kernels look for it, and nothing else changes.
static void check_parts(State *s, int v, const Box *held, int64_t width) {
  size_t n = (size_t)box_elements(held);
  float *all = xcalloc(n, sizeof *all), *part = xcalloc(n, sizeof *part);
  Box inner = {.rank = 2,
               .offset = {held->offset[0] + 1, held->offset[1] + 1},
               .local = {held->local[0] - 1, held->local[1] - 2}};
  for (size_t i = 0; i < n; i++) all[i] = (float)i + 1;
  state_write(s, v, -1, held, all);
  for (int64_t i = 0; i < held->local[0]; i++)
    for (int64_t k = 0; k < width; k++)
      assert_true(in_memory(s, v, width, i, k) == (k < held->local[1] ? all[i * held->local[1] + k] : 0));
  state_read(s, v, -1, &inner, part);
  for (int64_t i = 0; i < inner.local[0]; i++)
    for (int64_t k = 0; k < inner.local[1]; k++) {
      assert_true(part[i * inner.local[1] + k] == all[(i + 1) * held->local[1] + k + 1]);
      part[i * inner.local[1] + k] = -1;
    }
  state_write(s, v, -1, &inner, part);
  for (int64_t i = 0; i < held->local[0]; i++)
    for (int64_t k = 0; k < held->local[1]; k++) {
      int inside = i >= 1 && k >= 1 && k < held->local[1] - 1;
      assert_true(in_memory(s, v, width, i, k) == (inside ? -1 : all[i * held->local[1] + k]));
    }
  free(all);
  free(part);
}

static void parts_are_read_and_written(void **state) {
  const Device *far = far_cpu();
  Job *job;
  int padded = 0;
  SUCCEED(compile("mesh.tp=2 mesh.dp=3 parallel.zero=3 batch.micro=1 batch.global=3", far, &job));
  const Graph *g = job_train(job)->graph;
  for (int rank = 0; rank < 6; rank++) {
    State *s;
    SUCCEED(state_create(job_program(job, 0), far, job->work_bytes[0], rank, &s, &error));
    for (int v = 0; v < g->variable.count; v++) {
      const Variable *x = &g->variable.data[v];
      ShardBoxes b = state_boxes(s, v, -1);
      if (!shard_next(&b) || x->dtype != DTYPE_F32 || b.box.rank != 2 || b.box.local[0] < 2 || b.box.local[1] < 4)
        continue;
      check_parts(s, v, &b.box, x->local_[1]);
      padded += b.box.local[0] < x->local_[0] || b.box.local[1] < x->local_[1];
    }
    state_destroy(s);
  }
  assert_true(padded > 0);
  job_destroy(job);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_op_without_a_kernel_is_refused_by_name),
                                     cmocka_unit_test(only_what_a_device_fuses_is_fused),
                                     cmocka_unit_test(reference_kernels_are_named),
                                     cmocka_unit_test(what_has_no_implementation_can_be_planned),
                                     cmocka_unit_test(programs_of_1000_ranks),
                                     cmocka_unit_test(planned_binding_is_the_real_one),
      cmocka_unit_test(mirrors_are_planned),
                                     cmocka_unit_test(far_memory_is_out_of_reach),
                                     cmocka_unit_test(far_queues_keep_their_order),
                                     cmocka_unit_test(parts_are_read_and_written)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
