// MUL: elementwise product of two tensors of one shape.
#include "op/build.h"

static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2 && op_same_sizes(g, node->input[0], node->input[1]));
  Tensor x = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "", x.dtype, x.shape);
}

static void gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  dinput[0] = dinput[1] = -1;
  if (doutput[0] < 0) return;
  dinput[0] = op_mul(g, op_derived_name(g, &node, "da"), doutput[0], node.input[1]);
  dinput[1] = op_mul(g, op_derived_name(g, &node, "db"), doutput[0], node.input[0]);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "; linear 0 1");
}

static void reference(const KernelCall *call) {
  int64_t n = operand_elements(&call->output[0]);
  for (int64_t i = 0; i < n; i++)
    operand_store(&call->output[0], i, operand_load(&call->input[0], i) * operand_load(&call->input[1], i));
}

const OpDef op_def_mul = {
    .name = "mul",
    .meaning = "a, b of one shape → a b; in place",
    .shape = shape,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
    .in_place = 1,
};

int op_mul(Graph *g, const char *name, int a, int b) {
  int n = graph_node(g, OP_MUL, name, (int[]){a, b}, 2, NULL, 0);
  return g->node.data[n].output[0];
}
