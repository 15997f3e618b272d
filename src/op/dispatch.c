// DISPATCH: to each expert the rows of the tokens that go to it; and back: COMBINE adds up what a token's experts made.
// Each is the other's gradient, and COMBINE_GRAD that of the weights.
#include "op/build.h"
#include "op/expert_rows.h"

// x (b, s, e), mask (b, s, x), weights (b, s, x) or -1 → rows (b, s, x, e), compact
static void dispatch_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3);
  Tensor x = *graph_tensor(g, node->input[0]), mask = *graph_tensor(g, node->input[1]);
  CHECK(x.shape.rank == 3 && mask.shape.rank == 3 && x.shape.size[0] == mask.shape.size[0] &&
            x.shape.size[1] == mask.shape.size[1],
        "%s", node->name);
  if (node->input[2] >= 0) CHECK(op_same_sizes(g, node->input[1], node->input[2]), "%s", node->name);
  Shape rows = mask.shape;
  rows.size[rows.rank] = x.shape.size[2];
  rows.dim[rows.rank++] = x.shape.dim[2];
  graph_output(g, node, "", x.dtype, rows);
  graph_compact(g, node->output[0], node->input[1], node_attr(node, DispatchAttr)->choices);
}

// Nobody asks for the gradient of weights here: only a gradient has any.
static void dispatch_gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  CHECK(node.input[2] < 0, "%s: the gradient of a gradient", node.name);
  dinput[0] = dinput[1] = dinput[2] = -1;
  if (doutput[0] < 0) return;
  int input[] = {node.input[1], doutput[0], -1};
  int n = graph_node(g, OP_COMBINE, op_derived_name(g, &node, "dx"), input, 3, NULL, 0);
  dinput[0] = g->node.data[n].output[0];
}

static void dispatch_rule(const Graph *g, const Node *node, char *text, size_t size) {
  (void)g;
  int weighted = node->input[2] >= 0;
  snprintf(text, size, "b s e, b s x, %s -> b s x e ; linear 0%s", weighted ? "b s x" : "", weighted ? " 2" : "");
}

static void dispatch_reference(const KernelCall *call) {
  const Operand *x = &call->input[0], *weights = &call->input[2], *rows = &call->output[0];
  ExpertRows m = expert_rows(&call->input[1]);
  int64_t width = x->size[2], count = 0;
  for (ExpertRow r = expert_row_first(); expert_row_next(&m, &r); count++) {
    int64_t token = FAULT(rows_of_an_expert_descend, r.token, m.tokens - 1 - r.token);
    double weight = weights->data ? operand_load(weights, r.token * m.experts + r.expert) : 1;
    for (int64_t i = 0; i < width; i++)
      operand_store(rows, r.index * width + i, weight * operand_load(x, token * width + i));
  }
  expert_rows_clear(rows, count);
}

const OpDef op_def_dispatch = {
    .name = "dispatch",
    .meaning =
        "x (b, s, e), mask (b, s, x) → rows (b, s, x, e), those of the mask: x, with weights (b, s, x) times these",
    .shape = dispatch_shape,
    .gradient = dispatch_gradient,
    .rule = dispatch_rule,
    .reference = dispatch_reference,
    .role = ROLE_DISPATCH,
};

// mask (b, s, x), rows (b, s, x, e), compact, weights (b, s, x) or -1 → (b, s, e)
static void combine_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3);
  Tensor mask = *graph_tensor(g, node->input[0]), rows = *graph_tensor(g, node->input[1]);
  CHECK(tensor_is_compact(&rows) && rows.shape.rank == 4, "%s: %s is not compact", node->name, rows.name);
  if (node->input[2] >= 0) CHECK(op_same_sizes(g, node->input[0], node->input[2]), "%s", node->name);
  Shape out = {.rank = 3,
               .size = {mask.shape.size[0], mask.shape.size[1], rows.shape.size[3]},
               .dim = {mask.shape.dim[0], mask.shape.dim[1], rows.shape.dim[3]}};
  graph_output(g, node, "", rows.dtype, out);
}

static void combine_gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  dinput[0] = dinput[1] = dinput[2] = -1;
  if (doutput[0] < 0) return;
  DispatchAttr attr = {graph_tensor(g, node.input[1])->choices};
  int spread[] = {doutput[0], node.input[0], node.input[2]}, product[] = {doutput[0], node.input[1], node.input[0]};
  int n = graph_node(g, OP_DISPATCH, op_derived_name(g, &node, "drows"), spread, 3, &attr, sizeof attr);
  dinput[1] = g->node.data[n].output[0];
  if (node.input[2] < 0) return;
  n = graph_node(g, OP_COMBINE_GRAD, op_derived_name(g, &node, "dweights"), product, 3, NULL, 0);
  dinput[2] = g->node.data[n].output[0];
}

// The operand that lies as tokens do decides the cut: rows that an all_to_all has brought to their experts come home
// for it.
static void combine_rule(const Graph *g, const Node *node, char *text, size_t size) {
  (void)g;
  int weighted = node->input[2] >= 0;
  snprintf(text, size, "b s x, b s x e, %s -> b s e ; linear 1%s", weighted ? "b s x" : "", weighted ? " 2" : "");
}

static void combine_reference(const KernelCall *call) {
  const Operand *rows = &call->input[1], *weights = &call->input[2], *out = &call->output[0];
  ExpertRows m = expert_rows(&call->input[0]);
  int64_t width = out->size[2];
  double *sum = xcalloc((size_t)(m.tokens * width) + 1, sizeof *sum);
  for (ExpertRow r = expert_row_first(); expert_row_next(&m, &r);) {
    double weight = weights->data ? operand_load(weights, r.token * m.experts + r.expert) : 1;
    for (int64_t i = 0; i < width; i++) sum[r.token * width + i] += weight * operand_load(rows, r.index * width + i);
  }
  for (int64_t i = 0; i < m.tokens * width; i++) operand_store(out, i, sum[i]);
  free(sum);
}

const OpDef op_def_combine = {
    .name = "combine",
    .meaning = "mask (b, s, x), rows (b, s, x, e), weights (b, s, x) → Σ over x of weight · row (b, s, e)",
    .shape = combine_shape,
    .gradient = combine_gradient,
    .rule = combine_rule,
    .reference = combine_reference,
};

// dout (b, s, e), rows (b, s, x, e), compact, mask (b, s, x) → dweights (b, s, x)
static void grad_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3 && tensor_is_compact(graph_tensor(g, node->input[1])));
  Tensor rows = *graph_tensor(g, node->input[1]), mask = *graph_tensor(g, node->input[2]);
  graph_output(g, node, "", op_statistics_dtype(rows.dtype), mask.shape);
}

static void grad_rule(const Graph *g, const Node *node, char *text, size_t size) {
  (void)g, (void)node;
  snprintf(text, size, "b s e, b s x e, b s x -> b s x ; linear 0 1");
}

static void grad_reference(const KernelCall *call) {
  const Operand *dout = &call->input[0], *rows = &call->input[1], *dweights = &call->output[0];
  ExpertRows m = expert_rows(&call->input[2]);
  int64_t width = dout->size[2];
  for (int64_t i = 0; i < m.tokens * m.experts; i++) operand_store(dweights, i, 0);
  for (ExpertRow r = expert_row_first(); expert_row_next(&m, &r);) {
    double dot = 0;
    for (int64_t i = 0; i < width; i++)
      dot += operand_load(dout, r.token * width + i) * operand_load(rows, r.index * width + i);
    operand_store(dweights, r.token * m.experts + r.expert, dot);
  }
}

const OpDef op_def_combine_grad = {
    .name = "combine_grad",
    .meaning =
        "dout (b, s, e), rows (b, s, x, e), mask (b, s, x) → dweights (b, s, x) = dout · row, 0 where there is none",
    .shape = grad_shape,
    .rule = grad_rule,
    .reference = grad_reference,
};

int op_dispatch(Graph *g, const char *name, int x, int mask, int choices) {
  DispatchAttr attr = {choices};
  int n = graph_node(g, OP_DISPATCH, name, (int[]){x, mask, -1}, 3, &attr, sizeof attr);
  return g->node.data[n].output[0];
}

int op_combine(Graph *g, const char *name, int rows, int weights) {
  int n = graph_node(g, OP_COMBINE, name, (int[]){graph_tensor(g, rows)->mask, rows, weights}, 3, NULL, 0);
  return g->node.data[n].output[0];
}
