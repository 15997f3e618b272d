// ACCUMULATE: adds into a Variable.
#include "op/build.h"

// accumulator, x of one shape → accumulator
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2 && op_same_sizes(g, node->input[0], node->input[1]), "%s", node->name);
  Tensor x = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "", x.dtype, x.shape);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "; linear 0+1");
}

static void reference(const KernelCall *call) {
  int64_t n = operand_elements(&call->output[0]);
  int add = call->input[0].data != NULL;
  for (int64_t i = 0; i < n; i++)
    operand_store(&call->output[0], i, (add ? operand_load(&call->input[0], i) : 0) + operand_load(&call->input[1], i));
}

const OpDef op_def_accumulate = {
    .name = "accumulate",
    .meaning = "a, x → a + x in the dtype of a; in place; without a: x",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .in_place = 1,
    .role = ROLE_ACCUMULATE,
};

int op_accumulate(Graph *g, const char *name, int accumulator, int x) {
  int input[] = {accumulator, x}, n = graph_node(g, OP_ACCUMULATE, name, input, 2, NULL, 0);
  op_update(g, n, 0, 0);
  return g->node.data[n].output[0];
}
