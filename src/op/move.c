// MOVE: a copy between two spaces of a device, of which one has a Variable (Variable.space) and the other is that in
// which kernels read and write. A queue of copies does it while kernels run; there is no kernel for it.
#include "op/build.h"

static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 1);
  Tensor x = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "", x.dtype, x.shape);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "; linear 0");
}

static void reference(const KernelCall *call) {
  const Operand *x = &call->input[0], *y = &call->output[0];
  memmove(y->data, x->data, dtype_size(x->dtype) * (size_t)operand_elements(x));
}

const OpDef op_def_move = {
    .name = "move",
    .meaning = "x → x, in another space",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .role = ROLE_MOVE,
};

void op_to_move(Node *node) { node->op = OP_MOVE; }
