// GRADIENT_SEED and MEAN_LOSS: both divide by the number of target tokens of the whole step.
#include "op/build.h"
#include <math.h>

static void two_scalars_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  for (int k = 0; k < 2; k++) CHECK(node->input[k] < 0 || graph_tensor(g, node->input[k])->shape.rank == 0);
  graph_output(g, node, "", DTYPE_F64, (Shape){.rank = 0});
}

static void seed_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "");
}

static void seed_reference(const KernelCall *call) {
  const Operand *scale = &call->input[1];
  double count = operand_load(&call->input[0], 0);
  operand_store(&call->output[0], 0, (scale->data ? operand_load(scale, 0) : 1) / fmax(count, 1));
}

const OpDef op_def_gradient_seed = {
    .name = "gradient_seed",
    .meaning = "count (), loss_scale ()? → loss_scale / max(count, 1) () fp64",
    .shape = two_scalars_shape,
    .rule = seed_rule,
    .reference = seed_reference,
};

static void mean_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "; linear 0");
}

static void mean_reference(const KernelCall *call) {
  operand_store(&call->output[0], 0, operand_load(&call->input[0], 0) / fmax(operand_load(&call->input[1], 0), 1));
}

const OpDef op_def_mean_loss = {
    .name = "mean_loss",
    .meaning = "loss_sum (), count () → loss_sum / max(count, 1) () fp64",
    .shape = two_scalars_shape,
    .rule = mean_rule,
    .reference = mean_reference,
};

int op_gradient_seed(Graph *g, const char *name, int count, int loss_scale) {
  int n = graph_node(g, OP_GRADIENT_SEED, name, (int[]){count, loss_scale}, 2, NULL, 0);
  return g->node.data[n].output[0];
}

int op_mean_loss(Graph *g, const char *name, int loss_sum, int count) {
  int n = graph_node(g, OP_MEAN_LOSS, name, (int[]){loss_sum, count}, 2, NULL, 0);
  return g->node.data[n].output[0];
}
