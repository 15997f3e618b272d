// SQUARED_ERROR: the loss of regressions and its gradient in one node, as the seed of the gradient is known before.
#include "op/build.h"

// y (a…), target (a…), seed () → loss_sum () fp64, dy (a…)
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3 && node->input[2] >= 0 && op_same_sizes(g, node->input[0], node->input[1]), "%s", node->name);
  Tensor y = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "loss_sum", DTYPE_F64, (Shape){.rank = 0});
  graph_output(g, node, "dy", y.dtype, y.shape);
}

// Made with the loss; the target's is the opposite, for those who need one.
static void gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  dinput[0] = node.output[1];
  dinput[1] =
      op_cast(g, op_derived_name(g, &node, "dtarget.cast"), node.output[1], graph_tensor(g, node.input[1])->dtype);
  dinput[1] = op_scale(g, op_derived_name(g, &node, "dtarget"), dinput[1], -1);
  dinput[2] = -1;
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  uint32_t used = 0;
  char y[RULE_LETTERS];
  op_letters(g, node->input[0], &used, y);
  op_rule(text, size, (const char *[]){y, y, ""}, 3, (const char *[]){"", y}, 2, "");
}

static void reference(const KernelCall *call) {
  const Operand *y = &call->input[0], *target = &call->input[1];
  int64_t n = operand_elements(y);
  double sum = 0, seed = operand_load(&call->input[2], 0);
  for (int64_t i = 0; i < n; i++) {
    double difference = operand_valid(y, i) ? operand_load(y, i) - operand_load(target, i) : 0;
    sum += difference * difference;
    operand_store(&call->output[1], i, 2 * seed * difference);
  }
  operand_store(&call->output[0], 0, sum);
}

const OpDef op_def_squared_error = {
    .name = "squared_error",
    .meaning = "y (a…), target (a…), seed () → Σ (y - target)² () fp64, dy (a…) = 2 seed (y - target)",
    .shape = shape,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
};

int op_squared_error(Graph *g, const char *name, int y, int target, int seed) {
  int n = graph_node(g, OP_SQUARED_ERROR, name, (int[]){y, target, seed}, 3, NULL, 0);
  return g->node.data[n].output[0];
}
