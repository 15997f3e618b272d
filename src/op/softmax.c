// SOFTMAX over the last dim, and its gradient.
#include "base/fault.h"
#include "op/build.h"
#include <math.h>

static void forward_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 1);
  Tensor x = *graph_tensor(g, node->input[0]);
  CHECK(x.shape.rank >= 1, "softmax of %s needs a dim", node->name);
  graph_output(g, node, "", x.dtype, x.shape);
}

static void forward_gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  dinput[0] = -1;
  if (doutput[0] < 0) return;
  int input[] = {node.output[0], doutput[0]};
  int n = graph_node(g, OP_SOFTMAX_GRAD, op_derived_name(g, &node, "gradient"), input, 2, NULL, 0);
  dinput[0] = g->node.data[n].output[0];
}

// All operands have the letters of x; the last dim is whole.
static void write_rule(const Graph *g, const Node *node, const char *linear, char *text, size_t size) {
  char x[RULE_LETTERS], rows[RULE_LETTERS], clauses[32];
  const char *last = op_row_letters(g, node->input[0], x, rows);
  snprintf(clauses, sizeof clauses, "%s; whole %c", linear, *last);
  op_rule(text, size, (const char *[]){x, x}, node->ninput, (const char *[]){x}, 1, clauses);
}

static void forward_rule(const Graph *g, const Node *node, char *text, size_t size) {
  write_rule(g, node, "", text, size);
}

static void forward_reference(const KernelCall *call) {
  const Operand *x = &call->input[0], *y = &call->output[0];
  int64_t width = x->size[x->rank - 1], rows = operand_extent(x, 0, x->rank - 1);
  for (int64_t r = 0; r < rows; r++) {
    double maximum = -INFINITY, sum = 0;
    for (int64_t i = 0; i < width; i++) maximum = fmax(maximum, operand_load(x, r * width + i));
    for (int64_t i = 0; i < width; i++) sum += exp(operand_load(x, r * width + i) - maximum);
    for (int64_t i = 0; i < width; i++)
      operand_store(y, r * width + i, exp(operand_load(x, r * width + i) - maximum) / sum);
  }
}

const OpDef op_def_softmax = {
    .name = "softmax",
    .meaning = "x (…, e) → exp(x) / Σ exp(x) over e",
    .shape = forward_shape,
    .gradient = forward_gradient,
    .rule = forward_rule,
    .reference = forward_reference,
};

// y, dy (…, e) → dx (…, e)
static void grad_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2 && op_same_sizes(g, node->input[0], node->input[1]));
  Tensor y = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "", y.dtype, y.shape);
}

static void grad_rule(const Graph *g, const Node *node, char *text, size_t size) {
  write_rule(g, node, "; linear 1 ", text, size);
}

static void grad_reference(const KernelCall *call) {
  const Operand *y = &call->input[0], *dy = &call->input[1], *dx = &call->output[0];
  int64_t width = y->size[y->rank - 1], rows = operand_extent(y, 0, y->rank - 1);
  for (int64_t r = 0; r < rows; r++) {
    double dot = 0;
    for (int64_t i = r * width; i < (r + 1) * width; i++) dot += operand_load(y, i) * operand_load(dy, i);
    for (int64_t i = r * width; i < (r + 1) * width; i++)
      operand_store(dx, i, operand_load(y, i) * (operand_load(dy, i) - FAULT(softmax_gradient, dot, 0)));
  }
}

const OpDef op_def_softmax_grad = {
    .name = "softmax_grad",
    .meaning = "y, dy (…, e) → dx = y (dy - Σ y dy)",
    .shape = grad_shape,
    .rule = grad_rule,
    .reference = grad_reference,
};

int op_softmax(Graph *g, const char *name, int x) {
  int n = graph_node(g, OP_SOFTMAX, name, &x, 1, NULL, 0);
  return g->node.data[n].output[0];
}
