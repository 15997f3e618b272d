// FILL: sets a Variable to a constant, e.g. gradient accumulators to 0 before a step.
#include "op/build.h"

static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 1);
  Tensor x = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "", x.dtype, x.shape);
}

// Zeros are also a partial sum of zeros; another constant is not.
static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, node_attr(node, FillAttr)->value == 0 ? "; linear 0" : "");
}

static void reference(const KernelCall *call) {
  const Operand *x = &call->output[0];
  int64_t n = operand_elements(x);
  double value = ((const FillAttr *)call->attr)->value;
  for (int64_t i = 0; i < n; i++) operand_store(x, i, value != 0 && operand_valid(x, i) ? value : 0);
}

static void work_of(const Operand *input, const Operand *output, const void *attr, OpWork *work) {
  work->read = work->vector = 0;
}

const OpDef op_def_fill = {
    .name = "fill",
    .meaning = "x → value everywhere (0 in padding); in place, x is not read",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .work = work_of,
    .in_place = 1,
    .role = ROLE_FILL,
};

int op_fill(Graph *g, const char *name, int variable, double value) {
  FillAttr attr = {.value = value};
  int x = graph_read(g, variable), n = graph_node(g, OP_FILL, name, &x, 1, &attr, sizeof attr);
  op_update(g, n, 0, 0);
  return g->node.data[n].output[0];
}
