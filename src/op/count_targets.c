// COUNT_TARGETS: how many positions have a target. Done once a step over the whole global batch.
#include "base/fault.h"
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
  const Operand *targets = &call->input[0];
  int64_t n = operand_elements(targets), count = 0;
  for (int64_t i = 0; i < n; i++)
    count += operand_valid(targets, i) && operand_load(targets, i) >= FAULT(mask_targets_count, 0, -1);
  operand_store(&call->output[0], 0, (double)count);
}

const OpDef op_def_count_targets = {
    .name = "count_targets",
    .meaning = "targets (…) → count () fp64 of targets >= 0",
    .shape = shape,
    .rule = rule,
    .reference = reference,
};

int op_count_targets(Graph *g, const char *name, int targets) {
  int n = graph_node(g, OP_COUNT_TARGETS, name, &targets, 1, NULL, 0);
  return g->node.data[n].output[0];
}
