// tier 1 2; rooms compile program runtime schedule; threads numbers
// Half by hand: graphs of a user's own train on any mesh as on one rank; what follows from few annotations; what is
// refused.
#include "tier.h"
#include "plait/graph.h"
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SAMPLES = 24, IN = 6, HIDDEN = 12, OUT = 4, STEPS = 5 };

// What a test builds, and which placements it asks for.
typedef enum Ask { NOTHING, COLUMNS, ROWS, HIDDEN_VALUES, BOTH, TWICE, OUTPUT, DATA_AXIS } Ask;

static const int64_t matrix1[] = {HIDDEN, IN}, matrix2[] = {OUT, HIDDEN}, matrix3[] = {OUT, OUT}, in[] = {IN},
                     hidden[] = {HIDDEN}, out[] = {OUT};

// x → linear, relu → linear → a block with a residual → squared error: three layers.
static PlaitGraph *build(PlaitDtype dtype, Ask ask) {
  PlaitGraph *g = plait_graph_create(SAMPLES, dtype);
  PlaitTensor x = plait_graph_input(g, "x", 1, in), target = plait_graph_input(g, "target", 1, out);
  PlaitTensor w1 = plait_graph_parameter(g, "w1", 2, matrix1, 0.5), b1 = plait_graph_parameter(g, "b1", 1, hidden, 0.1);
  PlaitTensor h = plait_graph_activation(g, "relu", plait_graph_linear(g, "up", x, w1, b1), PLAIT_RELU);
  plait_graph_layer(g, 1);
  PlaitTensor w2 = plait_graph_parameter(g, "w2", 2, matrix2, 0.5), b2 = plait_graph_parameter(g, "b2", 1, out, 0.1);
  PlaitTensor y = plait_graph_linear(g, "down", h, w2, b2);
  plait_graph_layer(g, 2);
  PlaitTensor w3 = plait_graph_parameter(g, "w3", 2, matrix3, 0.5);
  PlaitTensor z = plait_graph_activation(g, "silu", plait_graph_linear(g, "third", y, w3, -1), PLAIT_SILU);
  z = plait_graph_multiply(g, "gate", z, y);
  z = plait_graph_add(g, "residual", plait_graph_scale(g, "half", z, 0.5), y);
  plait_graph_squared_error(g, z, target);
  switch (ask) {
  case NOTHING: break;
  case COLUMNS: plait_graph_shard(g, w1, 0, "tp"); break;
  case ROWS: plait_graph_shard(g, w2, 1, "tp"); break;
  case HIDDEN_VALUES: plait_graph_shard(g, h, 1, "tp"); break;
  case BOTH:
    plait_graph_shard(g, w1, 0, "tp"), plait_graph_shard(g, w2, 0, "tp"), plait_graph_replicate(g, h);
    break; // contradict each other
  case TWICE:
    plait_graph_shard(g, w1, 0, "tp"), plait_graph_shard(g, w1, 0, "more"), plait_graph_shard(g, w3, 1, "more");
    break;
  case OUTPUT: plait_graph_shard(g, y, 0, "tp"), plait_graph_shard(g, z, 1, "more"); break; // samples over dp and tp
  case DATA_AXIS: plait_graph_shard(g, w1, 0, "dp"), plait_graph_shard(g, w3, 0, "tp"); break;
  }
  return g;
}

typedef struct Run {
  double loss[STEPS], norm[STEPS];
  double w1[HIDDEN * IN], b1[HIDDEN], w2[OUT * HIDDEN], b2[OUT], w3[OUT * OUT];
} Run;

static double data(int step, int i) { return sin(1.7 * i + 0.3 * step) + 0.2 * cos(3.1 * i * step); }

static void read_parameter(PlaitTraining *t, PlaitDtype dtype, const char *name, double *values, size_t n) {
  PlaitError error = {0};
  float narrow[HIDDEN * IN];
  int code = dtype == PLAIT_FP64 ? plait_training_read(t, name, values, n * sizeof(double), &error)
                                 : plait_training_read(t, name, narrow, n * sizeof(float), &error);
  if (code) fail_msg("%s", error.message);
  for (size_t i = 0; i < n && dtype != PLAIT_FP64; i++) values[i] = narrow[i];
}

static void train(PlaitTraining *t, PlaitDtype dtype, Run *r) {
  for (int step = 0; step < STEPS; step++) {
    double x[SAMPLES * IN], y[SAMPLES * OUT];
    float fx[SAMPLES * IN], fy[SAMPLES * OUT];
    for (int i = 0; i < SAMPLES * IN; i++) fx[i] = (float)(x[i] = data(step, i));
    for (int i = 0; i < SAMPLES * OUT; i++) fy[i] = (float)(y[i] = data(step, 7 * i + 1));
    const void *wide[] = {x, y}, *narrow[] = {fx, fy};
    PlaitStepResult result;
    PlaitError error = {0};
    if (plait_training_step(t, dtype == PLAIT_FP64 ? wide : narrow, 0.1, &result, &error))
      fail_msg("%s", error.message);
    assert_int_equal(result.skipped, 0);
    r->loss[step] = result.loss;
    r->norm[step] = result.gradient_norm;
  }
  read_parameter(t, dtype, "w1", r->w1, HIDDEN * IN);
  read_parameter(t, dtype, "b1", r->b1, HIDDEN);
  read_parameter(t, dtype, "w2", r->w2, OUT * HIDDEN);
  read_parameter(t, dtype, "b2", r->b2, OUT);
  read_parameter(t, dtype, "w3", r->w3, OUT * OUT);
}

static Run run(PlaitDtype dtype, Ask ask, const PlaitTrainingOptions *o) {
  PlaitGraph *g = build(dtype, ask);
  PlaitTraining *t;
  PlaitError error = {0};
  Run r;
  memset(&r, 0, sizeof r);
  if (plait_training_create(g, o, &t, &error)) fail_msg("%s: %s", o->mesh, error.message);
  plait_graph_destroy(g);
  train(t, dtype, &r);
  plait_training_destroy(t);
  return r;
}

static double largest_difference(const Run *a, const Run *b) {
  const double *x = (const double *)a, *y = (const double *)b;
  double worst = 0;
  for (size_t i = 0; i < sizeof *a / sizeof(double); i++)
    worst = fmax(worst, isnan(x[i]) ? INFINITY : fabs(x[i] - y[i]));
  return worst;
}

static const PlaitTrainingOptions layouts[] = {
    {.mesh = "dp=1"},
    {.mesh = "dp=2"},
    {.mesh = "dp=3", .microbatches = 4},
    {.mesh = "tp=2"},
    {.mesh = "tp=4"},
    {.mesh = "dp=2 tp=2"},
    {.mesh = "tp=2 dp=2", .microbatches = 2},
    {.mesh = "dp=2 tp=2 more=2", .microbatches = 3},
    {.mesh = "pp=2", .microbatches = 4},
    {.mesh = "pp=3", .microbatches = 4},
    {.mesh = "dp=2 pp=3", .microbatches = 3, .schedule = "gpipe"},
    {.mesh = "pp=3 tp=2", .microbatches = 2, .schedule = "naive"},
    {.mesh = "pp=2 dp=2", .zero = 2, .microbatches = 3, .schedule = "zb-h1"},
    {.mesh = "pp=2 dp=2 tp=2", .microbatches = 2, .threads = 2},
    {.mesh = "dp=2 tp=2", .zero = 1},
    {.mesh = "dp=2 tp=2", .zero = 2, .microbatches = 3},
    {.mesh = "pp=2 dp=2 more=2", .zero = 3, .microbatches = 3},
    // 24 samples that do not divide: ranks and microbatches differ by one, and a rank may have none of a microbatch
    {.mesh = "dp=5"},
    {.mesh = "tp=2 dp=2", .microbatches = 7, .zero = 2},
    {.mesh = "pp=2 dp=5", .microbatches = 3},
    {.mesh = "dp=16 tp=2", .microbatches = 2, .zero = 3},
};

// What is refused of these, by a word of the sentence; NULL: nothing. A mesh has no axis that nothing names, and where
// a placement cuts samples these divide.
static const char *refused(Ask ask, const PlaitTrainingOptions *o) {
  int tp = ask != NOTHING, more = ask == TWICE || ask == OUTPUT, dp = 1;
  if (!tp && strstr(o->mesh, "tp=")) return "axis \"tp\"";
  if (!more && strstr(o->mesh, "more=")) return "axis \"more\"";
  if (strstr(o->mesh, "dp=")) dp = atoi(strstr(o->mesh, "dp=") + 3);
  if (ask == OUTPUT && strstr(o->mesh, "tp=") && SAMPLES % (dp * (o->microbatches ? o->microbatches : 1)))
    return "must be a multiple";
  if (ask == DATA_AXIS && HIDDEN % dp) return "cannot be cut into"; // w1 is cut over dp
  return NULL;
}

static int is_refused(PlaitDtype dtype, Ask ask, const PlaitTrainingOptions *o) {
  const char *words = refused(ask, o);
  if (!words) return 0;
  PlaitGraph *g = build(dtype, ask);
  PlaitTraining *t;
  PlaitError error = {0};
  assert_true(plait_training_create(g, o, &t, &error) < 0);
  if (!strstr(error.message, words)) fail_msg("\"%s\" does not say \"%s\"", error.message, words);
  plait_graph_destroy(g);
  return 1;
}

static void every_layout_is_one_rank(void **state) {
  static const struct {
    const char *optimizer;
    double momentum, decay, clip;
  } updates[] = {
      {NULL, 0, 0, 0}, {"sgd", 0.9, 0.01, 0.5}, {"adamw", 0, 0.1, 0.1}, {"lion", 0, 0.3, 0.1}, {"muon", 0.9, 0.1, 0.1}};
  for (int u = 0; u < 5; u += test_tier() == 1 ? 4 : 1) { // a sample: two optimizers
    Run one;
    for (int ask = NOTHING; ask <= DATA_AXIS; ask++) {
      for (int i = 0; i < (int)(sizeof layouts / sizeof *layouts); i++) {
        if ((u || test_tier() == 1) && ask && i % 3 != u % 3) continue;
        PlaitTrainingOptions o = layouts[i];
        o.seed = 7;
        o.optimizer = updates[u].optimizer, o.momentum = updates[u].momentum, o.weight_decay = updates[u].decay,
        o.clip = updates[u].clip;
        if (is_refused(PLAIT_FP64, (Ask)ask, &o)) continue;
        Run r = run(PLAIT_FP64, (Ask)ask, &o);
        if (ask == NOTHING && i == 0) {
          one = r;
          assert_true(one.loss[0] > 0.1 && one.loss[STEPS - 1] != one.loss[0] && one.norm[0] > 0);
        }
        double difference = largest_difference(&r, &one);
        if (!(difference <= (u == 4 ? 485e-12 : 1e-12))) // as muon amplifies rounding
          fail_msg("update %d, placements %d, mesh %s: off by %g", u, ask, o.mesh, difference);
      }
    }
  }
}

// A bias of 16 elements, cut over four axes and by ZeRO over a fifth.
static void many_axes_cut_one_dim(void **state) {
  enum { WIDE = 16 };
  static const int64_t matrix[] = {WIDE, IN}, wide[] = {WIDE};
  static const char *const axes[] = {"a", "b", "c", "d"}, *const meshes[] = {"dp=1", "a=2 b=2 c=2 d=2 dp=2"};
  double bias[2][WIDE];
  for (int m = 0; m < 2; m++) {
    PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP64);
    PlaitTensor x = plait_graph_input(g, "x", 1, in), target = plait_graph_input(g, "target", 1, wide);
    PlaitTensor w = plait_graph_parameter(g, "w", 2, matrix, 0.5), b = plait_graph_parameter(g, "b", 1, wide, 0.1);
    plait_graph_squared_error(g, plait_graph_linear(g, "up", x, w, b), target);
    for (int a = 0; a < 4; a++) plait_graph_shard(g, w, 0, axes[a]), plait_graph_shard(g, b, 0, axes[a]);
    PlaitTraining *t;
    PlaitError error = {0};
    double px[SAMPLES * IN], py[SAMPLES * WIDE];
    for (int i = 0; i < SAMPLES * IN; i++) px[i] = data(1, i);
    for (int i = 0; i < SAMPLES * WIDE; i++) py[i] = data(2, i);
    const void *inputs[] = {px, py};
    if (plait_training_create(
            g, &(PlaitTrainingOptions){.mesh = meshes[m], .zero = m ? 3 : 0, .seed = 7, .optimizer = "adamw"}, &t,
            &error))
      fail_msg("%s", error.message);
    plait_graph_destroy(g);
    for (int step = 0; step < 3; step++)
      if (plait_training_step(t, inputs, 0.1, NULL, &error)) fail_msg("%s", error.message);
    if (plait_training_read(t, "b", bias[m], sizeof bias[m], &error)) fail_msg("%s", error.message);
    plait_training_destroy(t);
  }
  for (int i = 0; i < WIDE; i++) assert_true(fabs(bias[0][i] - bias[1][i]) <= 1e-12);
}

// 14 axes and pp and dp, which a mesh that does not name them has as well.
static void sixteen_axes_fit(void **state) {
#define FOURTEEN "a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1"
  static const char *const meshes[] = {FOURTEEN,           "dp=2 " FOURTEEN,      FOURTEEN " dp=2",
                                       "pp=3 " FOURTEEN,   FOURTEEN " pp=3 dp=2", "dp=2 " FOURTEEN " pp=3",
                                       "dp=2 tp=2 pp=3 " "b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1"};
  Run one = run(PLAIT_FP64, NOTHING, &(PlaitTrainingOptions){.seed = 7});
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
    Run r = run(PLAIT_FP64, strstr(meshes[i], "tp") ? COLUMNS : NOTHING,
                &(PlaitTrainingOptions){.mesh = meshes[i], .seed = 7, .zero = strstr(meshes[i], "dp=2") ? 2 : 0});
    if (!(largest_difference(&r, &one) <= 1e-12)) fail_msg("%s: %g", meshes[i], largest_difference(&r, &one));
  }
}

static void narrower_types_are_near(void **state) {
  Run wide = run(PLAIT_FP64, COLUMNS, &(PlaitTrainingOptions){.mesh = "dp=1", .seed = 7});
  for (int i = 0; i < (int)(sizeof layouts / sizeof *layouts); i++) {
    PlaitTrainingOptions o = layouts[i];
    o.seed = 7;
    if (is_refused(PLAIT_FP32, COLUMNS, &o)) continue;
    Run fp32 = run(PLAIT_FP32, COLUMNS, &o), bf16 = run(PLAIT_BF16, COLUMNS, &o);
    if (!(largest_difference(&fp32, &wide) < 1e-5))
      fail_msg("fp32, mesh %s: off by %g", o.mesh, largest_difference(&fp32, &wide));
    if (!(largest_difference(&bf16, &wide) < 0.05))
      fail_msg("bf16, mesh %s: off by %g", o.mesh, largest_difference(&bf16, &wide));
  }
}

// ---- against a network written out here

static void one_step_by_formula(void **state) {
  static const int64_t w_size[] = {OUT, IN};
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "x", 1, in), y = plait_graph_input(g, "y", 1, out);
  plait_graph_squared_error(g, plait_graph_linear(g, "only", x, plait_graph_parameter(g, "w", 2, w_size, 1), -1), y);
  PlaitTraining *t;
  PlaitError error = {0};
  if (plait_training_create(g, &(PlaitTrainingOptions){.mesh = "dp=2", .microbatches = 3}, &t, &error))
    fail_msg("%s", error.message);
  plait_graph_destroy(g);
  double w[OUT][IN], after[OUT][IN], xs[SAMPLES][IN], ys[SAMPLES][OUT], loss = 0, gradient[OUT][IN] = {{0}}, norm = 0;
  for (int i = 0; i < OUT * IN; i++) (&w[0][0])[i] = data(3, i);
  for (int i = 0; i < SAMPLES * IN; i++) (&xs[0][0])[i] = data(1, i);
  for (int i = 0; i < SAMPLES * OUT; i++) (&ys[0][0])[i] = data(2, i);
  assert_int_equal(plait_training_write(t, "w", w, sizeof w, &error), PLAIT_OK);
  for (int s = 0; s < SAMPLES; s++)
    for (int o = 0; o < OUT; o++) {
      double difference = -ys[s][o];
      for (int i = 0; i < IN; i++) difference += w[o][i] * xs[s][i];
      loss += difference * difference / (SAMPLES * OUT);
      for (int i = 0; i < IN; i++) gradient[o][i] += 2 * difference * xs[s][i] / (SAMPLES * OUT);
    }
  PlaitStepResult result;
  const void *inputs[] = {xs, ys};
  assert_int_equal(plait_training_step(t, inputs, 0.25, &result, &error), PLAIT_OK);
  assert_int_equal(plait_training_read(t, "w", after, sizeof after, &error), PLAIT_OK);
  for (int o = 0; o < OUT; o++)
    for (int i = 0; i < IN; i++) {
      norm += gradient[o][i] * gradient[o][i];
      assert_true(fabs(after[o][i] - (w[o][i] - 0.25 * gradient[o][i])) < 1e-13);
    }
  assert_true(fabs(result.loss - loss) < 1e-13 && fabs(result.gradient_norm - sqrt(norm)) < 1e-13);
  // A step that is not finite is skipped.
  xs[5][2] = NAN;
  assert_int_equal(plait_training_step(t, inputs, 0.25, &result, &error), PLAIT_OK);
  assert_int_equal(result.skipped, 1);
  assert_int_equal(plait_training_read(t, "w", w, sizeof w, &error), PLAIT_OK);
  assert_memory_equal(w, after, sizeof w);
  plait_training_destroy(t);
}

// ---- placements that follow

static char *listing(Ask ask, const char *mesh) {
  PlaitGraph *g = build(PLAIT_FP32, ask);
  PlaitTraining *t;
  PlaitError error = {0};
  char *text;
  size_t size;
  FILE *out_file = open_memstream(&text, &size);
  if (plait_training_create(g, &(PlaitTrainingOptions){.mesh = mesh}, &t, &error)) fail_msg("%s", error.message);
  plait_training_print(t, out_file);
  fclose(out_file);
  plait_training_destroy(t);
  plait_graph_destroy(g);
  return text;
}

static int count(const char *text, const char *words) {
  int n = 0;
  for (const char *p = text; (p = strstr(p, words)); p++) n++;
  return n;
}

static void one_annotation_is_enough(void **state) {
  char *text = listing(COLUMNS, "tp=2");
  *strstr(text, "\nBEGIN") = 0; // a microbatch
  // One all_reduce of the partial sums of "down" in forward. In backward none: x is data and needs no gradient. None
  // gathers.
  assert_int_equal(count(text, "= all_reduce"), 1);
  assert_int_equal(count(text, "= all_gather"), 0);
  assert_non_null(strstr(text, "down.all_reduce"));
  free(text);
}

// ---- ranks of the caller's own

typedef struct Own { PlaitWorld *world; int rank; Run result; } Own;

static void *own_rank(void *argument) {
  Own *o = argument;
  PlaitComm *comm;
  PlaitError error = {0};
  PlaitTraining *t = NULL;
  PlaitGraph *g = build(PLAIT_FP64, COLUMNS);
  if (plait_comm_world(o->world, o->rank, &comm, &error)) abort();
  if (plait_training_create(g, &(PlaitTrainingOptions){.mesh = "pp=2 tp=2", .comm = comm, .seed = 7, .microbatches = 2},
                            &t, &error))
    abort();
  train(t, PLAIT_FP64, &o->result);
  double w[HIDDEN * IN];
  for (int i = 0; i < HIDDEN * IN; i++) w[i] = i;
  if (plait_training_write(t, "w1", w, sizeof w, &error) || plait_training_read(t, "w1", w, sizeof w, &error)) abort();
  for (int i = 0; i < HIDDEN * IN; i++)
    if (w[i] != i) abort();
  plait_training_destroy(t);
  plait_graph_destroy(g);
  plait_comm_destroy(comm);
  return NULL;
}

static void ranks_may_be_the_callers(void **state) {
  Run one = run(PLAIT_FP64, NOTHING, &(PlaitTrainingOptions){.seed = 7});
  PlaitError error = {0};
  PlaitWorld *world;
  Own own[4];
  pthread_t thread[4];
  assert_int_equal(plait_world_local_create(4, &world, &error), PLAIT_OK);
  for (int r = 0; r < 4; r++) {
    own[r] = (Own){.world = world, .rank = r};
    assert_int_equal(pthread_create(&thread[r], NULL, own_rank, &own[r]), 0);
  }
  for (int r = 0; r < 4; r++) pthread_join(thread[r], NULL);
  for (int r = 0; r < 4; r++) assert_true(largest_difference(&own[r].result, &one) <= 1e-12);
  plait_world_destroy(world);
}

// ---- what is refused

static void expect_error(PlaitGraph *g, const char *words) {
  PlaitTraining *t = (PlaitTraining *)1;
  PlaitError error = {0};
  const char *early = plait_graph_error(g);
  if (!early || !strstr(early, words)) fail_msg("\"%s\" does not say \"%s\"", early ? early : "", words);
  assert_int_equal(plait_training_create(g, NULL, &t, &error), PLAIT_BAD_INPUT);
  assert_null(t);
  assert_string_equal(error.message, early);
  assert_int_equal(plait_training_create(g, NULL, &t, NULL), PLAIT_BAD_INPUT);
  plait_graph_destroy(g);
}

static void wrong_graphs_say_why(void **state) {
  PlaitGraph *g;
  const int64_t none[] = {0}, huge[] = {1 << 30, 1 << 30};
#define GRAPH g = plait_graph_create(SAMPLES, PLAIT_FP32)
#define X plait_graph_input(g, "x", 1, in)
#define W plait_graph_parameter(g, "w", 2, matrix1, 1)
  expect_error(plait_graph_create(0, PLAIT_FP32), "samples of a step: 0");
  expect_error(plait_graph_create(1, PLAIT_INT32), "dtype");
  GRAPH, plait_graph_input(g, "", 1, in), expect_error(g, "the name \"\"");
  GRAPH, plait_graph_input(g, NULL, 1, in), expect_error(g, "the name \"\"");
  GRAPH, plait_graph_input(g, "a.b", 1, in), expect_error(g, "a.b");
  GRAPH, X, plait_graph_parameter(g, "x", 1, in, 0), expect_error(g, "used twice");
  GRAPH, plait_graph_input(g, "x", 7, in), expect_error(g, "7 dims");
  GRAPH, plait_graph_parameter(g, "w", 0, in, 0), expect_error(g, "0 dims");
  GRAPH, plait_graph_input(g, "x", 1, none), expect_error(g, "dim 0 of x is 0");
  GRAPH, plait_graph_parameter(g, "w", 2, huge, 0), expect_error(g, "dim 1 of w");
  GRAPH, plait_graph_parameter(g, "w", 1, in, -1), expect_error(g, "standard deviation");
  GRAPH, plait_graph_linear(g, "l", X, 55, -1), expect_error(g, "l reads tensor 55");
  GRAPH, plait_graph_linear(g, "l", X, X, -1), expect_error(g, "used twice");
  GRAPH, plait_graph_linear(g, "l", X, plait_graph_parameter(g, "w", 2, matrix2, 1), -1),
      expect_error(g, "x of l is (24, 6)");
  GRAPH, plait_graph_linear(g, "l", X, W, plait_graph_parameter(g, "b", 1, out, 0)),
      expect_error(g, "bias of l is (4)");
  GRAPH, plait_graph_linear(g, "l", X, plait_graph_add(g, "sum", W, plait_graph_parameter(g, "v", 2, matrix1, 1)), -1),
      expect_error(g, "w of l is the result of an op and no parameter");
  GRAPH, plait_graph_linear(g, "l", X, plait_graph_input(g, "y", 1, in), -1),
      expect_error(g, "w of l is an input and no parameter");
  GRAPH, plait_graph_linear(g, "l", W, W, -1), expect_error(g, "used twice");
  GRAPH, plait_graph_activation(g, "a", X, (PlaitActivation)9), expect_error(g, "activation 9");
  GRAPH, plait_graph_add(g, "a", X, plait_graph_input(g, "y", 1, out)), expect_error(g, "one shape");
  GRAPH, plait_graph_add(g, "a", X, W), expect_error(g, "one shape");
  GRAPH, plait_graph_scale(g, "a", X, NAN), expect_error(g, "not finite");
  GRAPH, plait_graph_layer(g, -1), expect_error(g, "layer -1");
  GRAPH, plait_graph_shard(g, X, 0, "tp"), expect_error(g, "the input x");
  GRAPH, plait_graph_shard(g, W, 2, "tp"), expect_error(g, "dim 2 of w; allowed");
  GRAPH, plait_graph_shard(g, W, 0, "pp"), expect_error(g, "\"pp\"");
  GRAPH, plait_graph_shard(g, W, 0, NULL), expect_error(g, "\"\"");
  GRAPH, plait_graph_shard(g, -1, 0, "tp"), expect_error(g, "tensor -1");
  GRAPH;
  PlaitTensor w = W;
  plait_graph_shard(g, w, 0, "tp"), plait_graph_shard(g, w, 1, "tp"), expect_error(g, "w is cut over tp twice");
  GRAPH, w = W, plait_graph_replicate(g, w), plait_graph_shard(g, w, 1, "tp"),
         expect_error(g, "w is cut, and was to be whole");
  GRAPH;
  PlaitTensor h = (plait_graph_layer(g, 3), plait_graph_scale(g, "later", X, 2));
  plait_graph_layer(g, 1), plait_graph_scale(g, "earlier", h, 2), expect_error(g, "later of layer 3");
}

static int create_with(const PlaitTrainingOptions *o, Ask ask, PlaitError *error) {
  PlaitGraph *g = build(PLAIT_FP32, ask);
  PlaitTraining *t = NULL;
  memset(error, 0, sizeof *error);
  int code = plait_training_create(g, o, &t, error);
  plait_training_destroy(t);
  plait_graph_destroy(g);
  return code;
}

static void wrong_options_say_what_is_allowed(void **state) {
  static const struct { PlaitTrainingOptions o; Ask ask; int code; const char *words;
  } cases[] = {
      {{.mesh = "dp"}, NOTHING, PLAIT_BAD_INPUT, "\"dp\""},
      {{.mesh = "dp=2x"}, NOTHING, PLAIT_BAD_INPUT, "dp=2x"},
      {{.mesh = "dp=0"}, NOTHING, PLAIT_BAD_INPUT, "dp=0"},
      {{.mesh = "dp=-2"}, NOTHING, PLAIT_BAD_INPUT, "dp=-2"},
      {{.mesh = "dp=2 dp=2"}, NOTHING, PLAIT_BAD_INPUT, "twice"},
      {{.mesh = "a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1 o=1"},
       NOTHING,
       PLAIT_BAD_INPUT,
       "mesh: more than 14 axes beside pp and dp"},
      {{.mesh = "pp=1 dp=1 a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1 o=1"},
       NOTHING,
       PLAIT_BAD_INPUT,
       "mesh: more than 14 axes beside pp and dp"},
      {{.mesh = "a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1 dp=2 pp=1 dp=2"},
       NOTHING,
       PLAIT_BAD_INPUT,
       "mesh: the axis dp is there twice"},
      {{.mesh = "dp=2048"}, NOTHING, PLAIT_BAD_INPUT, "1024"},
      {{.mesh = "dp=5 tp=2"}, OUTPUT, PLAIT_BAD_INPUT, "the nearest is 20 or 25"},
      {{.mesh = "dp=2", .microbatches = 20}, NOTHING, PLAIT_BAD_INPUT, "has 12 at most; allowed: 1 to 12"},
      {{.mesh = "dp=2 foo=4"},
       COLUMNS,
       PLAIT_BAD_INPUT,
       "axis \"foo\", so that its 4 ranks would all compute the same"},
      {{.mesh = "dp=2 tq=2"}, COLUMNS, PLAIT_BAD_INPUT, "did you mean \"tp\"? allowed: dp, pp, tp"},
      {{.mesh = "pp=4"}, NOTHING, PLAIT_INFEASIBLE, "3 layers"},
      {{.mesh = "tp=5"},
       COLUMNS,
       PLAIT_INFEASIBLE,
       "mesh: dim 0 of w1 (size 12) is sharded over tp, but 12 cannot be cut into 5 equal shards; the nearest number "
       "of ranks that fits is 4 or 6"},
      {{.schedule = "forward"}, NOTHING, PLAIT_BAD_INPUT, "schedule is \"forward\"; allowed: naive, gpipe"},
      {{.schedule = "interleaved"}, NOTHING, PLAIT_BAD_INPUT, "schedule is \"interleaved\"; allowed: naive, gpipe"},
      {{.zero = 4}, NOTHING, PLAIT_BAD_INPUT, "zero is 4"},
      {{.optimizer = "shampoo"}, NOTHING, PLAIT_BAD_INPUT, "optimizer is \"shampoo\"; allowed: adamw"},
      {{.momentum = 1}, NOTHING, PLAIT_BAD_INPUT, "momentum"},
      {{.weight_decay = -1}, NOTHING, PLAIT_BAD_INPUT, "weight_decay"},
      {{.clip = NAN}, NOTHING, PLAIT_BAD_INPUT, "clip"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    PlaitError error;
    int code = create_with(&cases[i].o, cases[i].ask, &error);
    if (code != cases[i].code || !strstr(error.message, cases[i].words))
      fail_msg("case %zu: %d, %s", i, code, error.message);
  }
  PlaitError error = {0};
  PlaitTraining *t;
  PlaitGraph *g = build(PLAIT_FP32, NOTHING);
  plait_graph_parameter(g, "idle", 1, in, 0);
  assert_int_equal(plait_training_create(g, NULL, &t, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "no op reads the parameter idle"));
  plait_graph_destroy(g);
  g = plait_graph_create(1, PLAIT_FP32);
  error = (PlaitError){0};
  assert_int_equal(plait_training_create(g, NULL, &t, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "no loss"));
  plait_graph_destroy(g);
  g = build(PLAIT_FP32, NOTHING);
  error = (PlaitError){0};
  assert_int_equal(plait_training_create(g, NULL, &t, &error), PLAIT_OK);
  float small[3];
  assert_int_equal(plait_training_read(t, "w1", small, sizeof small, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "288 bytes"));
  assert_int_equal(plait_training_read(t, "w9", small, sizeof small, NULL), PLAIT_BAD_INPUT);
  assert_int_equal(plait_training_write(t, "w9", small, sizeof small, NULL), PLAIT_BAD_INPUT);
  assert_int_equal(plait_training_step(t, (const void *[]){small, NULL}, 0.1, NULL, NULL), PLAIT_BAD_INPUT);
  plait_training_destroy(t);
  plait_graph_destroy(g);
  plait_graph_destroy(NULL);
  plait_training_destroy(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_layout_is_one_rank), cmocka_unit_test(many_axes_cut_one_dim),
      cmocka_unit_test(sixteen_axes_fit),
      cmocka_unit_test(narrower_types_are_near),  cmocka_unit_test(one_step_by_formula),
      cmocka_unit_test(one_annotation_is_enough), cmocka_unit_test(ranks_may_be_the_callers),
      cmocka_unit_test(wrong_graphs_say_why),     cmocka_unit_test(wrong_options_say_what_is_allowed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
