// tier 1; numbers
// A witness from outside for what parity compares with plait alone: PyTorch has trained the same 20 steps
// (scripts/golden_witness.py) in fp64, in bf16 and in fp16 with a loss scale; plait trains them in these, with
// recomputation, and on dp 2 × tp 2 × pp 2.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "checkpoint/huggingface.h"
#include "checkpoint/safetensors.h"
#include "infer/model_source.h"
#include "runtime/session.h"
#include "setup/setup.h"
#include <math.h>
#include <string.h>

static const char *const cases[] = {"gpt2-tied", "llama-tied", "llama-untied"};
enum { CASES = 3, BATCH = 4, SEQ = 16, STEPS = 20 };
#define SUCCEED(call)                                                                                                  \
  do {                                                                                                                 \
    Error error = {0};                                                                                                 \
    if ((call) < 0) fail_msg("%s", error.message);                                                                     \
  } while (0)

// ---- runs ----------------------------------------------------------------------------------------------------------

typedef struct Run {
  const char *name, *keys;
  const Device *device;
  ModelSource source;
  Safetensors golden;
  Job *job;
  Session *session;
  int step;
  double loss[STEPS], norm[STEPS], scale[STEPS];
  int skipped[STEPS];
} Run;

static const void *find(const Run *run, const char *name) {
  const SafetensorsEntry *entry = safetensors_find(&run->golden, name);
  if (!entry) fail_msg("%s has no %s", run->name, name);
  return entry->data;
}

static double number(const Run *run, const char *name, int i) {
  double x;
  memcpy(&x, (const char *)find(run, name) + (size_t)i * sizeof x, sizeof x);
  return x;
}

static int32_t integer(const Run *run, const char *name, int i) {
  int32_t x;
  memcpy(&x, (const char *)find(run, name) + (size_t)i * sizeof x, sizeof x);
  return x;
}

static Job *compile(const Run *run) {
  static const char recipe_text[] =
      "model: {config: /config.json}\ndata: {train: /corpus, seq_len: 16}\n"
      "parallel: {zero: 0}\nbatch: {global: 4, micro: 1}\n"
      "optimizer: {name: adamw, lr: 3e-3, betas: [0.9, 0.95], epsilon: 1e-5, weight_decay: 0.1, clip: 1.0}\n"
      "run: {dir: /run, dump_gradients: /gradients}\n";
  char *keys = xstrdup(run->keys), *next = keys, *override[16];
  int count = 0;
  for (char *word; (word = strtok_r(next, " ", &next)) && count < 16;) override[count++] = word;
  Recipe recipe;
  RunPlan plan;
  JobOptions job_options = {.threads = 1, .seed = 1};
  Job *job;
  SUCCEED(recipe_parse(run->name, recipe_text, sizeof recipe_text - 1, "/", count, override, &recipe, &error));
  SUCCEED(resolve(&recipe, &run->source.config, &(RunSetting){.threads = 1}, &plan, &error));
  plan.options.device = run->device;
  SUCCEED(job_create(&run->source.config, &plan.options, &job_options, &job, &error));
  run_plan_free(&plan);
  recipe_free(&recipe);
  free(keys);
  return job;
}

static int load_weights(Rank *r, void *run, Error *error) {
  return model_source_load(&((Run *)run)->source, r->state, NULL, error);
}

// As the loader gives them: this rank's rows of the batch, microbatch by microbatch. And the learning rate.
static int run_step(Rank *r, void *context, Error *error) {
  static const struct { KnownInput known; const char *name;
  } read[] = {{INPUT_TOKENS, "tokens"},
              {INPUT_POSITIONS, "positions"},
              {INPUT_DOCUMENTS, "documents"},
              {INPUT_TARGETS, "targets"},
              {INPUT_STEP_TARGETS, "targets"}};
  enum { INPUTS = sizeof read / sizeof *read };
  const Run *run = context;
  size_t rows = BATCH / (size_t)r->data_ranks, bytes = rows * SEQ * sizeof(int32_t);
  size_t offset = ((size_t)run->step * (size_t)r->data_ranks + (size_t)r->data_rank) * bytes;
  double rate = 3e-3;
  StepInput of[INPUT_COUNT] = {[INPUT_LEARNING_RATE] = {&rate}};
  int32_t *data[INPUTS];
  for (int k = 0; k < INPUTS; k++) {
    data[k] = xcalloc(1, bytes);
    memcpy(data[k], (const char *)find(run, read[k].name) + offset, bytes);
    of[read[k].known] = (StepInput){
        data[k], read[k].known == INPUT_STEP_TARGETS ? 0 : (int64_t)bytes / job_train(r->job)->shares.microbatches, 0};
  }
  int code = executor_run(r->train, (uint64_t)run->step + 1, &(StepInputs){.of = of, .count = INPUT_COUNT}, 0, error);
  for (int k = 0; k < INPUTS; k++) free(data[k]);
  return code;
}

static void read_step(Run *run) {
  const State *s = session_rank(run->session, 0)->state;
  int i = run->step;
  run->loss[i] = state_scalar(s, KNOWN_LOSS);
  run->norm[i] = state_scalar(s, KNOWN_GRAD_NORM);
  run->skipped[i] = state_scalar(s, KNOWN_SKIP) != 0;
  run->scale[i] = state_has(s, KNOWN_LOSS_SCALE) ? state_scalar(s, KNOWN_LOSS_SCALE) : 1;
}

// Opens the case. The caller closes it.
static void open_run(Run *run, const char *name, const char *keys, const Device *device) {
  char *folder = xformat("%s/model/golden/%s", TESTS_FOLDER, name), *file = xformat("%s/witness.safetensors", folder);
  *run = (Run){.name = name, .keys = keys, .device = device};
  SUCCEED(model_source_open(&run->source, folder, &error));
  SUCCEED(safetensors_open(&run->golden, file, &error));
  run->job = compile(run);
  SUCCEED(session_open(&(SessionOptions){.ranks = run->job->options.parallel.mesh.ranks}, &run->session, &error));
  SUCCEED(session_load(run->session, run->job, &error));
  SUCCEED(session_run(run->session, load_weights, run, &error));
  free(folder);
  free(file);
}

static void train(Run *run, int to_step) {
  for (; run->step < to_step; run->step++) {
    SUCCEED(session_run(run->session, run_step, run, &error));
    read_step(run);
  }
}

static void close_run(Run *run) {
  session_close(run->session);
  job_destroy(run->job);
  safetensors_close(&run->golden);
  model_source_close(&run->source);
}

// ---- against fp64 --------------------------------------------------------------------------------------------------

static double relative(double a, double b) { return fabs(a - b) / fabs(b); }

// Each loss and norm of 20 steps, to `most`.
static void check(const char *name, const char *keys, double most) {
  Run run;
  open_run(&run, name, keys, device_cpu());
  train(&run, STEPS);
  double worst = 0;
  for (int i = 0; i < STEPS; i++) {
    double loss = relative(run.loss[i], number(&run, "loss64", i));
    double norm = relative(run.norm[i], number(&run, "grad_norm64", i));
    worst = loss <= worst ? worst : loss; // a NaN stays
    worst = norm <= worst ? worst : norm;
  }
  print_message("%s, %s: losses and norms within %.1e\n", name, keys, worst);
  if (!(worst <= most)) fail_msg("%s, %s: off by %.2g, more than %.2g", name, keys, worst, most);
  assert_true(run.loss[STEPS - 1] < run.loss[0]);
  close_run(&run);
}

// fp64 is PyTorch's to rounding. In fp32 some 16 values are rounded in series in each of two blocks, each a sum that is
// off by 2 units: 2 √32 = 11 units of 2⁻²⁴, and as much for the weights, which carry the rounding of all steps.
static void check_all(const char *keys) {
  char text[256];
  for (int i = 0; i < CASES; i++) {
    snprintf(text, sizeof text, "precision=fp64 %s", keys);
    check(cases[i], text, 1e-10);
    snprintf(text, sizeof text, "precision=fp32 %s", keys);
    check(cases[i], text, 22 * 0x1p-24);
  }
}

static void one_rank(void **state) { check_all("mesh.dp=1"); }

static void recomputation(void **state) {
  check_all("mesh.dp=1 parallel.recompute=full");
  check_all("mesh.dp=1 parallel.recompute=selective");
}

static void three_dimensions(void **state) {
  check_all("mesh.dp=2 mesh.tp=2 mesh.pp=2 parallel.pipeline=1f1b");
  check_all("mesh.dp=2 mesh.tp=2 mesh.pp=2 parallel.pipeline=gpipe parallel.zero=3 parallel.sequence=true "
            "parallel.recompute=full");
}

// ---- which values are narrow ---------------------------------------------------------------------------------------

// For huggingface_save: the gradients of the step, in place of the weights.
static int read_gradient(void *context, const char *name, const Box *part, float *out, Error *error) {
  const State *s = context;
  const Graph *g = s->program->graph;
  int id = graph_find_of(g, OF_DUMP, graph_find_variable(g, name));
  ShardBoxes b = state_boxes(s, id, -1);
  assert_true(shard_next(&b));
  assert_int_equal(box_elements(&b.box), box_elements(part));
  state_read(s, id, -1, &b.box, out);
  return PLAIT_OK;
}

static double distance(const SafetensorsEntry *a, const SafetensorsEntry *b) {
  double sum = 0;
  assert_true(a && b && a->bytes == b->bytes);
  for (int64_t i = 0; i < safetensors_elements(a); i++)
    sum += pow(dtype_load(a->data, DTYPE_F32, i) - dtype_load(b->data, DTYPE_F32, i), 2);
  return sqrt(sum);
}

// How near the first step's gradients are to those of PyTorch in bf16, over how far these are from fp64's: the worst of
// a few tensors. 0 where the same values are rounded, 1 where none is, √2 where the errors have nothing to do with each
// other.
static double nearness(const Run *run) {
  static const char exact[] = "gradient64.";
  char *folder = xformat("%s/plait-witness-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
  assert_non_null(mkdtemp(folder));
  HuggingfaceSave save = {.folder = folder, .dtype = DTYPE_F32, .read = read_gradient};
  save.context = session_rank(run->session, 0)->state;
  SUCCEED(huggingface_save(&save, &run->source.config, &error));
  Safetensors written;
  SUCCEED(safetensors_open_folder(&written, folder, &error));
  double worst = 0;
  for (int i = 0; i < run->golden.count; i++) {
    const SafetensorsEntry *wide = &run->golden.entries[i];
    if (strncmp(wide->name, exact, strlen(exact))) continue;
    const char *name = wide->name + strlen(exact);
    char *narrow = xformat("gradient_bf16.%s", name);
    const SafetensorsEntry *golden = safetensors_find(&run->golden, narrow);
    double share = distance(safetensors_find(&written, name), golden) / distance(wide, golden);
    print_message("%s, %s: %s is %.2g of the rounding from PyTorch's\n", run->name, run->keys, name, share);
    worst = fmax(worst, share);
    free(narrow);
  }
  safetensors_close(&written);
  SUCCEED(folder_remove(folder, &error));
  free(folder);
  return worst;
}

static double first_nearness(const char *name, const char *keys, const Device *device) {
  Run run;
  open_run(&run, name, keys, device);
  train(&run, 1);
  double near = nearness(&run);
  close_run(&run);
  return near;
}

// The reference kernels round what the rules of `precision: bf16` say and nothing else, and so does the golden run.
// What is left comes from values that lie between two numbers of bf16: summed in fp32, PyTorch's own run of these rules
// is up to 0.23 from itself. The fast kernels round inside as well (probabilities, gradients of logits), as PyTorch's
// own kernels do, which are in the file: half as much again is allowed.
static void roundings_of_bf16(void **state) {
  for (int i = 0; i < CASES; i++) {
    assert_true(first_nearness(cases[i], "precision=bf16", device_reference()) <= 0.25);
    assert_true(first_nearness(cases[i], "precision=fp32", device_reference()) > 0.9); // the measure can tell
    Run run;
    open_run(&run, cases[i], "precision=bf16", device_cpu());
    train(&run, 1);
    assert_true(nearness(&run) <= 1.5 * number(&run, "nearness_bf16", 3));
    close_run(&run);
  }
}

// ---- narrow precisions ---------------------------------------------------------------------------------------------

// Root mean square of the relative differences over the steps that were not skipped.
static double apart(const Run *run, const double *got, const char *key) {
  double sum = 0;
  int n = 0;
  for (int i = 0; i < STEPS; i++) {
    if (run->skipped[i]) continue;
    sum += pow(relative(got[i], number(run, key, i)), 2);
    n++;
  }
  return sqrt(sum / n);
}

// Losses and norms of 20 steps as near to PyTorch's as PyTorch's own runs of this precision are to each other, which
// sum in another order, in fp32 or fp64, on batches in another order, and for bf16 with PyTorch's own kernels: their
// largest distance is in the file. Half as much again is allowed, since the distance of two runs of 20 steps is itself
// a random number.
static void check_narrow(const Run *run, const char *precision) {
  char loss[32], norm[32], spread[32];
  snprintf(loss, sizeof loss, "loss_%s", precision);
  snprintf(norm, sizeof norm, "grad_norm_%s", precision);
  snprintf(spread, sizeof spread, "spread_%s", precision);
  double l = apart(run, run->loss, loss), most_l = 1.5 * number(run, spread, 0);
  double n = apart(run, run->norm, norm), most_n = 1.5 * number(run, spread, 1);
  print_message("%s, %s: losses %.1e apart (bound %.1e), norms %.1e (%.1e)\n", run->name, run->keys, l, most_l, n,
                most_n);
  if (!(l <= most_l && n <= most_n)) fail_msg("%s, %s: too far from PyTorch", run->name, run->keys);
}

static const char *const meshes[] = {"mesh.dp=1",
                                     "mesh.dp=2 mesh.tp=2 mesh.pp=2 parallel.pipeline=1f1b parallel.zero=1"};
enum { MESHES = 2 };

static void bf16(void **state) {
  char keys[256];
  for (int i = 0; i < CASES * MESHES; i++) {
    Run run;
    snprintf(keys, sizeof keys, "precision=bf16 %s", meshes[i % MESHES]);
    open_run(&run, cases[i / MESHES], keys, device_cpu());
    train(&run, STEPS);
    check_narrow(&run, "bf16");
    close_run(&run);
  }
}

// The same steps overflow and are skipped, and the scale takes the same course. (No step is near to the border: see the
// script.)
static void check_scale(const Run *run) {
  int skipped = 0;
  for (int i = 0; i < STEPS; i++) {
    int expected = integer(run, "skipped_fp16", i);
    double scale = number(run, "scale_fp16", i);
    if (run->skipped[i] != expected || run->scale[i] != scale)
      fail_msg("%s, %s, step %d: skipped %d, then scale %g; PyTorch: %d, %g", run->name, run->keys, i + 1,
               run->skipped[i], run->scale[i], expected, scale);
    skipped += expected;
  }
  assert_true(skipped >= 2 && skipped < STEPS / 2);
}

static void fp16(void **state) {
  static const char *const scales[CASES] = {"8388608", "2097152", "4194304"};
  char keys[256];
  for (int i = 0; i < CASES * MESHES; i++) {
    Run run;
    snprintf(keys, sizeof keys, "precision=fp16 loss_scale.initial=%s loss_scale.growth_interval=4 %s",
             scales[i / MESHES], meshes[i % MESHES]);
    open_run(&run, cases[i / MESHES], keys, device_cpu());
    train(&run, STEPS);
    check_scale(&run);
    check_narrow(&run, "fp16");
    close_run(&run);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_rank), cmocka_unit_test(recomputation),
                                     cmocka_unit_test(three_dimensions), cmocka_unit_test(roundings_of_bf16),
                                     cmocka_unit_test(bf16), cmocka_unit_test(fp16)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
