// tier 1; rooms compile; numbers
// Half by hand: what is computed from parameters alone is added to what has samples, on any mesh, as a parameter of the
// same values would be.
#include "plait/graph.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { SAMPLES = 8, S = 5, E = 8, WIDE = 12 };
#define SIZE(...) sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__}

typedef struct Added {
  double loss[2], norm[2], out[SAMPLES * S];
  double shift[WIDE], table[S * WIDE]; // what the first step changes
} Added;

static void must(int code, const PlaitError *error, const char *mesh) {
  if (code) fail_msg("%s: %s", mesh, error->message);
}

static PlaitTensor matrix(PlaitGraph *g, const char *name, int rank, const int64_t *size) {
  return plait_graph_parameter(g, name, rank, size, 0.4);
}

// x (b, s, e) → (b, s): linear, + shift (f), + table (s, f), + the sum of the table; silu; in a later layer + shift
// again and a linear layer. computed: shift and table are 1/2 and -1/4 of parameters; else parameters of those values.
static Added add_run(int computed, PlaitDtype dtype, const PlaitTrainingOptions *o) {
  PlaitGraph *g = plait_graph_create(SAMPLES, dtype);
  PlaitTensor x = plait_graph_input(g, "x", SIZE(S, E)), target = plait_graph_input(g, "target", SIZE(S, 1));
  PlaitTensor w1 = matrix(g, "w1", SIZE(WIDE, E)), w2 = matrix(g, "w2", SIZE(1, WIDE));
  PlaitTensor shift = matrix(g, "shift", SIZE(WIDE)), table = matrix(g, "table", SIZE(S, WIDE));
  if (computed) shift = plait_graph_scale(g, "half", shift, 0.5), table = plait_graph_scale(g, "less", table, -0.25);
  PlaitTensor sum = plait_graph_reduce(g, "columns", plait_graph_reduce(g, "rows", table, 0, 0), 0, 0);
  PlaitTensor h = plait_graph_add(g, "one", plait_graph_linear(g, "up", x, w1, -1), shift);
  h = plait_graph_add(g, "three", plait_graph_add(g, "two", h, table), sum);
  h = plait_graph_activation(g, "silu", h, PLAIT_SILU);
  plait_graph_layer(g, 1);
  PlaitTensor y = plait_graph_linear(g, "down", plait_graph_add(g, "four", h, shift), w2, -1);
  plait_graph_squared_error(g, y, target);
  plait_graph_output(g, "out", y);
  plait_graph_shard(g, w1, 0, "tp");
  PlaitTraining *t;
  PlaitError error = {0};
  must(plait_training_create(g, o, &t, &error), &error, o->mesh);
  plait_graph_destroy(g);
  Added r;
  memset(&r, 0, sizeof r);
  int wide = dtype == PLAIT_FP64;
  double xs[SAMPLES * S * E], ys[SAMPLES * S], shifts[WIDE], tables[S * WIDE];
  float xs32[SAMPLES * S * E], ys32[SAMPLES * S], out32[SAMPLES * S], shifts32[WIDE], tables32[S * WIDE];
  for (int i = 0; i < SAMPLES * S * E; i++) xs32[i] = (float)(xs[i] = sin(i * 0.7));
  for (int i = 0; i < SAMPLES * S; i++) ys32[i] = (float)(ys[i] = cos(i * 0.3));
  for (int i = 0; i < WIDE; i++) shifts32[i] = (float)(shifts[i] = (i - 5) / (computed ? 8. : 16.));
  for (int i = 0; i < S * WIDE; i++) tables32[i] = (float)(tables[i] = (i % 7 - 3) / (computed ? 8. : -32.));
  const void *inputs[] = {wide ? (void *)xs : xs32, wide ? (void *)ys : ys32};
  must(plait_training_write(t, "shift", wide ? (void *)shifts : shifts32, wide ? sizeof shifts : sizeof shifts32,
                            &error),
       &error, o->mesh);
  must(plait_training_write(t, "table", wide ? (void *)tables : tables32, wide ? sizeof tables : sizeof tables32,
                            &error),
       &error, o->mesh);
  must(plait_training_forward(t, inputs, (void *[]){wide ? (void *)r.out : out32}, NULL, &error), &error, o->mesh);
  for (int i = 0; i < SAMPLES * S && !wide; i++) r.out[i] = out32[i];
  for (int step = 0; step < 2; step++) {
    PlaitStepResult result;
    must(plait_training_step(t, inputs, 0.1, &result, &error), &error, o->mesh);
    r.loss[step] = result.loss, r.norm[step] = result.gradient_norm;
    if (step || !wide) continue;
    must(plait_training_read(t, "shift", r.shift, sizeof r.shift, &error), &error, o->mesh);
    must(plait_training_read(t, "table", r.table, sizeof r.table, &error), &error, o->mesh);
    for (int i = 0; i < WIDE; i++) r.shift[i] -= shifts[i];
    for (int i = 0; i < S * WIDE; i++) r.table[i] -= tables[i];
  }
  plait_training_destroy(t);
  return r;
}

static void computed_values_are_added(void **state) {
  static const PlaitTrainingOptions layouts[] = {
      {.mesh = "dp=4"},
      {.mesh = "dp=3", .microbatches = 2, .zero = 2},
      {.mesh = "tp=2", .microbatches = 2},
      {.mesh = "tp=4"},
      {.mesh = "pp=2", .microbatches = 4},
      {.mesh = "dp=2 tp=2", .zero = 3},
      {.mesh = "pp=2 tp=2", .microbatches = 3},
      {.mesh = "pp=2 dp=2 tp=2", .zero = 1, .microbatches = 2},
  };
  PlaitTrainingOptions alone = {.mesh = "dp=1", .seed = 3};
  Added one = add_run(1, PLAIT_FP64, &alone), given = add_run(0, PLAIT_FP64, &alone);
  for (int i = 0; i < SAMPLES * S; i++) assert_true(fabs(one.out[i] - given.out[i]) < 1e-14);
  assert_true(fabs(one.loss[0] - given.loss[0]) < 1e-14);
  for (int i = 0; i < WIDE; i++) // the chain rule
    assert_true(fabs(one.shift[i] - 0.5 * given.shift[i]) < 1e-14 && one.shift[i] != 0);
  for (int i = 0; i < S * WIDE; i++) assert_true(fabs(one.table[i] + 0.25 * given.table[i]) < 1e-14);
  for (int i = 0; i < (int)(sizeof layouts / sizeof *layouts); i++) {
    PlaitTrainingOptions o = layouts[i];
    o.seed = 3;
    Added r = add_run(1, PLAIT_FP64, &o), narrow = add_run(1, PLAIT_BF16, &o);
    for (size_t k = 0; k < sizeof r / sizeof(double); k++)
      if (!(fabs(((double *)&r)[k] - ((double *)&one)[k]) <= 1e-12))
        fail_msg("%s: number %zu is %.15g, one rank's %.15g", o.mesh, k, ((double *)&r)[k], ((double *)&one)[k]);
    for (int k = 0; k < SAMPLES * S; k++) assert_true(fabs(narrow.out[k] - one.out[k]) < 0.05);
    assert_true(fabs(narrow.loss[1] - one.loss[1]) < 0.02 * one.loss[1]);
  }
}

// y = w1 (a + b) + w2 a with a = w0 x, b = w3 x: the gradient of a + b is that of b, and a term of that of a. Nothing
// may be added to it where it lies. Whatever the loss: dw0 = (w1 + w2)ᵀ dy xᵀ and dw3 = w1ᵀ dy xᵀ.
static void a_gradient_of_two_is_not_added_to(void **state) {
  PlaitGraph *g = plait_graph_create(SAMPLES, PLAIT_FP64);
  PlaitTensor x = plait_graph_input(g, "x", SIZE(S, E)), target = plait_graph_input(g, "target", SIZE(S, 1));
  PlaitTensor w0 = matrix(g, "w0", SIZE(WIDE, E)), w3 = matrix(g, "w3", SIZE(WIDE, E));
  PlaitTensor w1 = matrix(g, "w1", SIZE(1, WIDE)), w2 = matrix(g, "w2", SIZE(1, WIDE));
  PlaitTensor a = plait_graph_linear(g, "a", x, w0, -1), b = plait_graph_linear(g, "b", x, w3, -1);
  PlaitTensor first = plait_graph_linear(g, "first", plait_graph_add(g, "both", a, b), w1, -1);
  PlaitTensor y = plait_graph_add(g, "y", first, plait_graph_linear(g, "second", a, w2, -1));
  plait_graph_squared_error(g, y, target);
  PlaitTrainingOptions o = {.mesh = "dp=1", .seed = 3};
  PlaitTraining *t;
  PlaitError error = {0};
  must(plait_training_create(g, &o, &t, &error), &error, o.mesh);
  plait_graph_destroy(g);
  double xs[SAMPLES * S * E], ys[SAMPLES * S], one[WIDE], two[WIDE], w[2][2][WIDE * E]; // w: before, after; w0, w3
  for (int i = 0; i < SAMPLES * S * E; i++) xs[i] = sin(i * 0.7);
  for (int i = 0; i < SAMPLES * S; i++) ys[i] = cos(i * 0.3);
  must(plait_training_read(t, "w1", one, sizeof one, &error), &error, o.mesh);
  must(plait_training_read(t, "w2", two, sizeof two, &error), &error, o.mesh);
  for (int after = 0; after < 2; after++) {
    PlaitStepResult result;
    if (after) must(plait_training_step(t, (const void *[]){xs, ys}, 0.1, &result, &error), &error, o.mesh);
    must(plait_training_read(t, "w0", w[after][0], sizeof w[after][0], &error), &error, o.mesh);
    must(plait_training_read(t, "w3", w[after][1], sizeof w[after][1], &error), &error, o.mesh);
  }
  plait_training_destroy(t);
  for (int i = 0; i < WIDE * E; i++) {
    double d0 = w[1][0][i] - w[0][0][i], d3 = w[1][1][i] - w[0][1][i];
    assert_true(d0 != 0 && d3 != 0);
    assert_true(fabs(d0 * one[i / E] - d3 * (one[i / E] + two[i / E])) < 1e-13);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(computed_values_are_added),
                                     cmocka_unit_test(a_gradient_of_two_is_not_added_to)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
