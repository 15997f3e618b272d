// SGD with optional momentum and (coupled) weight decay, in the order of PyTorch's update.
#include "op/build.h"

// w, momentum or -1, g of one shape, lr (), factor (), skip () → w, momentum when it is there
static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 6 && op_same_sizes(g, node->input[0], node->input[2]));
  CHECK(node->input[1] < 0 || op_same_sizes(g, node->input[0], node->input[1]));
  for (int k = 3; k < 6; k++) CHECK(graph_tensor(g, node->input[k])->shape.rank == 0);
  for (int k = 0; k < 2; k++) {
    if (node->input[k] < 0) continue;
    Tensor x = *graph_tensor(g, node->input[k]);
    graph_output(g, node, k ? "momentum" : "w", x.dtype, x.shape);
  }
}

static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "");
}

static void reference(const KernelCall *call) {
  const Operand *in = call->input, *out = call->output;
  const SgdAttr *attr = call->attr;
  double lr = operand_load(&in[3], 0), factor = operand_load(&in[4], 0);
  int skip = operand_load(&in[5], 0) != 0, momentum = in[1].data != NULL;
  int64_t n = operand_elements(&in[0]);
  for (int64_t i = 0; i < n; i++) {
    double w = operand_load(&in[0], i), m = momentum ? operand_load(&in[1], i) : 0;
    if (!skip) {
      double g = operand_load(&in[2], i) * factor + attr->decay * w;
      m = momentum ? attr->momentum * m + g : g;
      w -= lr * m;
    }
    operand_store(&out[0], i, w);
    if (momentum) operand_store(&out[1], i, m);
  }
}

const OpDef op_def_sgd = {
    .name = "sgd",
    .meaning = "w, m?, g, lr (), factor (), skip () → m = momentum m + factor g + decay w, w - lr m; unchanged when skip; in place",
    .shape = shape,
    .rule = rule,
    .reference = reference,
    .in_place = 2,
};

void op_sgd(Graph *g, const char *name, int w, int momentum, int gradient, int lr, int factor, int skip, const SgdAttr *attr) {
  int input[] = {w, momentum, gradient, lr, factor, skip};
  int n = graph_node(g, OP_SGD, name, input, 6, attr, sizeof *attr);
  for (int k = 0; k < 1 + (momentum >= 0); k++) op_update(g, n, k, k);
}
