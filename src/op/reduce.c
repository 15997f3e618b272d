// REDUCE: sum over the leading dims, e.g. the gradient of a bias.
#include "op/build.h"

// x (l…, n…) → (n…) with attr.dims dims l
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 1);
  Tensor x = *graph_tensor(g, node->input[0]);
  int lead = node_attr(node, ReduceAttr)->dims;
  CHECK(lead >= 0 && lead <= x.shape.rank);
  graph_output(g, node, "", op_statistics_dtype(x.dtype),
               shape_of(x.shape.rank - lead, x.shape.size + lead, x.shape.dim + lead));
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  uint32_t used = 0;
  char x[RULE_LETTERS];
  op_letters(g, node->input[0], &used, x);
  op_rule(text, size, (const char *[]){x}, 1, (const char *[]){x + node_attr(node, ReduceAttr)->dims}, 1, "; linear 0");
}

static void reference(const KernelCall *call) {
  const Operand *x = &call->input[0], *out = &call->output[0];
  int64_t width = operand_elements(out), rows = operand_extent(x, 0, x->rank - out->rank);
  for (int64_t i = 0; i < width; i++) {
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) sum += operand_load(x, r * width + i);
    operand_store(out, i, sum);
  }
}

const OpDef op_def_reduce = {
    .name = "reduce",
    .meaning = "x (l…, n…) → (n…): sum over l…",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .role = ROLE_ROW_SUM,
};

int op_reduce(Graph *g, const char *name, int x, int dims) {
  ReduceAttr attr = {.dims = dims};
  int n = graph_node(g, OP_REDUCE, name, &x, 1, &attr, sizeof attr);
  return g->node.data[n].output[0];
}
