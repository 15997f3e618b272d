// ADAMW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019), in the order of PyTorch's update.
#include "op/build.h"
#include <math.h>

// w, m, v, g of one shape, lr (), factor (), skip (), step () → w, m, v
static void shape(Graph *g, Node *node) {
  static const char *const suffix[] = {"w", "m", "v"};
  CHECK(node->ninput == 8);
  for (int k = 1; k < 4; k++) CHECK(op_same_sizes(g, node->input[0], node->input[k]), "%s", node->name);
  for (int k = 4; k < 8; k++) CHECK(graph_tensor(g, node->input[k])->shape.rank == 0);
  for (int k = 0; k < 3; k++) {
    Tensor x = *graph_tensor(g, node->input[k]);
    graph_output(g, node, suffix[k], x.dtype, x.shape);
  }
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "");
}

static void reference(const KernelCall *call) {
  const Operand *in = call->input, *out = call->output;
  const AdamwAttr *attr = call->attr;
  double lr = operand_load(&in[4], 0), factor = operand_load(&in[5], 0), step = operand_load(&in[7], 0);
  int skip = operand_load(&in[6], 0) != 0;
  double correction1 = 1 - pow(attr->beta1, step), correction2 = sqrt(1 - pow(attr->beta2, step));
  int64_t n = operand_elements(&in[0]);
  for (int64_t i = 0; i < n; i++) {
    double w = operand_load(&in[0], i), m = operand_load(&in[1], i), v = operand_load(&in[2], i);
    if (!skip) {
      double g = operand_load(&in[3], i) * factor;
      m = attr->beta1 * m + (1 - attr->beta1) * g;
      v = attr->beta2 * v + (1 - attr->beta2) * g * g;
      w -= lr * attr->decay * w;
      w -= lr / correction1 * m / (sqrt(v) / correction2 + attr->epsilon);
    }
    operand_store(&out[0], i, w);
    operand_store(&out[1], i, m);
    operand_store(&out[2], i, v);
  }
}

const OpDef op_def_adamw = {
    .name = "adamw",
    .meaning = "w, m, v, g, lr (), factor (), skip (), step () → w, m, v after one step with gradient factor g; unchanged when "
               "skip; in place",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .in_place = 3,
};

void op_adamw(Graph *g, const char *name, int w, int m, int v, int gradient, int lr, int factor, int skip, int step,
              const AdamwAttr *attr) {
  int input[] = {w, m, v, gradient, lr, factor, skip, step};
  int n = graph_node(g, OP_ADAMW, name, input, 8, attr, sizeof *attr);
  for (int k = 0; k < 3; k++) op_update(g, n, k, k);
}
