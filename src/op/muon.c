// MUON (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024): momentum of a matrix, made
// nearly orthogonal (orthogonalize.c). Three nodes a matrix: MUON_MOMENTUM and MUON work element by element, and so on
// shards; ORTHOGONALIZE between them needs the whole matrix. Parameters that are not a matrix of a layer are updated by
// AdamW.
#include "op/build.h"
#include "op/optimizer.h"
#include <math.h>

static void momentum_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 4 && op_same_sizes(g, node->input[0], node->input[1]), "%s", node->name);
  Tensor m = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "m", m.dtype, m.shape);
  graph_output(g, node, "u", m.dtype, m.shape);
}

// m, g, factor, skip → m, u
static void momentum_reference(const KernelCall *call) {
  const Operand *in = call->input, *out = call->output;
  double mu = ((const MuonAttr *)call->attr)->momentum, factor = operand_load(&in[2], 0);
  int skip = operand_load(&in[3], 0) != 0;
  int64_t n = operand_elements(&in[0]);
  for (int64_t i = 0; i < n; i++) {
    double m = operand_load(&in[0], i), u = 0;
    if (!skip) {
      double g = operand_load(&in[1], i) * factor;
      m = mu * m + (1 - mu) * g;
      u = mu * m + (1 - mu) * g;
    }
    operand_store(&out[0], i, m);
    operand_store(&out[1], i, u);
  }
}

const OpDef op_def_muon_momentum = {
    .name = "muon_momentum",
    .meaning = "m, g, factor (), skip () → m = momentum m + (1 - momentum) factor g, in place, and u = momentum m + "
               "(1 - momentum) factor g; when skip m as it was and u = 0",
    .shape = momentum_shape,
    .rule = optimizer_rule,
    .reference = momentum_reference,
    .in_place = 1,
    .moments = 1 << 0,
};

static void shape(Graph *g, Node *node) {
  CHECK(node->ninput >= 4 && op_same_sizes(g, node->input[0], node->input[1]), "%s", node->name);
  Tensor w = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "w", w.dtype, w.shape);
  optimizer_split_shape(g, node, 4);
  optimizer_copy_shape(g, node, node_attr(node, MuonAttr)->copy);
}

static int writes_copy(Node *node, Dtype dtype) {
  return optimizer_add_copy(node, &node_attr(node, MuonAttr)->copy, dtype);
}

// w, o, lr, skip → w
static void reference(const KernelCall *call) {
  const Operand *in = call->input;
  const MuonAttr *attr = call->attr;
  double lr = operand_load(&in[2], 0);
  int skip = operand_load(&in[3], 0) != 0;
  int64_t n = operand_elements(&in[0]);
  for (int64_t i = 0; i < n; i++) {
    double w = optimizer_load(call, i);
    if (!skip) w -= lr * (attr->decay * w + attr->scale * operand_load(&in[1], i));
    optimizer_store(call, i, w);
  }
}

// So that an update is as long as AdamW's (Liu et al., "Muon is scalable for LLM training", 2025), or Jordan's.
static double scale_of(const Shape *s, int matrices, int rows, int kind) {
  double r = 1, c = 1;
  for (int d = matrices; d < s->rank; d++) *(d < matrices + rows ? &r : &c) *= (double)s->size[d];
  return kind == MUON_SCALE_ORIGINAL ? sqrt(fmax(1, r / c)) : 0.2 * sqrt(fmax(r, c));
}

static void build(Graph *g, const OptimizerInputs *in, const OptimizerAttr *attr) {
  const int parameter = graph_tensor(g, in->w)->variable;
  const Variable *v = &g->variable.data[parameter];
  int rows = v->outputs, matrices = v->shape.rank > rows + 1 && v->shape.dim[0] == DIM_EXPERT;
  MuonAttr muon = {.momentum = attr->momentum,
                   .decay = attr->decay,
                   .scale = scale_of(&v->shape, matrices, rows, attr->muon_scale)};
  int m = graph_read(g, graph_variable_of(g, "momentum", parameter, VARIABLE_OPTIMIZER));
  int input[] = {m, in->gradient, in->factor, in->skip};
  int node = graph_node(g, OP_MUON_MOMENTUM, "momentum", input, 4, &muon, sizeof muon);
  op_update(g, node, 0, 0);
  int u = g->node.data[node].output[1], o = op_orthogonalize(g, "orthogonalize", u, matrices, rows);
  for (int k = 0; k < 2; k++) { // they lie as the parameter does
    Tensor *t = graph_tensor(g, k ? o : u);
    t->role = ROLE_WEIGHT_GRADIENT;
    t->parameter = parameter;
  }
  int update[] = {in->w, o, in->lr, in->skip};
  node = graph_node(g, OP_MUON, "muon", update, 4, &muon, sizeof muon);
  op_update(g, node, 0, 0);
}

static const OptimizerDef optimizer = {
    .meaning = "momentum that is made nearly orthogonal by five steps of Newton and Schulz (Jordan et al., 2024), with "
               "decoupled weight decay, for the matrices of layers (one an expert); adamw for all else: embeddings, "
               "the head, biases and norms",
    .build = build,
    .others = OP_ADAMW,
    .reads = "betas epsilon momentum muon_scale",
    .betas = {0.9, 0.95},
    .momentum = 0.95,
};

const OpDef op_def_muon = {
    .name = "muon",
    .meaning = "w, o, lr (), skip () → w - lr (decay w + scale o); unchanged when skip; in place",
    .shape = shape,
    .rule = optimizer_rule,
    .reference = reference,
    .in_place = 1,
    .writes_copy = writes_copy,
    .optimizer = &optimizer,
};
