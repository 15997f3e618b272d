// OUTPUT: a copy for the host. Its samples are sharded like the data; every rank has all the rest, complete.
#include "op/build.h"

static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 1);
  Tensor x = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "", x.dtype, x.shape);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  uint32_t used = 0;
  char x[RULE_LETTERS], clauses[8 + 2 * RULE_LETTERS];
  const Shape *s = &graph_tensor(g, node->input[0])->shape;
  op_letters(g, node->input[0], &used, x);
  int at = snprintf(clauses, sizeof clauses, "; whole");
  for (int d = 0; d < s->rank; d++)
    if (s->dim[d] != DIM_BATCH) at += snprintf(clauses + at, sizeof clauses - (size_t)at, " %c", x[d]);
  op_rule(text, size, (const char *[]){x}, 1, (const char *[]){x}, 1, clauses);
}

static void reference(const KernelCall *call) {
  int64_t n = operand_elements(&call->input[0]);
  for (int64_t i = 0; i < n; i++) operand_store(&call->output[0], i, operand_load(&call->input[0], i));
}

const OpDef op_def_output = {
    .name = "output",
    .meaning = "x (…) → x, of which the host takes a copy",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .role = ROLE_OUTPUT,
};

int op_output(Graph *g, const char *name, int x) {
  int n = graph_node(g, OP_OUTPUT, name, &x, 1, NULL, 0);
  return g->node.data[n].output[0];
}
