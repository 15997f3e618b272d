// CAST: the same numbers in another dtype.
#include "op/build.h"

static void shape(Graph *g, Node *node) {
  CHECK(node->ninput == 1);
  Tensor x = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "", (Dtype)node_attr(node, CastAttr)->dtype, x.shape);
}

static void gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  Dtype dtype = graph_tensor(g, node.input[0])->dtype;
  dinput[0] = -1;
  if (doutput[0] >= 0 && dtype_is_float(dtype))
    dinput[0] = op_cast(g, op_derived_name(g, &node, "dx"), doutput[0], dtype);
}

// Linear to rounding among floats; integers are cut off.
static void rule(const Graph *g, const Node *node, char *text, size_t size) {
  int linear =
      dtype_is_float(graph_tensor(g, node->input[0])->dtype) && dtype_is_float(graph_tensor(g, node->output[0])->dtype);
  op_rule_elementwise(g, node, text, size, linear ? "; linear 0" : "");
}

static void reference(const KernelCall *call) {
  int64_t n = operand_elements(&call->output[0]);
  for (int64_t i = 0; i < n; i++) operand_store(&call->output[0], i, operand_load(&call->input[0], i));
}

const OpDef op_def_cast = {
    .name = "cast",
    .meaning = "x → x in attr.dtype, rounded to nearest even",
    .shape = shape,
    .gradient = gradient,
    .rule = rule,
    .reference = reference,
    .role = ROLE_CAST,
};

void op_copy_to_cast(Node *copy, Dtype dtype) {
  CHECK(node_is(copy, ROLE_COPY), "%s", copy->name);
  copy->op = OP_CAST;
  *node_attr(copy, CastAttr) = (CastAttr){.dtype = (int32_t)dtype};
}

int op_cast(Graph *g, const char *name, int x, Dtype dtype) {
  if (graph_tensor(g, x)->dtype == dtype) return x;
  CastAttr attr = {.dtype = (int32_t)dtype};
  int n = graph_node(g, OP_CAST, name, &x, 1, &attr, sizeof attr);
  return g->node.data[n].output[0];
}
