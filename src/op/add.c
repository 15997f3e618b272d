// ADD: sum of any number of tensors of one shape.
#include "op/build.h"

static void shape(Graph *g, Node *node) {
  CHECK(node->ninput >= 1);
  for (int k = 1; k < node->ninput; k++) CHECK(op_same_sizes(g, node->input[0], node->input[k]), "%s", node->name);
  Tensor x = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "", x.dtype, x.shape);
}

static void gradient(Graph *g, int id, const int *doutput, int *dinput) {
  for (int k = 0; k < g->node.data[id].ninput; k++) dinput[k] = doutput[0];
}

// Linear only when all inputs are partial together: a whole one would be added once a rank.
static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  size_t room = 16 + 8 * (size_t)node->ninput;
  char *clauses = xcalloc(room, 1);
  int n = snprintf(clauses, room, "; linear 0");
  for (int k = 1; k < node->ninput; k++) n += snprintf(clauses + n, room - (size_t)n, "+%d", k);
  op_rule_elementwise(g, node, text, size, clauses);
  free(clauses);
}

static void reference(const KernelCall *call) {
  int64_t n = operand_elements(&call->output[0]);
  for (int64_t i = 0; i < n; i++) {
    double sum = 0;
    for (int k = 0; k < call->ninput; k++) sum += operand_load(&call->input[k], i);
    operand_store(&call->output[0], i, sum);
  }
}

const OpDef op_def_add = {
    .name = "add",
    .meaning = "x0, x1, … of one shape → their sum; in place",
    .shape = shape,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
    .in_place = 1,
    .role = ROLE_ADD,
};

int op_add(Graph *g, const char *name, const int *x, int n) {
  int node = graph_node(g, OP_ADD, name, x, n, NULL, 0);
  return g->node.data[node].output[0];
}
