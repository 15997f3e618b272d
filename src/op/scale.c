// SCALE: product with a constant.
#include "op/build.h"

static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 1);
  Tensor x = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "", x.dtype, x.shape);
}

static void gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  dinput[0] = -1;
  if (doutput[0] < 0) return;
  dinput[0] = op_scale(g, op_derived_name(g, &node, "dx"), doutput[0], node_attr(&node, ScaleAttr)->factor);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "; linear 0");
}

static void reference(const KernelCall *call) {
  int64_t n = operand_elements(&call->output[0]);
  double factor = ((const ScaleAttr *)call->attr)->factor;
  for (int64_t i = 0; i < n; i++) operand_store(&call->output[0], i, factor * operand_load(&call->input[0], i));
}

const OpDef op_def_scale = {
    .name = "scale",
    .meaning = "x → factor x; in place",
    .shape = shape,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
    .in_place = 1,
};

int op_scale(Graph *g, const char *name, int x, double factor) {
  ScaleAttr attr = {.factor = factor};
  int n = graph_node(g, OP_SCALE, name, &x, 1, &attr, sizeof attr);
  return g->node.data[n].output[0];
}
