// CLIP: from the gradient's sum of squares, its norm, the clip factor and whether the step is skipped. All tensors, so
// that no host decides inside a step. A trial, a step whose learning rate is not a number, is skipped as well. Where
// the loss was scaled the factor also takes the scale out again.
#include "base/fault.h"
#include "op/build.h"
#include <math.h>

static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2 || node->ninput == 3);
  for (int k = 0; k < node->ninput; k++) CHECK(node->input[k] < 0 || graph_tensor(g, node->input[k])->shape.rank == 0);
  graph_output(g, node, "norm", DTYPE_F64, (Shape){.rank = 0});
  graph_output(g, node, "factor", DTYPE_F64, (Shape){.rank = 0});
  graph_output(g, node, "skip", DTYPE_F64, (Shape){.rank = 0});
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "");
}

static void reference(const KernelCall *call) {
  double scale = call->input[1].data ? operand_load(&call->input[1], 0) : 1;
  double norm = sqrt(operand_load(&call->input[0], 0)) / scale, limit = ((const ClipAttr *)call->attr)->max_norm;
  int trial = call->ninput == 3 && call->input[2].data && isnan(operand_load(&call->input[2], 0));
  int skip = FAULT(skip_is_blind, !isfinite(norm), 0) || FAULT(trial_is_applied, trial, 0);
  operand_store(&call->output[0], 0, norm);
  operand_store(&call->output[1], 0, skip ? 0 : (limit > 0 && norm > limit ? limit / norm : 1) / scale);
  operand_store(&call->output[2], 0, skip);
}

const OpDef op_def_clip = {
    .name = "clip",
    .meaning = "Σ g² (), loss_scale ()?, learning_rate ()? → norm () = √Σ / loss_scale, factor () = min(1, max_norm / "
               "norm) / loss_scale, "
               "skip () = norm is "
               "not finite, or the learning rate is not a number; fp64",
    .shape = shape,
    .rule = rule,
    .reference = reference,
};

void op_clip(Graph *g, const char *name, int sum_squares, int loss_scale, int rate, double max_norm, int *norm,
             int *factor, int *skip) {
  ClipAttr attr = {.max_norm = max_norm};
  int n = graph_node(g, OP_CLIP, name, (int[]){sum_squares, loss_scale, rate}, rate < 0 ? 2 : 3, &attr, sizeof attr);
  *norm = g->node.data[n].output[0];
  *factor = g->node.data[n].output[1];
  *skip = g->node.data[n].output[2];
}
