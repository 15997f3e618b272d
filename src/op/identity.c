// IDENTITY: a copy; gives a value its own memory where a pass needs it.
#include "op/build.h"

static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 1);
  Tensor x = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "", x.dtype, x.shape);
}

static void gradient(Graph *g, int id, const int *doutput, int *dinput) { dinput[0] = doutput[0]; }

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "; linear 0");
}

static void reference(const KernelCall *call) {
  const Operand *x = &call->input[0], *y = &call->output[0];
  size_t bytes = dtype_size(x->dtype) * (size_t)operand_elements(x);
  if (x->data != y->data) memmove(y->data, x->data, bytes);
}

const OpDef op_def_identity = {
    .name = "identity",
    .meaning = "x → x; in place",
    .shape = shape,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
    .in_place = 1,
    .role = ROLE_COPY,
};

int op_identity(Graph *g, const char *name, int x) {
  int n = graph_node(g, OP_IDENTITY, name, &x, 1, NULL, 0);
  return g->node.data[n].output[0];
}
