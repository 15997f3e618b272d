// SUM_SQUARES: one term of the global gradient norm.
#include "op/build.h"

static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 1);
  graph_output(g, node, "", DTYPE_F64, (Shape){.rank = 0});
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  uint32_t used = 0;
  char x[RULE_LETTERS];
  op_letters(g, node->input[0], &used, x);
  op_rule(text, size, (const char *[]){x}, 1, (const char *[]){""}, 1, "");
}

static void reference(const KernelCall *call) {
  const Operand *x = &call->input[0];
  int64_t n = operand_elements(x);
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    if (operand_valid(x, i)) sum += operand_load(x, i) * operand_load(x, i);
  operand_store(&call->output[0], 0, sum);
}

const OpDef op_def_sum_squares = {
    .name = "sum_squares",
    .meaning = "x (…) → Σ x² () fp64",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .role = ROLE_NORM_TERM,
};

int op_sum_squares(Graph *g, const char *name, int x) {
  int n = graph_node(g, OP_SUM_SQUARES, name, &x, 1, NULL, 0);
  return g->node.data[n].output[0];
}
