// tier 1; rooms sharding compile; numbers
// Half by hand: an axis that goes from one dim to another, forward and backward, trains as one rank does, and moves
// what one all_to_all moves.
#include "api/graph_build.h"
#include "program/traffic.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SAMPLES = 24, POSITIONS = 4, WIDTH = 8, STEPS = 4, VALUES = SAMPLES * POSITIONS * WIDTH };

// SAMPLES_MOVE: tp goes from the width to the samples and back. POSITIONS_MOVE: from the positions to the width and
// back, and the samples are whoever's they are.
typedef enum Ask { NOTHING, SAMPLES_MOVE, POSITIONS_MOVE } Ask;
typedef struct Run { double loss[STEPS], w1[WIDTH * WIDTH], w2[WIDTH * WIDTH]; } Run;

// (samples, positions, width) → linear, gelu → scaled, silu → linear → squared error
static PlaitGraph *build(Ask ask) {
  static const int64_t values[] = {POSITIONS, WIDTH}, matrix[] = {WIDTH, WIDTH};
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "x", 2, values), target = plait_graph_input(g, "target", 2, values);
  PlaitTensor w1 = plait_graph_parameter(g, "w1", 2, matrix, 0.5), w2 = plait_graph_parameter(g, "w2", 2, matrix, 0.5);
  PlaitTensor u = plait_graph_linear(g, "up", x, w1, -1), h = plait_graph_activation(g, "gelu", u, PLAIT_GELU);
  PlaitTensor s = plait_graph_scale(g, "scaled", h, 1.5), a = plait_graph_activation(g, "silu", s, PLAIT_SILU);
  plait_graph_layer(g, 1);
  PlaitTensor y = plait_graph_linear(g, "down", a, w2, -1);
  plait_graph_squared_error(g, y, target);
  if (ask == SAMPLES_MOVE)
    plait_graph_shard(g, w1, 0, "tp"), plait_graph_shard(g, h, 0, "tp"), plait_graph_shard(g, a, 2, "tp");
  if (ask == POSITIONS_MOVE)
    plait_graph_shard(g, u, 1, "tp"), plait_graph_shard(g, h, 2, "tp"), plait_graph_shard(g, a, 1, "tp");
  return g;
}

static Run run(Ask ask, const PlaitTrainingOptions *o) {
  PlaitGraph *g = build(ask);
  PlaitTraining *t;
  PlaitError error = {0};
  Run r = {0};
  if (plait_training_create(g, o, &t, &error)) fail_msg("%s: %s", o->mesh, error.message);
  plait_graph_destroy(g);
  for (int step = 0; step < STEPS; step++) {
    double x[VALUES], y[VALUES];
    for (int i = 0; i < VALUES; i++) x[i] = sin(1.7 * i + step), y[i] = cos(0.3 * i - step);
    PlaitStepResult result;
    if (plait_training_step(t, (const void *[]){x, y}, 0.1, &result, &error)) fail_msg("%s", error.message);
    r.loss[step] = result.loss;
  }
  if (plait_training_read(t, "w1", r.w1, sizeof r.w1, &error) ||
      plait_training_read(t, "w2", r.w2, sizeof r.w2, &error))
    fail_msg("%s", error.message);
  plait_training_destroy(t);
  return r;
}

static void axes_move_and_nothing_changes(void **state) {
  static const struct {
    Ask ask;
    PlaitTrainingOptions options;
  } cases[] = {
      {SAMPLES_MOVE, {.mesh = "tp=2"}},
      {SAMPLES_MOVE, {.mesh = "tp=4"}},
      {SAMPLES_MOVE, {.mesh = "dp=3 tp=2", .microbatches = 2, .zero = 2}},
      {SAMPLES_MOVE, {.mesh = "pp=2 tp=2", .microbatches = 3}},
      {POSITIONS_MOVE, {.mesh = "tp=2"}},
      {POSITIONS_MOVE, {.mesh = "tp=4"}},
      {POSITIONS_MOVE, {.mesh = "dp=2 tp=2", .zero = 3, .microbatches = 3}},
      {POSITIONS_MOVE, {.mesh = "dp=5 tp=2"}}, // ranks with 4 samples and with 5
      {POSITIONS_MOVE, {.mesh = "dp=16 tp=2", .microbatches = 2}}, // ranks without a sample
      {POSITIONS_MOVE, {.mesh = "pp=2 tp=4", .microbatches = 2}},
  };
  Run one = run(NOTHING, &(PlaitTrainingOptions){.mesh = "dp=1", .seed = 5});
  assert_true(one.loss[0] > 0.1 && one.loss[STEPS - 1] != one.loss[0]);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    PlaitTrainingOptions o = cases[i].options;
    o.seed = 5;
    Run r = run(cases[i].ask, &o);
    const double *x = (const double *)&r, *y = (const double *)&one;
    double worst = 0;
    for (size_t k = 0; k < sizeof r / sizeof *x; k++) worst = fmax(worst, isnan(x[k]) ? INFINITY : fabs(x[k] - y[k]));
    if (!(worst <= 1e-12)) fail_msg("case %zu, mesh %s: off by %g", i, o.mesh, worst);
  }
}

static int count_of(const char *text, const char *words) {
  int n = 0;
  for (; (text = strstr(text, words)); text++) n++;
  return n;
}

// Over 4 ranks each of the moves sends 3/4 of what a rank has. The gradients of two matrices, and a few scalars, are
// summed over tp once; as they are short, they go whole to all ranks.
static void check_traffic(const Job *job) {
  TrafficList list = {0};
  double elements = 0, own = VALUES / 4.0, expected = 4 * own * 3 / 4 + 2 * (3.0 * WIDTH * WIDTH);
  program_traffic(job_train(job)->program[0], &list);
  for (int i = 0; i < list.count; i++) elements += list.data[i].elements;
  vec_free(&list);
  if (elements < expected || elements > expected + 10) fail_msg("%g elements, expected %g", elements, expected);
}

// What moves is moved back by its gradient, and nothing is gathered, or moved twice: backward reads what forward has
// moved.
static void one_all_to_all_each(void **state) {
  enum { FORWARD_AND_BACKWARD = 4 };
  for (int ask = SAMPLES_MOVE; ask <= POSITIONS_MOVE; ask++) {
    PlaitGraph *g = build((Ask)ask);
    PlaitTraining *t;
    PlaitError error = {0};
    if (plait_training_create(g, &(PlaitTrainingOptions){.mesh = "tp=4", .seed = 5}, &t, &error))
      fail_msg("%s", error.message);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    plait_training_print(t, out);
    fclose(out);
    if (count_of(text, "= all_to_all ") != FORWARD_AND_BACKWARD || count_of(text, "= all_gather "))
      fail_msg("%d: %d all_to_alls, %d gathers", ask, count_of(text, "= all_to_all "), count_of(text, "= all_gather "));
    free(text);
    if (ask == POSITIONS_MOVE) check_traffic(t->job);
    plait_training_destroy(t);
    plait_graph_destroy(g);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(axes_move_and_nothing_changes),
                                     cmocka_unit_test(one_all_to_all_each)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
