// tier 1; rooms checkpoint; numbers
// Half by hand: checkpoints and files of parameters. A training that was saved on one mesh continues on another as if
// it had never stopped; what cannot be loaded says why and changes nothing; and all of it where every rank is the
// caller's own.
#include "base/error.h"
#include "base/file.h"
#include "plait/graph.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

enum { SAMPLES = 8, IN = 6, HIDDEN = 8, CLASSES = 4, STEPS = 4 };
static char folder[] = "/tmp/plait-by-hand-XXXXXX";

static char *inside(const char *name) { return xformat("%s/%s", folder, name); }

static PlaitGraph *build(int hidden, double dropout) {
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "x", 1, (int64_t[]){IN}), y = plait_graph_integers(g, "y", 0, NULL);
  PlaitTensor w1 = plait_graph_parameter(g, "w1", 2, (int64_t[]){hidden, IN}, 0.5),
              b1 = plait_graph_parameter(g, "b1", 1, (int64_t[]){hidden}, 0.1);
  PlaitTensor h = plait_graph_activation(g, "silu", plait_graph_linear(g, "up", x, w1, b1), PLAIT_SILU);
  h = plait_graph_dropout(g, "drop", h, dropout);
  plait_graph_layer(g, 1);
  PlaitTensor w2 = plait_graph_parameter(g, "w2", 2, (int64_t[]){CLASSES, hidden}, 0.5);
  PlaitTensor logits = plait_graph_linear(g, "down", h, w2, -1);
  plait_graph_cross_entropy(g, logits, y);
  plait_graph_output(g, "logits", logits);
  plait_graph_shard(g, w1, 0, "tp");
  return g;
}

static PlaitTraining *create_of(PlaitGraph *g, const PlaitTrainingOptions *o) {
  PlaitTraining *t;
  PlaitError error = {0};
  if (plait_training_create(g, o, &t, &error)) fail_msg("%s", error.message);
  plait_graph_destroy(g);
  return t;
}

static PlaitTraining *create(const char *mesh, int zero) {
  return create_of(build(HIDDEN, 0.3),
                   &(PlaitTrainingOptions){.mesh = mesh, .zero = zero, .seed = 3, .optimizer = "adamw"});
}

typedef struct Data { double x[SAMPLES * IN]; int32_t y[SAMPLES]; } Data;

static Data data_of(int step) {
  Data d;
  for (int i = 0; i < SAMPLES * IN; i++) d.x[i] = sin(1.3 * i + step);
  for (int i = 0; i < SAMPLES; i++) d.y[i] = (i + step) % CLASSES;
  return d;
}

// Steps [from, to) and their losses; then forward.
static int steps(PlaitTraining *t, int from, int to, double *loss, double *logits) {
  int code = PLAIT_OK;
  for (int s = from; s < to && !code; s++) {
    Data d = data_of(s);
    PlaitStepResult result = {0};
    code = plait_training_step(t, (const void *[]){d.x, d.y}, 0.01, &result, NULL);
    loss[s] = result.loss;
  }
  Data d = data_of(9);
  return code ? code : plait_training_forward(t, (const void *[]){d.x, d.y}, (void *[]){logits}, NULL, NULL);
}

typedef struct Run { double loss[STEPS], logits[SAMPLES * CLASSES]; } Run;

static void compare(const Run *a, const Run *b, double tolerance, const char *what) {
  for (size_t i = 0; i < sizeof *a / sizeof(double); i++)
    if (!(fabs(((const double *)a)[i] - ((const double *)b)[i]) <= tolerance))
      fail_msg("%s: number %zu differs", what, i);
}

static void must(int code, const PlaitError *error) {
  if (code) fail_msg("%s", error->message);
}

static void a_run_goes_on(void **state) {
  static const char *const meshes[] = {"dp=2 tp=2", "dp=1", "pp=2 dp=2", "dp=4", "tp=4", "dp=3"};
  Run whole = {{0}, {0}}, first = whole;
  PlaitError error = {0};
  PlaitTraining *t = create("dp=2 tp=2", 3);
  char *path = inside("run"), *third = inside("run/step-3");
  must(steps(t, 0, 2, whole.loss, whole.logits), &error);
  must(plait_training_save(t, path, &error), &error);
  must(steps(t, 2, 3, whole.loss, whole.logits), &error);
  must(plait_training_save(t, path, &error), &error);
  must(steps(t, 3, STEPS, whole.loss, whole.logits), &error);
  assert_int_equal(plait_training_steps(t), STEPS);
  plait_training_destroy(t);
  for (int i = 0; i < 6; i++) {
    Run r = first;
    t = create(meshes[i], i == 0 || i == 3 ? 3 : 0);
    must(plait_training_load(t, i % 2 ? path : third, &error), &error); // the newest, or by name
    assert_int_equal(plait_training_steps(t), 3);
    memcpy(r.loss, whole.loss, 3 * sizeof(double));
    must(steps(t, 3, STEPS, r.loss, r.logits), &error);
    compare(&r, &whole, i == 0 ? 0 : 1e-12, meshes[i]);
    plait_training_destroy(t);
  }
  t = create("tp=2", 0);
  char *second = inside("run/step-2");
  must(plait_training_load(t, second, &error), &error);
  Run r = whole;
  memset(r.loss + 2, 0, 2 * sizeof(double));
  must(steps(t, 2, STEPS, r.loss, r.logits), &error);
  compare(&r, &whole, 1e-12, "from the second step");
  plait_training_destroy(t);
  free(second);
  free(third);
  free(path);
}

// A load that must fail, and leave the training as it was.
static void refuse(PlaitTraining *t, const char *path, int parameters, const char *words) {
  PlaitError error = {0};
  double before[CLASSES * HIDDEN], after[CLASSES * HIDDEN], loss[1], logits[SAMPLES * CLASSES];
  int wide = plait_training_read(t, "w2", before, sizeof before, NULL) == PLAIT_OK;
  int code = parameters ? plait_training_load_parameters(t, path, &error) : plait_training_load(t, path, &error);
  if (code != PLAIT_BAD_INPUT || !strstr(error.message, words))
    fail_msg("%d, \"%s\" does not say \"%s\"", code, error.message, words);
  code = parameters ? plait_training_load_parameters(t, path, NULL) : plait_training_load(t, path, NULL);
  assert_int_equal(code, PLAIT_BAD_INPUT);
  if (wide) {
    assert_int_equal(plait_training_read(t, "w2", after, sizeof after, NULL), PLAIT_OK);
    assert_memory_equal(before, after, sizeof before);
  }
  assert_int_equal(steps(t, 0, 1, loss, logits), PLAIT_OK);
}

static void damage(const char *path) {
  FILE *f = fopen(path, "r+b");
  assert_non_null(f);
  fseek(f, -3, SEEK_END);
  int c = fgetc(f);
  fseek(f, -3, SEEK_END);
  fputc(c ^ 1, f);
  fclose(f);
}

static void what_does_not_fit_says_why(void **state) {
  PlaitError error = {0};
  char *path = inside("other"), *step = inside("other/step-1");
  PlaitTraining *t = create("dp=2", 0);
  refuse(t, path, 0, "there is no checkpoint in ");
  must(plait_training_save(t, path, &error), &error); // step 1: refuse has made one
  plait_training_destroy(t);
  t = create_of(build(HIDDEN + 8, 0.3), &(PlaitTrainingOptions){.mesh = "dp=2", .seed = 3, .optimizer = "adamw"});
  refuse(t, step, 0, "w1");
  plait_training_destroy(t);
  t = create_of(build(HIDDEN, 0.3), &(PlaitTrainingOptions){.mesh = "dp=2", .seed = 3});
  refuse(t, step, 0, "parameter.");
  plait_training_destroy(t);
  t = create_of(build(HIDDEN, 0.3), &(PlaitTrainingOptions){.mesh = "dp=2", .seed = 4, .optimizer = "adamw"});
  refuse(t, step, 0, "was made with the seed 3, on which its dropout depends, and not 4");
  plait_training_destroy(t);
  t = create_of(build(HIDDEN, 0), &(PlaitTrainingOptions){.mesh = "dp=2", .seed = 4, .optimizer = "adamw"});
  must(plait_training_load(t, step, &error), &error); // without dropout the seed has done its work
  char *found = xformat("ls %s/*.safetensors | head -1", step), name[256] = "";
  FILE *list = popen(found, "r");
  assert_non_null(fgets(name, sizeof name, list));
  pclose(list);
  name[strcspn(name, "\n")] = 0;
  damage(name);
  refuse(t, step, 0, name);
  refuse(t, path, 0, "there is no checkpoint in ");
  plait_training_destroy(t);
  free(found), free(path), free(step);
}

// Saving to a path that cannot be ends with that code, and neither leaves anything there nor ends the training.
static void refuse_to_save(PlaitTraining *t, const char *path, int code, const char *words) {
  PlaitError error = {0};
  double loss[STEPS], logits[SAMPLES * CLASSES];
  char *file = xformat("%s.safetensors", path),
       *left = xformat("find %s %s ! -type d 2>/dev/null | grep .", path, file);
  assert_int_equal(plait_training_save(t, path, &error), code);
  if (!strstr(error.message, words)) fail_msg("\"%s\" does not say \"%s\"", error.message, words);
  assert_int_equal(plait_training_save(t, path, NULL), code);
  error = (PlaitError){0};
  assert_int_equal(plait_training_save_parameters(t, file, &error), code);
  if (!strstr(error.message, words)) fail_msg("\"%s\" does not say \"%s\"", error.message, words);
  assert_int_not_equal(system(left), 0);
  assert_int_equal(steps(t, 0, 1, loss, logits), PLAIT_OK);
  free(file), free(left);
}

// A path below a file; and a disk that takes no more, as a limit on the size of files.
static void a_failing_disk_is_survived(void **state) {
  PlaitTraining *t = create("dp=2 tp=2", 2);
  char *file = inside("a-file"), *below = inside("a-file/run"), *full = inside("full");
  fclose(fopen(file, "w"));
  refuse_to_save(t, below, PLAIT_FAILED, "a-file");
  struct rlimit before, few;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  few = (struct rlimit){100, before.rlim_max};
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
  refuse_to_save(t, full, PLAIT_UNWRITABLE, "File too large");
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  PlaitError error = {0};
  assert_int_equal(plait_training_save(t, below, &error), PLAIT_FAILED);
  assert_int_equal(plait_training_read(t, "none", NULL, 0, &error), PLAIT_BAD_INPUT); // its own code, but
  assert_non_null(strstr(error.message, "a-file"));                                  // the first sentence
  must(plait_training_save(t, full, &error), &error); // there is room again
  must(plait_training_load(t, full, &error), &error);
  plait_training_destroy(t);
  free(file), free(below), free(full);
}

static void parameters_are_a_plain_file(void **state) {
  PlaitError error = {0};
  char *path = inside("weights.safetensors"), *none = inside("none.safetensors");
  Run a = {{0}, {0}}, b = a;
  PlaitTraining *t = create("dp=2 tp=2", 3);
  must(steps(t, 0, 3, a.loss, a.logits), &error);
  must(plait_training_save_parameters(t, path, &error), &error);
  plait_training_destroy(t);
  t = create("pp=2", 0);
  must(plait_training_load_parameters(t, path, &error), &error);
  assert_int_equal(plait_training_steps(t), 0);
  must(steps(t, 0, 0, b.loss, b.logits), &error);
  memcpy(b.loss, a.loss, sizeof a.loss);
  compare(&a, &b, 1e-12, "parameters");
  refuse(t, none, 1, "none.safetensors");
  plait_training_destroy(t);
  t = create_of(build(HIDDEN + 8, 0), NULL);
  refuse(t, path, 1, "the shape of w1 is not that of the parameter");
  plait_training_destroy(t);
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP32);
  PlaitTensor x = plait_graph_input(g, "x", 1, (int64_t[]){IN});
  plait_graph_squared_error(
      g, plait_graph_multiply(g, "m", x, plait_graph_parameter(g, "other", 1, (int64_t[]){IN}, 1)), x);
  t = create_of(g, NULL);
  assert_int_equal(plait_training_load_parameters(t, path, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "has no tensor other"));
  plait_training_destroy(t);
  free(path), free(none);
}

// ---- parameters in any floating-point type

enum { VALUES = 6 };
// Numbers that every type has, the least of fp16 among them.
static const double value[VALUES] = {0.5, -1, 1.5, -0.25, 6, 0x1p-24};
static const uint16_t fp16[VALUES] = {0x3800, 0xbc00, 0x3e00, 0xb400, 0x4600, 0x0001},
                      bf16[VALUES] = {0x3f00, 0xbf80, 0x3fc0, 0xbe80, 0x40c0, 0x3380};

// A file with one tensor w (2, 3).
static void write_file(const char *path, const char *dtype, const void *data, size_t bytes) {
  char *header = xformat("{\"w\":{\"dtype\":\"%s\",\"shape\":[2,3],\"data_offsets\":[0,%zu]}}", dtype, bytes);
  unsigned char length[8] = {(unsigned char)strlen(header)};
  FILE *f = fopen(path, "wb");
  assert_int_equal(fwrite(length, 8, 1, f) + fwrite(header, strlen(header), 1, f) + fwrite(data, bytes, 1, f), 3);
  fclose(f);
  free(header);
}

static PlaitTraining *create_plain(PlaitDtype dtype) {
  PlaitGraph *g = plait_graph_create(4, dtype);
  PlaitTensor x = plait_graph_input(g, "x", 1, (int64_t[]){3}), y = plait_graph_input(g, "y", 1, (int64_t[]){2});
  PlaitTensor w = plait_graph_parameter(g, "w", 2, (int64_t[]){2, 3}, 1);
  plait_graph_squared_error(g, plait_graph_linear(g, "product", x, w, -1), y);
  plait_graph_shard(g, w, 0, "tp");
  return create_of(g, &(PlaitTrainingOptions){.mesh = "dp=2 tp=2", .zero = 3});
}

static void parameters_come_in_any_float_type(void **state) {
  static const PlaitDtype graphs[] = {PLAIT_FP32, PLAIT_FP64, PLAIT_BF16};
  float fp32[VALUES];
  int32_t integers[VALUES] = {0};
  for (int i = 0; i < VALUES; i++) fp32[i] = (float)value[i];
  const struct { const char *name; const void *data; size_t bytes;
  } types[] = {{"F32", fp32, sizeof fp32},
               {"F64", value, sizeof value},
               {"F16", fp16, sizeof fp16},
               {"BF16", bf16, sizeof bf16}};
  char *path = inside("types.safetensors");
  for (int g = 0; g < 3; g++) {
    PlaitTraining *t = create_plain(graphs[g]);
    double wide[VALUES];
    float narrow[VALUES];
    int is_wide = graphs[g] == PLAIT_FP64;
    void *have = is_wide ? (void *)wide : narrow;
    size_t size = is_wide ? sizeof wide : sizeof narrow;
    for (int i = 0; i < 4; i++) {
      PlaitError error = {0};
      memset(have, 0, size);
      must(plait_training_write(t, "w", have, size, &error), &error);
      write_file(path, types[i].name, types[i].data, types[i].bytes);
      must(plait_training_load_parameters(t, path, &error), &error);
      must(plait_training_read(t, "w", have, size, &error), &error);
      for (int k = 0; k < VALUES; k++)
        if ((is_wide ? wide[k] : narrow[k]) != value[k]) fail_msg("graph %d, %s: number %d", g, types[i].name, k);
    }
    PlaitError error = {0};
    write_file(path, "I32", integers, sizeof integers);
    assert_int_equal(plait_training_load_parameters(t, path, &error), PLAIT_BAD_INPUT);
    assert_non_null(strstr(error.message, ": w is of type I32; allowed: F64, F32, F16 and BF16"));
    plait_training_destroy(t);
  }
  free(path);
}

// ---- every rank the caller's own

typedef struct Own { PlaitWorld *world; int rank, failed; Run result; } Own;

static void *own_rank(void *argument) {
  Own *o = argument;
  PlaitComm *comm;
  PlaitError error = {0};
  PlaitTraining *t;
  char *path = inside("own"), *file = inside("own.safetensors"), *none = inside("nowhere"),
       *below = inside("own.safetensors/run");
  PlaitGraph *g = build(HIDDEN, 0.3);
  PlaitTrainingOptions options = {.mesh = "dp=2 tp=2", .zero = 2, .seed = 3, .optimizer = "adamw"};
  o->failed = 1;
  if (plait_comm_world(o->world, o->rank, &comm, &error)) return NULL;
  options.comm = comm;
  if (plait_training_create(g, &options, &t, &error) || steps(t, 0, 3, o->result.loss, o->result.logits)) abort();
  if (plait_training_save(t, path, &error) || plait_training_save_parameters(t, file, &error)) abort();
  if (plait_training_save(t, below, &error) != PLAIT_FAILED) abort(); // on all ranks, and they continue
  if (plait_training_save_parameters(t, below, &error) != PLAIT_FAILED) abort();
  if (plait_training_load(t, none, &error) != PLAIT_BAD_INPUT) abort();
  if (plait_training_load_parameters(t, none, &error) != PLAIT_BAD_INPUT) abort();
  if (steps(t, 3, STEPS, o->result.loss, o->result.logits) || plait_training_load(t, path, &error)) abort();
  if (plait_training_load_parameters(t, file, &error) || plait_training_steps(t) != 3) abort();
  o->failed = steps(t, 3, STEPS, o->result.loss, o->result.logits) != PLAIT_OK;
  plait_training_destroy(t);
  plait_graph_destroy(g);
  plait_comm_destroy(comm);
  free(path), free(file), free(none), free(below);
  return NULL;
}

static void ranks_may_be_the_callers(void **state) {
  PlaitError error = {0};
  PlaitWorld *world;
  Own own[4];
  pthread_t thread[4];
  Run one = {{0}, {0}};
  PlaitTraining *t = create("dp=1", 0);
  must(steps(t, 0, STEPS, one.loss, one.logits), &error);
  plait_training_destroy(t);
  assert_int_equal(plait_world_local_create(4, &world, &error), PLAIT_OK);
  for (int r = 0; r < 4; r++) {
    own[r] = (Own){.world = world, .rank = r};
    assert_int_equal(pthread_create(&thread[r], NULL, own_rank, &own[r]), 0);
  }
  for (int r = 0; r < 4; r++) pthread_join(thread[r], NULL);
  for (int r = 0; r < 4; r++) {
    assert_int_equal(own[r].failed, 0);
    compare(&own[r].result, &one, 1e-12, "a rank of the caller's");
  }
  plait_world_destroy(world);
}

static int make_folder(void **state) { return mkdtemp(folder) == NULL; }

static int remove_folder(void **state) {
  char *command = xformat("rm -rf %s", folder);
  int code = system(command);
  free(command);
  return code;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_run_goes_on),
      cmocka_unit_test(what_does_not_fit_says_why),
      cmocka_unit_test(a_failing_disk_is_survived),
      cmocka_unit_test(parameters_are_a_plain_file),
      cmocka_unit_test(parameters_come_in_any_float_type),
      cmocka_unit_test(ranks_may_be_the_callers),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
