// Which gradients of norms sum the rows of what they give, for the bias before, on a small graph: x, dy, residual
// (b s e) → layer_norm_grad → + residual → reduce.
#include "op/build.h"
#include "compile/pass.h"
#include "compile/verify.h"
#include "device/device.h"
#include "compile/place_node.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

typedef enum Change {
  AS_IT_IS,
  NO_RESIDUAL,   // nothing is added to the gradient
  RESIDUAL_ALONE, // what is summed is not what a norm's gradient gives
  TWO_SUMS,
  PART_OF_DIMS, // the sum keeps two dims
  OTHER_PHASE,
  OTHER_STAGE,
  ON_THE_CPU,
} Change;

static Graph *graph_with(Change change) {
  const int64_t size[] = {2, 3, 8};
  const DimName dim[] = {DIM_BATCH, DIM_SEQ, DIM_EMBED};
  const Shape rows = shape_of(3, size, dim), statistics = shape_of(2, size, dim),
              vector = shape_of(1, size + 2, dim + 2);
  const NormAttr attr = {.epsilon = 1e-5, .bias = 1};
  Graph *g = graph_create();
  g->region = REGION_MICRO;
  g->phase = PHASE_BACKWARD;
  int residual = graph_input(g, "residual", DTYPE_BF16, rows);
  residual = op_scale(g, "scaled", residual, 2);
  int input[] = {graph_input(g, "dy", DTYPE_BF16, rows), graph_input(g, "x", DTYPE_BF16, rows),
                 graph_input(g, "gain", DTYPE_F32, vector), graph_input(g, "mean", DTYPE_F32, statistics),
                 graph_input(g, "rstd", DTYPE_F32, statistics)};
  int n = graph_node(g, OP_LAYER_NORM_GRAD, "norm.gradient", input, 5, &attr, sizeof attr);
  int dx = g->node.data[n].output[0];
  if (change != NO_RESIDUAL) dx = op_add(g, "sum", (int[]){residual, dx}, 2);
  if (change == OTHER_PHASE) g->phase = PHASE_FORWARD;
  const int summed = change == RESIDUAL_ALONE ? residual : dx, from = g->node.count;
  op_sum_squares(g, "use", op_reduce(g, "bias.gradient", summed, change == PART_OF_DIMS ? 1 : 2));
  if (change == TWO_SUMS) op_sum_squares(g, "use again", op_reduce(g, "again", summed, 2));
  op_sum_squares(g, "of dx", dx);
  for (int i = from; i < g->node.count && change == OTHER_STAGE; i++) g->node.data[i].stage = 1;
  for (int i = 0; i < g->tensor.count; i++)
    g->tensor.data[i].placement = placement_new(g, &(Placement){.rank = g->tensor.data[i].shape.rank});
  return g;
}

static const Node *node_of(const Graph *g, const char *name) {
  for (int i = 0; i < g->node.count; i++)
    if (!strcmp(g->node.data[i].name, name)) return &g->node.data[i];
  return NULL;
}

static int count_of(const Graph *g, Op op) {
  int count = 0;
  for (int i = 0; i < g->node.count; i++) count += g->node.data[i].op == op;
  return count;
}

static void gradients_of_norms_sum_their_rows(void **state) {
  // outputs of the gradient, and nodes that sum
  static const struct { Change change; int outputs, sums; } rows[] = {
      {AS_IT_IS, 4, 0},     {NO_RESIDUAL, 4, 0}, {RESIDUAL_ALONE, 3, 1}, {TWO_SUMS, 4, 1},
      {PART_OF_DIMS, 3, 1}, {OTHER_PHASE, 3, 1}, {OTHER_STAGE, 3, 1},    {ON_THE_CPU, 3, 1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Error error = {0};
    Graph *g = graph_with(rows[i].change);
    CompileOptions o = {.device = rows[i].change == ON_THE_CPU ? device_cpu() : device_cuda()};
    if (pass_fuse(&g, &o, &error)) fail_msg("%s", error.message);
    if (graph_verify(g, "fuse", &error)) fail_msg("graph %zu: %s", i, error.message);
    const Node *gradient = node_of(g, "norm.gradient"), *use = node_of(g, "use");
    if (gradient->noutput != rows[i].outputs || count_of(g, OP_REDUCE) != rows[i].sums)
      fail_msg("graph %zu: %d outputs, %d sums", i, gradient->noutput, count_of(g, OP_REDUCE));
    assert_int_equal(node_attr(gradient, NormAttr)->row_sum, gradient->noutput == 4);
    if (gradient->noutput == 4) assert_int_equal(use->input[0], gradient->output[3]);
    graph_destroy(g);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_of_norms_sum_their_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
