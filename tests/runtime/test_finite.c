// tier 1; threads numbers
// The search for values that are not finite: in every dtype, padding apart, and which of several ranks' was first.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "op/build.h"
#include "runtime/finite.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void finds_in_every_dtype(void **state) {
  static const Dtype dtypes[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16, DTYPE_F16};
  double memory[8], value;
  for (int d = 0; d < 4; d++) {
    Operand x = {.data = memory, .dtype = dtypes[d], .rank = 1, .size = {7}, .map = {index_whole(7)}};
    for (int bad = -1; bad < 7; bad++)
      for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < 7; i++) operand_store(&x, i, i % 2 ? -6e4 : 0);
        if (bad >= 0) operand_store(&x, bad, kind == 0 ? NAN : kind == 1 ? INFINITY : -INFINITY);
        assert_int_equal(finite_first_not(NULL, &x, 0, &value), bad);
        assert_int_equal(finite_first_not(NULL, &x, 1, &value), kind == 2 ? -1 : bad);
      }
  }
  int32_t ids[3] = {-1, 0x7f800000, 5}; // the bits of an infinity mean nothing in integers
  assert_int_equal(
      finite_first_not(NULL,
                       &(Operand){.data = ids, .dtype = DTYPE_I32, .rank = 1, .size = {3}, .map = {index_whole(3)}}, 0,
                       &value),
      -1);
  assert_int_equal(finite_first_not(NULL, &(Operand){.dtype = DTYPE_F32, .rank = 1, .size = {3}}, 0, &value), -1);
}

static void padding_is_passed_over(void **state) {
  float x[12];
  double value;
  for (int i = 0; i < 12; i++) x[i] = i % 4 == 3 ? NAN : 1;
  Operand o = {.data = x,
               .dtype = DTYPE_F32,
               .rank = 2,
               .size = {3, 4},
               .map = {index_whole(3), {.local = 4, .valid = 3, .global = 7, .runs = 1}}};
  assert_int_equal(finite_first_not(NULL, &o, 0, &value), -1);
  x[6] = INFINITY;
  assert_int_equal(finite_first_not(NULL, &o, 0, &value), 6);
}

static void order_of_findings(void **state) {
  Graph *g = graph_create();
  Shape s = shape_of(1, (int64_t[]){4}, (DimName[]){DIM_EMBED});
  g->region = REGION_MICRO;
  int x = graph_input(g, "x", DTYPE_F32, s), a = op_scale(g, "a", x, 2), b = op_scale(g, "b", a, 2);
  g->region = REGION_END;
  int c = op_sum_squares(g, "c", b);
  int na = graph_tensor(g, a)->producer, nb = graph_tensor(g, b)->producer, nc = graph_tensor(g, c)->producer;
  NonFinite list[] = {// from first to last
                      {.found = 1, .rank = 3, .node = na, .variable = 0},
                      {.found = 1, .rank = 1, .node = na, .variable = -1},
                      {.found = 1, .rank = 2, .node = na, .variable = -1},
                      {.found = 1, .rank = 0, .node = nb, .variable = -1},
                      {.found = 1, .rank = 0, .node = na, .microbatch = 1, .variable = -1},
                      {.found = 1, .rank = 0, .node = nc, .variable = -1},
                      {.found = 0}};
  for (int i = 0; i < 7; i++)
    for (int k = 0; k < 7; k++) assert_int_equal(finite_before(g, &list[i], &list[k]), i < k);
  g->node.data[nb].phase = PHASE_BACKWARD;
  assert_int_equal(finite_is_gradient(g, &list[1]), 0);
  assert_int_equal(finite_is_gradient(g, &list[3]), 1);
  assert_int_equal(finite_is_gradient(g, &list[5]), 1);
  char text[200];
  Mesh mesh = mesh_create(2, (const char *[]){"dp", "tp"}, (int[]){2, 2});
  list[0].value = INFINITY;
  g->node.data[na].layer = 0;
  g->layers = 2;
  graph_variable(g, "weight", VARIABLE_PARAMETER, DTYPE_F32, s, (Init){0});
  finite_describe(g, &mesh, &list[0], text, sizeof text);
  assert_string_equal(text,
                      "layer 0, scale a, forward of microbatch 0, rank 3 (dp 1, tp 1): infinite, as weight is already");
  for (size_t n = 1; n < sizeof text; n++) finite_describe(g, &mesh, &list[0], text, n); // never past the end
  graph_destroy(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(finds_in_every_dtype), cmocka_unit_test(padding_is_passed_over),
                                     cmocka_unit_test(order_of_findings)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
