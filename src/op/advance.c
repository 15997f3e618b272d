// ADVANCE: counts applied steps; a skipped step does not count.
#include "base/fault.h"
#include "op/build.h"

// step (), skip () → step
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  for (int k = 0; k < 2; k++) CHECK(graph_tensor(g, node->input[k])->shape.rank == 0);
  Tensor step = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "", step.dtype, step.shape);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "");
}

static void reference(const KernelCall *call) {
  int skip = operand_load(&call->input[1], 0) != 0;
  operand_store(&call->output[0], 0, operand_load(&call->input[0], 0) + FAULT(skip_advances_the_step, !skip, 1));
}

const OpDef op_def_advance = {
    .name = "advance",
    .meaning = "step (), skip () → step + 1, or step when skip; in place",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .in_place = 1,
};

int op_advance(Graph *g, const char *name, int step, int skip) {
  int input[] = {step, skip}, n = graph_node(g, OP_ADVANCE, name, input, 2, NULL, 0);
  op_update(g, n, 0, 0);
  return g->node.data[n].output[0];
}
