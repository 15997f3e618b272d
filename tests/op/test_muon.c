// Muon's three nodes against four steps of NumPy's (scripts/golden_muon.py), and what is AdamW's instead.
#include "check/evaluate.h"
#include "op/optimizer.h"
#include "checkpoint/safetensors.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { UPDATES = 4 };

typedef struct Golden { const char *name, *dims; int outputs; MuonScale scale; } Golden;
static const Golden cases[] = {
    {"wide", "fe", 1, MUON_SCALE_ADAMW},           {"tall", "fe", 1, MUON_SCALE_ADAMW},
    {"tall_original", "fe", 1, MUON_SCALE_ORIGINAL}, {"to_heads", "grde", 3, MUON_SCALE_ADAMW},
    {"from_heads", "egrd", 1, MUON_SCALE_ORIGINAL},  {"experts", "xfe", 1, MUON_SCALE_ADAMW},
    {"one_row", "fe", 1, MUON_SCALE_ADAMW},
};

static const double *golden(const Safetensors *file, const char *name, const char *what, Shape *shape) {
  char key[64];
  snprintf(key, sizeof key, "%s.%s", name, what);
  const SafetensorsEntry *e = safetensors_find(file, key);
  assert_true(e && e->dtype == DTYPE_F64);
  if (shape) {
    shape->rank = e->rank;
    for (int d = 0; d < e->rank; d++) shape->size[d] = e->dims[d];
  }
  return e->data;
}

static void set_scalar(Values *v, int tensor, double x) {
  v->tensor[tensor] = operand_create(DTYPE_F64, &(Shape){0});
  operand_store(&v->tensor[tensor], 0, x);
}

static void expect(const double *got, const double *expected, int64_t n, const char *name, const char *what) {
  for (int64_t i = 0; i < n; i++)
    if (!(fabs(got[i] - expected[i]) < 1e-11))
      fail_msg("%s %s[%d] is %.15g, NumPy's %.15g", name, what, (int)i, got[i], expected[i]);
}

static void train(const Safetensors *file, const Golden *c) {
  Shape shape = {0}, scalar = {0};
  golden(file, c->name, "w", &shape);
  for (int d = 0; d < shape.rank; d++) {
    static const char letters[] = "-bsegrdfvpx"; // of dims.def, in its order
    shape.dim[d] = (DimName)(strchr(letters, c->dims[d]) - letters);
  }
  Graph *g = graph_create();
  int w = graph_variable(g, "w", VARIABLE_PARAMETER, DTYPE_F64, shape, (Init){0});
  g->variable.data[w].outputs = c->outputs;
  int gradient = graph_input(g, "g", DTYPE_F64, shape), lr = graph_input(g, "lr", DTYPE_F64, scalar),
      factor = graph_input(g, "factor", DTYPE_F64, scalar), skip = graph_input(g, "skip", DTYPE_F64, scalar),
      step = graph_input(g, "step", DTYPE_F64, scalar), old = graph_read(g, w);
  op_optimizer(g, OP_MUON, old, gradient, lr, factor, skip, step,
               &(OptimizerAttr){.momentum = 0.95, .decay = 0.1, .muon_scale = c->scale});
  int m = graph_find_variable(g, "momentum.w");
  assert_true(m >= 0 && g->node.count == 3);
  int old_m = g->node.data[0].input[0], new_m = graph_read(g, m), new_w = graph_read(g, w);
  int64_t n = shape_elements(&shape);
  Values v;
  values_start(&v, g);
  v.tensor[old] = operand_create(DTYPE_F64, &shape);
  v.tensor[old_m] = operand_create(DTYPE_F64, &shape);
  v.tensor[gradient] = operand_create(DTYPE_F64, &shape);
  memcpy(v.tensor[old].data, golden(file, c->name, "w", NULL), (size_t)n * sizeof(double));
  set_scalar(&v, lr, 0.02);
  set_scalar(&v, factor, 0.5); // of gradients that are twice as long
  set_scalar(&v, skip, 0);
  set_scalar(&v, step, 1);
  for (int i = 0; i < UPDATES; i++) {
    double *x = v.tensor[gradient].data;
    for (int64_t k = 0; k < n; k++) x[k] = 2 * golden(file, c->name, "g", NULL)[i * n + k];
    values_run(&v, 0, g->node.count, &(CallParameters){0});
    memcpy(v.tensor[old].data, v.tensor[new_w].data, (size_t)n * sizeof(double));
    memcpy(v.tensor[old_m].data, v.tensor[new_m].data, (size_t)n * sizeof(double));
  }
  expect(v.tensor[new_m].data, golden(file, c->name, "m", NULL), n, c->name, "momentum");
  expect(v.tensor[new_w].data, golden(file, c->name, "after", NULL), n, c->name, "w");
  operand_store(&v.tensor[skip], 0, 1); // nothing moves, whatever the gradient is
  operand_store(&v.tensor[gradient], 0, NAN);
  values_run(&v, 0, g->node.count, &(CallParameters){0});
  expect(v.tensor[new_m].data, golden(file, c->name, "m", NULL), n, c->name, "momentum after a skipped step");
  expect(v.tensor[new_w].data, golden(file, c->name, "after", NULL), n, c->name, "w after a skipped step");
  values_free(&v);
  graph_destroy(g);
}

static void four_steps_are_numpys(void **state) {
  Safetensors file;
  Error error = {0};
  assert_int_equal(safetensors_open(&file, TESTS_FOLDER "/op/golden/muon.safetensors", &error), PLAIT_OK);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) train(&file, &cases[i]);
  safetensors_close(&file);
}

// Parameters that are not a matrix of a layer's product have AdamW's node and moments.
static void all_else_is_adamws(void **state) {
  Graph *g = graph_create();
  Shape scalar = {0}, s = shape_of(2, (int64_t[]){5, 4}, (DimName[]){DIM_VOCAB, DIM_EMBED});
  int w = graph_variable(g, "w", VARIABLE_PARAMETER, DTYPE_F64, s, (Init){0}), in[5];
  for (int k = 0; k < 5; k++)
    in[k] = graph_input(g, (const char *[]){"g", "lr", "factor", "skip", "step"}[k], DTYPE_F64, k ? scalar : s);
  op_optimizer(g, OP_MUON, graph_read(g, w), in[0], in[1], in[2], in[3], in[4],
               &(OptimizerAttr){.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .momentum = 0.95});
  assert_true(g->node.count == 1 && g->node.data[0].op == OP_ADAMW);
  assert_true(graph_find_variable(g, "moment2.w") >= 0 && graph_find_variable(g, "momentum.w") < 0);
  graph_destroy(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(four_steps_are_numpys), cmocka_unit_test(all_else_is_adamws)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
