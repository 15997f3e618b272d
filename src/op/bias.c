// BIAS: adds a vector over the trailing dims. Separate from products until `fuse`, so that a partial sum never gets it.
#include "base/fault.h"
#include "op/build.h"

// x (…, n…), bias (n…) → (…, n…)
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  Tensor x = *graph_tensor(g, node->input[0]), b = *graph_tensor(g, node->input[1]);
  int lead = x.shape.rank - b.shape.rank;
  CHECK(lead >= 0);
  for (int i = 0; i < b.shape.rank; i++) CHECK(x.shape.size[lead + i] == b.shape.size[i], "bias of %s", node->name);
  graph_output(g, node, "", x.dtype, x.shape);
}

static void gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  dinput[0] = doutput[0];
  dinput[1] = -1;
  if (doutput[0] < 0) return;
  int lead = graph_tensor(g, node.input[0])->shape.rank - graph_tensor(g, node.input[1])->shape.rank;
  UNLESS_FAULT(bias_gradient) dinput[1] = op_reduce(g, op_derived_name(g, &node, "dbias"), doutput[0], lead);
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  uint32_t used = 0;
  char x[RULE_LETTERS];
  op_letters(g, node->input[0], &used, x);
  int lead = graph_tensor(g, node->input[0])->shape.rank - graph_tensor(g, node->input[1])->shape.rank;
  op_rule(text, size, (const char *[]){x, x + lead}, 2, (const char *[]){x}, 1,
          FAULT(bias_in_a_partial_sum, "", "; linear 0"));
}

static void reference(const KernelCall *call) {
  const Operand *x = &call->input[0], *b = &call->input[1];
  int64_t n = operand_elements(x), width = operand_elements(b);
  for (int64_t i = 0; i < n; i++) operand_store(&call->output[0], i, operand_load(x, i) + operand_load(b, i % width));
}

const OpDef op_def_bias = {
    .name = "bias",
    .meaning = "x (…, n…), b (n…) → x + b; in place",
    .shape = shape,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
    .in_place = 1,
    .role = ROLE_BIAS,
    .defers_sum = 1,
};

int op_bias(Graph *g, const char *name, int x, int bias) {
  int n = graph_node(g, OP_BIAS, name, (int[]){x, bias}, 2, NULL, 0);
  return g->node.data[n].output[0];
}
