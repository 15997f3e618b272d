// CROSS_ENTROPY of given logits, with labels or with probabilities, and its gradient in the same node, as the
// seed of the gradient is known before. LINEAR_CROSS_ENTROPY never holds all logits, and can have them sharded.
#include "base/fault.h"
#include "op/build.h"
#include <math.h>

// logits (a…, v), target (a…) of integers or (a…, v) of probabilities, seed () → loss_sum () fp64, dlogits (a…, v)
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3 && node->input[2] >= 0);
  Tensor x = *graph_tensor(g, node->input[0]), target = *graph_tensor(g, node->input[1]);
  int labels = !dtype_is_float(target.dtype);
  CHECK(x.shape.rank >= 1 && target.shape.rank == x.shape.rank - labels, "%s: the rank of its target", node->name);
  for (int d = 0; d < target.shape.rank; d++) CHECK(x.shape.size[d] == target.shape.size[d], "%s", node->name);
  graph_output(g, node, "loss_sum", DTYPE_F64, (Shape){.rank = 0});
  graph_output(g, node, "dlogits", x.dtype, x.shape);
}

// Made with the loss. Targets are data: whoever builds the node sees to that.
static void gradient(Graph *g, int id, const int *doutput, int *dinput) {
  dinput[0] = g->node.data[id].output[1];
  dinput[1] = dinput[2] = -1;
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  char x[RULE_LETTERS], rows[RULE_LETTERS], clauses[] = "; whole ?";
  clauses[sizeof clauses - 2] = *op_row_letters(g, node->input[0], x, rows);
  int labels = !dtype_is_float(graph_tensor(g, node->input[1])->dtype);
  op_rule(text, size, (const char *[]){x, labels ? rows : x, ""}, 3, (const char *[]){"", x}, 2, clauses);
}

// The target's probability of class i in a row: of a label 1 or 0, of label -1 always 0.
static double target_of(const Operand *target, int64_t row, int64_t width, int64_t i) {
  if (dtype_is_float(target->dtype)) return operand_load(target, row * width + i);
  return (int64_t)operand_load(target, row) == i;
}

static void reference(const KernelCall *call) {
  const Operand *x = &call->input[0], *target = &call->input[1], *dx = &call->output[1];
  int64_t width = x->size[x->rank - 1], rows = operand_extent(x, 0, x->rank - 1);
  double total = 0, seed = operand_load(&call->input[2], 0);
  for (int64_t r = 0; r < rows; r++) {
    double maximum = -INFINITY, sum = 0, weight = 0;
    for (int64_t i = 0; i < width; i++) maximum = fmax(maximum, operand_load(x, r * width + i));
    for (int64_t i = 0; i < width; i++) sum += exp(operand_load(x, r * width + i) - maximum);
    double logsumexp = maximum + log(sum);
    for (int64_t i = 0; i < width; i++) {
      double t = target_of(target, r, width, i);
      weight += t;
      if (t != 0) total += t * (logsumexp - operand_load(x, r * width + i));
    }
    for (int64_t i = 0; i < width; i++) {
      double p = exp(operand_load(x, r * width + i) - logsumexp);
      operand_store(dx, r * width + i,
                    seed * (FAULT(missing_label_has_a_gradient, weight, 1) * p - target_of(target, r, width, i)));
    }
  }
  operand_store(&call->output[0], 0, total);
}

const OpDef op_def_cross_entropy = {
    .name = "cross_entropy",
    .meaning =
        "logits (a…, v), target (a…) labels or (a…, v) probabilities, seed () → Σ over labels >= 0 of -log "
        "softmax(logits)[label], or Σ -target log softmax(logits) () fp64, dlogits (a…, v) = seed · its gradient",
    .shape = shape,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
};

int op_cross_entropy(Graph *g, const char *name, int logits, int target, int seed) {
  int n = graph_node(g, OP_CROSS_ENTROPY, name, (int[]){logits, target, seed}, 3, NULL, 0);
  return g->node.data[n].output[0];
}
