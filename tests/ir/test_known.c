// The handles of ir/known.def: every pass keeps them, an input that nothing gives is an error, and a scalar that a
// Program lacks is never 0.
#include "job_of_text.h"
#include "runtime/bind.h"
#include "runtime/session.h"
#include "runtime/state_tensors.h"
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
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

enum { SEQ = 6, VOCAB = 31 };

static const char model[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 8, \"n_head\": 2, \"n_positions\": 6, \"n_inner\": 12, "
    "\"vocab_size\": 31,"
    " \"activation_function\": \"gelu_new\", \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0}";

// A job of a tiny GPT-2, with the given keys of a recipe.
static Job *job_of(ModelMode mode, const char *keys) {
  Job *job;
  SUCCEED(job_of_text("{model: {config: /none}, data: {train: /none, seq_len: 6}, run: {dir: /none}}", model, keys,
                      mode, &job, &error));
  return job;
}

// ---- graphs --------------------------------------------------------------------------------------------------------

// Every handle leads to the Variable of its name, and no Variable of such a name is without one.
static void check_handles(const Graph *g) {
  static const char *const prefix[] = {
#define KNOWN_OF(id, prefix, kind, shape, what) [OF_##id] = prefix,
#include "ir/known.def"
  };
  assert_int_equal(g->known[KNOWN_NONE], -1);
  for (int k = KNOWN_NONE + 1; k < KNOWN_COUNT; k++) {
    assert_int_equal(g->known[k], graph_find_variable(g, known_name((KnownVariable)k)));
    if (g->known[k] >= 0) assert_int_equal(g->variable.data[g->known[k]].known, k);
  }
  for (int v = 0; v < g->variable.count; v++)
    for (int of = OF_NONE + 1; of < OF_COUNT; of++) {
      char *name = xformat("%s.%s", prefix[of], g->variable.data[v].name);
      int found = graph_find_of(g, (KnownOf)of, v);
      assert_int_equal(found, graph_find_variable(g, name));
      if (found >= 0) assert_int_equal(g->variable.data[found].of, of);
      free(name);
    }
  for (int i = 0; i < g->input.count; i++) {
    assert_true(g->input.data[i].id < INPUT_COUNT && input_own(&g->input.data[i]) == -1);
    assert_int_equal(graph_tensor(g, g->input.data[i].tensor)->input, i);
    for (int k = 0; k < i; k++) assert_int_not_equal(g->input.data[k].id, g->input.data[i].id);
  }
}

// And a copy of the graph has the same ones.
static void check_graph(const Graph *g) {
  Graph *copy = graph_copy(g);
  check_handles(g);
  check_handles(copy);
  assert_memory_equal(copy->known, g->known, sizeof g->known);
  assert_int_equal(copy->input.count, g->input.count);
  for (int i = 0; i < g->input.count; i++) assert_int_equal(copy->input.data[i].id, g->input.data[i].id);
  graph_destroy(copy);
}

static int count_of(const Graph *g, KnownOf of) {
  int n = 0;
  for (int v = 0; v < g->variable.count; v++) n += graph_find_of(g, of, v) >= 0;
  return n;
}

static void passes_keep_handles(void **state) {
  static const struct { const char *keys; int scaled, in_backward;
  } table[] = {
      {"batch.global=8 batch.micro=1 mesh.pp=2 mesh.dp=2 mesh.tp=2 parallel.zero=3 precision=bf16 data.valid=/none", 0,
       0},
      {"batch.global=8 batch.micro=1 mesh.dp=2 precision=fp16 loss_scale.initial=1024", 1, 0},
      {"batch.global=8 batch.micro=4 mesh.dp=2 parallel.update=in_backward optimizer.clip=0 run.non_finite=stop", 0,
       1}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    Job *job = job_of(MODEL_TRAIN, table[i].keys);
    const Graph *g = job_train(job)->graph;
    check_graph(g);
    static const KnownVariable always[] = {KNOWN_LOSS,      KNOWN_TARGET_COUNT, KNOWN_GRADIENT_SEED,
                                           KNOWN_GRAD_NORM, KNOWN_SKIP,         KNOWN_OPTIMIZER_STEP};
    for (size_t k = 0; k < sizeof always / sizeof *always; k++) assert_true(g->known[always[k]] >= 0);
    assert_int_equal(g->known[KNOWN_LOSS_SCALE] >= 0, table[i].scaled);
    assert_int_equal(g->known[KNOWN_UPDATE_RATE] >= 0, table[i].in_backward);
    assert_int_equal(g->known[KNOWN_LOGITS], -1);
    assert_int_equal(count_of(g, OF_SQUARE) > 0, table[i].in_backward);
    assert_true(count_of(g, OF_GRADIENT) > 0 && count_of(g, OF_DUMP) == 0);
    if (i == 0) check_graph(job_find(job, &role_evaluate)->graph);
    job_destroy(job);
  }
  Job *job = job_of(MODEL_GENERATE, "batch.global=1 batch.micro=1");
  check_graph(job_find(job, &role_generate)->graph);
  assert_true(job_find(job, &role_generate)->graph->known[KNOWN_LOGITS] >= 0 &&
              job_find(job, &role_generate)->graph->known[KNOWN_LOSS] == -1);
  job_destroy(job);
}

// What a checkpoint calls them: old checkpoints must load.
static void names_of_counters(void **state) {
  assert_string_equal(known_name(KNOWN_OPTIMIZER_STEP), "optimizer_step");
  assert_string_equal(known_name(KNOWN_LOSS_SCALE), "loss_scale");
  assert_string_equal(known_name(KNOWN_LOSS_SCALE_GOOD_STEPS), "loss_scale_good_steps");
}

// ---- inputs --------------------------------------------------------------------------------------------------------

// A graph with inputs of the user's own and one of the table; each is found by what it is, and missed when it is not
// given.
static void inputs_are_found_by_kind(void **state) {
  Graph *g = graph_create();
  Shape s = shape_of(1, (int64_t[]){2}, (DimName[]){DIM_BATCH});
  graph_input(g, "x", DTYPE_F32, s);
  graph_known_input(g, INPUT_LEARNING_RATE, &(InputSizes){0});
  graph_input(g, "targets", DTYPE_F32, s); // the user's word, not the table's
  float x = 1, y = 2;
  double rate = 3;
  StepInput bound[3], of[INPUT_COUNT + 2] = {[INPUT_LEARNING_RATE] = {&rate},
                                             [INPUT_TARGETS] = {&rate},
                                             [INPUT_COUNT] = {&x, 4, 0},
                                             [INPUT_COUNT + 1] = {&y, 8, 0}};
  BoundInputs sets[] = {{.of = bound}};
  Schedule schedule = {.steps = 1};
  Program program = {.graph = g, .device = device_cpu(), .schedule = &schedule};
  Binding b = {.program = &program, .input = sets};
  StepInputs given = {.of = of, .count = INPUT_COUNT + 2};
  SUCCEED(binding_inputs(&b, &given, 0, &error));
  assert_true(bound[0].base == &x && bound[0].stride == 4 && bound[1].base == &rate && bound[2].base == &y &&
              bound[2].stride == 8);

  given.count--;
  assert_int_equal(binding_inputs(&b, &given, 0, &error), PLAIT_FAILED);
  assert_string_equal(error.message,
                      "the graph reads the input targets (an input of the graph's own), and the step does not give it");
  error = (Error){0};
  given.count++;
  of[INPUT_LEARNING_RATE].base = NULL;
  assert_int_equal(binding_inputs(&b, &given, 0, &error), PLAIT_FAILED);
  assert_string_equal(
      error.message,
      "the graph reads the input learning_rate (the learning rate of the step ()), and the step does not give it");
  graph_destroy(g);
}

static int load(Rank *r, void *job, Error *e) {
  int code = rank_load(r, job, e);
  if (!code) rank_initialise(r);
  return code;
}

// On a rank: whichever input of generation is missing, the run ends with its name; then all are there, and logits come
// out.
static void generation_misses_no_input(void **state) {
  Job *job = job_of(MODEL_GENERATE, "batch.global=1 batch.micro=1");
  Session *session;
  SUCCEED(session_open(&(SessionOptions){.ranks = 1}, &session, &error));
  SUCCEED(session_run(session, load, job, &error));
  Rank *r = session_rank(session, 0);
  int32_t zeroes[SEQ] = {0};
  StepInput of[INPUT_COUNT] = {
      [INPUT_TOKENS] = {zeroes},   [INPUT_POSITIONS] = {zeroes}, [INPUT_CACHE_ROWS] = {zeroes},
      [INPUT_REQUESTS] = {zeroes}, [INPUT_PAGES] = {zeroes},     [INPUT_INDEX] = {zeroes}};
  const StepInputs all = {.of = of, .count = INPUT_COUNT};
  static const struct { KnownInput known; const char *name;
  } table[] = {{INPUT_TOKENS, "input tokens ("},
               {INPUT_POSITIONS, "input positions ("},
               {INPUT_CACHE_ROWS, "input cache_rows ("},
               {INPUT_REQUESTS, "input requests ("},
               {INPUT_PAGES, "input pages ("},
               {INPUT_INDEX, "input index ("}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    of[table[i].known].base = NULL;
    Error e = {0};
    assert_int_equal(rank_run(r, &role_generate, &all, &e), PLAIT_FAILED);
    of[table[i].known].base = zeroes;
    assert_non_null(strstr(e.message, table[i].name));
  }
  CheckpointTensor *logits;
  assert_int_equal(state_tensor(r->state, job_find(job, &role_generate)->graph->known[KNOWN_LOGITS], &logits), 1);
  float values[VOCAB];
  assert_int_equal(logits->global[0] * logits->global[1] * logits->global[2], VOCAB);
  checkpoint_tensor_to_whole(logits, values, DTYPE_F32);
  assert_true(values[0] == 0);
  SUCCEED(rank_run(r, &role_generate, &all, &error));
  checkpoint_tensor_to_whole(logits, values, DTYPE_F32);
  assert_true(isfinite(values[0]) && values[0] != 0);
  free(logits);
  session_close(session);
  job_destroy(job);
}

// ---- bugs of plait -------------------------------------------------------------------------------------------------

typedef struct Bug { const State *state; Graph *graph; } Bug;

static void read_missing_scalar(Bug *b) { state_scalar(b->state, KNOWN_LOSS_SCALE); }
static void read_missing_variable(Bug *b) {
  state_boxes(b->state, graph_find_variable(b->state->program->graph, "grad_nrom"), -1);
}
static void make_without_handle(Bug *b) {
  graph_variable(b->graph, "skip", VARIABLE_METRIC, DTYPE_F64, (Shape){0}, (Init){0});
}
static void make_output_as_scalar(Bug *b) { graph_known(b->graph, KNOWN_LOGITS); }
// Fields of another form of the graph: of one that is local, and of one that is not yet.
static void ask_want_too_late(Bug *b) { node_want(b->state->program->graph->node.data, 0); }
static void ask_give_too_late(Bug *b) { node_give(b->state->program->graph->node.data, 0); }
static void ask_tensor_too_early(Bug *b) { tensor_allocated(b->graph, graph_tensor(b->graph, 0)); }
static void ask_variable_too_early(Bug *b) { variable_allocated(b->graph, b->graph->variable.data, -1); }
static void ask_tensor(Bug *b) {
  const Graph *g = b->state->program->graph;
  tensor_allocated(g, graph_tensor(g, 0));
  variable_allocated(g, g->variable.data, -1);
}

static int aborts(void (*bug)(Bug *), Bug *b) {
  int status;
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (!freopen("/dev/null", "w", stderr)) _exit(1);
    signal(SIGABRT, SIG_DFL); // cmocka catches it
    bug(b);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void read_loss(Bug *b) { state_scalar(b->state, KNOWN_LOSS); }

// Before, a scalar that does not exist was 0, and a step with a misspelt "skip" was never skipped.
static void what_does_not_exist_is_not_0(void **state) {
  Job *job = job_of(MODEL_TRAIN, "batch.global=4 batch.micro=2 mesh.dp=1");
  Session *session;
  SUCCEED(session_open(&(SessionOptions){.ranks = 1}, &session, &error));
  SUCCEED(session_run(session, load, job, &error));
  Bug b = {session_rank(session, 0)->state, graph_create()};
  assert_true(state_has(b.state, KNOWN_LOSS) && !state_has(b.state, KNOWN_LOSS_SCALE));
  assert_false(aborts(read_loss, &b));
  assert_true(aborts(read_missing_scalar, &b));
  assert_true(aborts(read_missing_variable, &b));
  assert_true(aborts(make_without_handle, &b));
  assert_true(aborts(make_output_as_scalar, &b));
  graph_read(b.graph, graph_known(b.graph, KNOWN_LOSS));
  assert_false(aborts(ask_tensor, &b));
  assert_true(aborts(ask_want_too_late, &b) && aborts(ask_give_too_late, &b));
  assert_true(aborts(ask_tensor_too_early, &b) && aborts(ask_variable_too_early, &b));
  graph_destroy(b.graph);
  session_close(session);
  job_destroy(job);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(passes_keep_handles), cmocka_unit_test(names_of_counters),
                                     cmocka_unit_test(inputs_are_found_by_kind),
                                     cmocka_unit_test(generation_misses_no_input),
                                     cmocka_unit_test(what_does_not_exist_is_not_0)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
