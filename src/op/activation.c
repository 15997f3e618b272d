// ACTIVATION and GATED (activation of a gate times a linear part: Shazeer, "GLU Variants Improve Transformer", 2020),
// with their gradients.
#include "op/build.h"
#include "op/formula.h"

static int kind_of(const void *attr) { return ((const ActivationAttr *)attr)->kind; }

// All inputs of one shape → `noutput` outputs of that shape.
static void same_shape(Graph *g, Node *node, int ninput, const char *const *suffix, int noutput) {
  CHECK(node->ninput == ninput);
  for (int k = 1; k < ninput; k++) CHECK(op_same_sizes(g, node->input[0], node->input[k]), "%s", node->name);
  Tensor x = *graph_tensor(g, node->input[0]);
  for (int k = 0; k < noutput; k++) graph_output(g, node, suffix[k], x.dtype, x.shape);
}

static void activation_shape(Graph *g, Node *node) { same_shape(g, node, 1, (const char *[]){""}, 1); }

static void activation_gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  dinput[0] = -1;
  if (doutput[0] < 0) return;
  int input[] = {node.input[0], doutput[0]};
  int n =
      graph_node(g, OP_ACTIVATION_GRAD, op_derived_name(g, &node, "dx"), input, 2, node.attr, sizeof(ActivationAttr));
  dinput[0] = g->node.data[n].output[0];
}

static void no_linear_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "");
}

static void linear_1_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "; linear 1");
}

static void linear_2_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule_elementwise(g, node, text, size, "; linear 2");
}

static void activation_reference(const KernelCall *call) {
  int64_t n = operand_elements(&call->input[0]);
  for (int64_t i = 0; i < n; i++)
    operand_store(&call->output[0], i, activation_value(kind_of(call->attr), operand_load(&call->input[0], i)));
}

const OpDef op_def_activation = {
    .name = "activation",
    .meaning = "x → act(x): gelu, gelu_tanh, silu, relu or sigmoid",
    .shape = activation_shape,
    .gradient = activation_gradient,
    .rule = no_linear_rule,
    .reference = activation_reference,
    .one_pass = 1,
    .in_place = 1,
};

static void activation_grad_shape(Graph *g, Node *node) { same_shape(g, node, 2, (const char *[]){""}, 1); }

static void activation_grad_reference(const KernelCall *call) {
  int64_t n = operand_elements(&call->input[0]);
  for (int64_t i = 0; i < n; i++) {
    double slope = activation_slope(kind_of(call->attr), operand_load(&call->input[0], i));
    operand_store(&call->output[0], i, slope * operand_load(&call->input[1], i));
  }
}

const OpDef op_def_activation_grad = {
    .name = "activation_grad",
    .meaning = "x, dy → dx = act'(x) dy",
    .shape = activation_grad_shape,
    .rule = linear_1_rule,
    .reference = activation_grad_reference,
    .in_place = 1,
};

static void gated_shape(Graph *g, Node *node) { same_shape(g, node, 2, (const char *[]){""}, 1); }

static void gated_gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  dinput[0] = dinput[1] = -1;
  if (doutput[0] < 0) return;
  int input[] = {node.input[0], node.input[1], doutput[0]};
  int n =
      graph_node(g, OP_GATED_GRAD, op_derived_name(g, &node, "gradient"), input, 3, node.attr, sizeof(ActivationAttr));
  dinput[0] = g->node.data[n].output[0];
  dinput[1] = g->node.data[n].output[1];
}

static void gated_reference(const KernelCall *call) {
  int64_t n = operand_elements(&call->input[0]);
  for (int64_t i = 0; i < n; i++) {
    double gate = activation_value(kind_of(call->attr), operand_load(&call->input[0], i));
    operand_store(&call->output[0], i, gate * operand_load(&call->input[1], i));
  }
}

const OpDef op_def_gated = {
    .name = "gated",
    .meaning = "gate, up → act(gate) up",
    .shape = gated_shape,
    .gradient = gated_gradient,
    .rule = linear_1_rule,
    .reference = gated_reference,
    .one_pass = 1,
    .in_place = 1,
};

static void gated_grad_shape(Graph *g, Node *node) { same_shape(g, node, 3, (const char *[]){"dgate", "dup"}, 2); }

static void gated_grad_reference(const KernelCall *call) {
  int64_t n = operand_elements(&call->input[0]);
  int kind = kind_of(call->attr);
  for (int64_t i = 0; i < n; i++) {
    double gate = operand_load(&call->input[0], i), up = operand_load(&call->input[1], i),
           dy = operand_load(&call->input[2], i);
    operand_store(&call->output[0], i, activation_slope(kind, gate) * up * dy);
    operand_store(&call->output[1], i, activation_value(kind, gate) * dy);
  }
}

const OpDef op_def_gated_grad = {
    .name = "gated_grad",
    .meaning = "gate, up, dy → dgate = act'(gate) up dy, dup = act(gate) dy",
    .shape = gated_grad_shape,
    .rule = linear_2_rule,
    .reference = gated_grad_reference,
    .in_place = 2,
};

int op_activation(Graph *g, const char *name, int x, ActivationKind kind) {
  ActivationAttr attr = {.kind = kind};
  int n = graph_node(g, OP_ACTIVATION, name, &x, 1, &attr, sizeof attr);
  return g->node.data[n].output[0];
}

int op_gated(Graph *g, const char *name, int gate, int up, ActivationKind kind) {
  ActivationAttr attr = {.kind = kind};
  int n = graph_node(g, OP_GATED, name, (int[]){gate, up}, 2, &attr, sizeof attr);
  return g->node.data[n].output[0];
}
