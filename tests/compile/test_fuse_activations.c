// Which products apply the activation that reads them, and which multiply by its slope, on small graphs: x (b s e), w
// (f e) → x wᵀ + bias → activation, and dy (b s e) → dy w₂ → slope.
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
  FORWARD_ONLY, // nobody reads the value before
  NO_BIAS,
  ERF_GELU,
  SILU,
  READ_EARLIER,  // by something that computes, between the two
  OTHER_PHASE,
  OTHER_STAGE,
  DY_READ_TWICE,
  ON_THE_CPU,
} Change;

static int input(Graph *g, const char *name, int rank, const int64_t *size, const DimName *dim) {
  return graph_input(g, name, DTYPE_BF16, shape_of(rank, size, dim));
}

static Graph *graph_with(Change change) {
  const int64_t narrow[] = {2, 3, 8}, up[] = {16, 8};
  const DimName tokens[] = {DIM_BATCH, DIM_SEQ, DIM_EMBED}, weight[] = {DIM_FFN, DIM_EMBED};
  Graph *g = graph_create();
  const ActivationKind kind = change == ERF_GELU ? ACTIVATION_GELU : change == SILU ? ACTIVATION_SILU
                                                                                    : ACTIVATION_GELU_TANH;
  const ActivationAttr attr = {kind};
  const MatmulAttr back = {.kind = MATMUL_NN, .m = 2, .n = 1, .k = 1};
  g->region = REGION_MICRO;
  int x = input(g, "x", 3, narrow, tokens), w = input(g, "w", 2, up, weight), dy = input(g, "dy", 3, narrow, tokens),
      w2 = input(g, "w2", 2, (int64_t[]){8, 16}, (DimName[]){DIM_EMBED, DIM_FFN}),
      bias = graph_input(g, "bias", DTYPE_F32, shape_of(1, (int64_t[]){16}, (DimName[]){DIM_FFN}));
  int before = op_matmul(g, "up", x, w, 1);
  if (change != NO_BIAS) before = op_bias(g, "up.bias", before, bias);
  if (change == READ_EARLIER) op_scale(g, "early", before, 2);
  if (change == OTHER_PHASE) g->phase = PHASE_BACKWARD;
  op_sum_squares(g, "forward", op_activation(g, "activation", before, kind));
  if (change == OTHER_STAGE)
    for (int i = 1 + (change != NO_BIAS); i < g->node.count; i++) g->node.data[i].stage = 1;
  g->phase = PHASE_BACKWARD;
  if (change != FORWARD_ONLY) {
    int n = graph_node(g, OP_MATMUL, "down.dx", (int[]){dy, w2}, 2, &back, sizeof back);
    int product = g->node.data[n].output[0];
    n = graph_node(g, OP_ACTIVATION_GRAD, "activation.dx", (int[]){before, product}, 2, &attr, sizeof attr);
    op_sum_squares(g, "backward", g->node.data[n].output[0]);
    if (change == DY_READ_TWICE) op_sum_squares(g, "again", product);
  }
  const Placement *whole = placement_new(g, &(Placement){.rank = 3});
  for (int i = 0; i < g->tensor.count; i++) g->tensor.data[i].placement = whole;
  return g;
}

static const Node *node_of(const Graph *g, Op op) {
  for (int i = 0; i < g->node.count; i++)
    if (g->node.data[i].op == op) return &g->node.data[i];
  return NULL;
}

static void products_apply_what_reads_them(void **state) {
  // outputs of the product with its activation (0: there is none), inputs, and whether there is one with a slope
  static const struct { Change change; int outputs, inputs, slope; } rows[] = {
      {AS_IT_IS, 2, 3, 1},     {FORWARD_ONLY, 1, 3, 0}, {NO_BIAS, 2, 2, 1},     {ERF_GELU, 0, 0, 0},
      {SILU, 0, 0, 0},         {READ_EARLIER, 0, 0, 1}, {OTHER_PHASE, 0, 0, 1}, {OTHER_STAGE, 0, 0, 1},
      {DY_READ_TWICE, 2, 3, 0}, {ON_THE_CPU, 0, 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Error error = {0};
    Graph *g = graph_with(rows[i].change);
    CompileOptions o = {.device = rows[i].change == ON_THE_CPU ? device_cpu() : device_cuda()};
    if (pass_fuse(&g, &o, &error)) fail_msg("%s", error.message);
    if (graph_verify(g, "fuse", &error)) fail_msg("graph %zu: %s", i, error.message);
    const Node *up = node_of(g, OP_MATMUL_ACTIVATION), *down = node_of(g, OP_MATMUL_ACTIVATION_GRAD);
    if ((up ? up->noutput : 0) != rows[i].outputs || (up ? up->ninput : 0) != rows[i].inputs || !down != !rows[i].slope)
      fail_msg("graph %zu: %d outputs, %d inputs, %d", i, up ? up->noutput : 0, up ? up->ninput : 0, down != NULL);
    assert_int_equal(!up, node_of(g, OP_ACTIVATION) != NULL);
    if (up) { // the sum of squares reads the one, and the slope the other
      assert_int_equal(node_of(g, OP_SUM_SQUARES)->input[0], up->output[0]);
      assert_int_equal(node_attr(up, MatmulActivationAttr)->keeps, up->noutput == 2);
      assert_int_equal(node_attr(up, MatmulActivationAttr)->product.bias, up->ninput == 3);
    }
    if (up && down) assert_int_equal(down->input[2], up->output[1]);
    graph_destroy(g);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(products_apply_what_reads_them)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
