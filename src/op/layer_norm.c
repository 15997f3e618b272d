// LAYER_NORM over the last dim (Ba et al., "Layer Normalization", 2016), and its gradient.
#include "op/build.h"
#include "op/norm_parts.h"
#include <math.h>

// x (…, e), gain (e), bias (e) or -1 → y (…, e), mean (…), rstd (…)
static void forward_shape(Graph *g, Node *node) {
  int sum = node_attr(node, NormAttr)->sum;
  CHECK(node->ninput == 3 + sum);
  Tensor x = *graph_tensor(g, node->input[0]), gain = *graph_tensor(g, node->input[1]);
  int rank = x.shape.rank;
  CHECK(rank >= 1 && gain.shape.rank == 1 && gain.shape.size[0] == x.shape.size[rank - 1]);
  CHECK(node->input[2] < 0 || op_same_sizes(g, node->input[1], node->input[2]));
  Shape rows = shape_of(rank - 1, x.shape.size, x.shape.dim);
  graph_output(g, node, "", x.dtype, x.shape);
  graph_output(g, node, "mean", op_statistics_dtype(x.dtype), rows);
  graph_output(g, node, "rstd", op_statistics_dtype(x.dtype), rows);
  if (sum) graph_output(g, node, "sum", x.dtype, x.shape);
}

static void forward_gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  dinput[0] = dinput[1] = dinput[2] = -1;
  if (doutput[0] < 0) return;
  NormAttr attr = *node_attr(&node, NormAttr);
  attr.bias = node.input[2] >= 0;
  int input[] = {doutput[0], node.input[0], node.input[1], node.output[1], node.output[2]};
  int n = graph_node(g, OP_LAYER_NORM_GRAD, op_derived_name(g, &node, "gradient"), input, 5, &attr, sizeof attr);
  for (int k = 0; k < 2 + attr.bias; k++) dinput[k] = g->node.data[n].output[k];
}

static void forward_rule(const Graph *g, const Node *node, char *text, size_t size) {
  char x[RULE_LETTERS], rows[RULE_LETTERS], lower[] = "; lower ? ", clauses[64];
  const char *e = op_row_letters(g, node->input[0], x, rows);
  if (node_attr(node, NormAttr)->sum) memcpy(lower, "; whole", 7); // by fuse, after partition, which lowers
  lower[sizeof lower - 3] = *e;
  norm_complete_clause(clauses, sizeof clauses, *e, 3, lower);
  op_rule(text, size, (const char *[]){x, e, node->input[2] < 0 ? "" : e, x}, node->ninput,
          (const char *[]){x, rows, rows, x}, node->noutput, clauses);
}

static void forward_lower(Graph *g, const Node *node, uint32_t axes, int ranks, const int *input, int *output) {
  norm_lower(g, node, axes, input[0], input[1], input[2], 1, output);
}

static void forward_reference(const KernelCall *call) {
  const Operand *x = norm_of_sum(call), *gain = &call->input[1], *bias = &call->input[2], *y = &call->output[0];
  int64_t width = x->size[x->rank - 1], rows = operand_extent(x, 0, x->rank - 1);
  double epsilon = ((const NormAttr *)call->attr)->epsilon;
  for (int64_t r = 0; r < rows; r++) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; i++) mean += operand_load(x, r * width + i);
    mean /= (double)width;
    for (int64_t i = 0; i < width; i++) {
      double c = operand_load(x, r * width + i) - mean;
      variance += c * c;
    }
    double rstd = 1 / sqrt(variance / (double)width + epsilon);
    for (int64_t i = 0; i < width; i++) {
      double n = (operand_load(x, r * width + i) - mean) * rstd;
      operand_store(y, r * width + i, n * operand_load(gain, i) + (bias->data ? operand_load(bias, i) : 0));
    }
    operand_store(&call->output[1], r, mean);
    operand_store(&call->output[2], r, rstd);
  }
}

const OpDef op_def_layer_norm = {
    .name = "layer_norm",
    .meaning = "x (…, e), gain (e), bias (e)? → y = (x - mean) rstd gain + bias, mean (…), rstd (…) = 1/sqrt(var + "
               "epsilon); with "
               "`sum` of x + a further input, which is a further output",
    .shape = forward_shape,
    .gradient = forward_gradient,
    .rule = forward_rule,
    .lower = forward_lower,
    .reference = forward_reference,
    .one_pass = 1,
    .in_place = 1,
    .add_first = norm_add_first,
    .accumulated = norm_added_first,
};

// dy (…, e), x (…, e), gain (e), mean (…), rstd (…) → dx (…, e), dgain (e), dbias (e) when attr.bias, drows (e) when
// attr.row_sum
static void grad_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 5 + node_attr(node, NormAttr)->accumulate);
  Tensor x = *graph_tensor(g, node->input[1]), gain = *graph_tensor(g, node->input[2]);
  graph_output(g, node, "dx", x.dtype, x.shape);
  graph_output(g, node, "dgain", gain.dtype, gain.shape);
  if (node_attr(node, NormAttr)->bias) graph_output(g, node, "dbias", gain.dtype, gain.shape);
  if (node_attr(node, NormAttr)->row_sum) graph_output(g, node, "drows", gain.dtype, gain.shape);
}

static void grad_rule(const Graph *g, const Node *node, char *text, size_t size) {
  char x[RULE_LETTERS], rows[RULE_LETTERS], clauses[] = "; linear 0 ; lower ?";
  const NormAttr *attr = node_attr(node, NormAttr);
  int from = attr->accumulate || attr->row_sum ? 11 : 0; // what is added would be added once a rank
  if (from) memcpy(clauses + from, "; whole", 7); // by fuse, after partition, which lowers
  const char *e = op_row_letters(g, node->input[1], x, rows);
  clauses[sizeof clauses - 2] = *e;
  op_rule(text, size, (const char *[]){x, x, e, rows, rows, x}, node->ninput, (const char *[]){x, e, e, e},
          node->noutput, clauses + from);
}

static void grad_lower(Graph *g, const Node *node, uint32_t axes, int ranks, const int *input, int *output) {
  norm_grad_lower(g, node, axes, input, output);
}

static void grad_reference(const KernelCall *call) {
  const Operand *dy = &call->input[0], *x = &call->input[1], *gain = &call->input[2];
  int accumulate = call_adds(call, ((const NormAttr *)call->attr)->accumulate);
  int64_t width = x->size[x->rank - 1], rows = operand_extent(x, 0, x->rank - 1);
  double *dgain = xcalloc((size_t)width * 3, sizeof *dgain), *dbias = dgain + width, *drows = dbias + width;
  for (int64_t r = 0; r < rows; r++) {
    double mean = operand_load(&call->input[3], r), rstd = operand_load(&call->input[4], r), a = 0, b = 0;
    for (int64_t i = 0; i < width; i++) {
      double d = operand_load(dy, r * width + i), n = (operand_load(x, r * width + i) - mean) * rstd;
      dgain[i] += d * n;
      dbias[i] += d;
      a += d * operand_load(gain, i);
      b += d * operand_load(gain, i) * n;
    }
    a /= (double)width;
    b /= (double)width;
    for (int64_t i = 0; i < width; i++) {
      double d = operand_load(dy, r * width + i) * operand_load(gain, i);
      double n = (operand_load(x, r * width + i) - mean) * rstd;
      double added = accumulate ? operand_load(&call->input[5], r * width + i) : 0;
      const double dx = (d - a - n * b) * rstd + added;
      operand_store(&call->output[0], r * width + i, dx);
      drows[i] += dx; // a kernel may take it as it is after it is rounded
    }
  }
  const NormAttr *attr = call->attr;
  for (int64_t i = 0; i < width; i++) {
    operand_store(&call->output[1], i, dgain[i]);
    if (attr->bias) operand_store(&call->output[2], i, dbias[i]);
    if (attr->row_sum) operand_store(&call->output[call->noutput - 1], i, drows[i]);
  }
  free(dgain);
}

// A model whose norms have no bias has seldom one elsewhere.
static int grad_row_sum(Node *node) {
  NormAttr *attr = node_attr(node, NormAttr);
  attr->row_sum = attr->bias;
  return attr->bias;
}

const OpDef op_def_layer_norm_grad = {
    .name = "layer_norm_grad",
    .meaning = "dy, x (…, e), gain (e), mean, rstd (…) → dx (…, e), dgain (e) = Σ dy n, dbias (e) = Σ dy, n = (x - "
               "mean) rstd; "
               "with `accumulate` dx + a further input, in place; with `row_sum` the sum over rows of dx, last",
    .shape = grad_shape,
    .rule = grad_rule,
    .lower = grad_lower,
    .reference = grad_reference,
    .accumulate = norm_grad_accumulate,
    .accumulated = norm_grad_accumulated,
    .row_sum = grad_row_sum,
    .in_place = 1,
};

int op_layer_norm(Graph *g, const char *name, int x, int gain, int bias, double epsilon) {
  NormAttr attr = {.epsilon = epsilon};
  int n = graph_node(g, OP_LAYER_NORM, name, (int[]){x, gain, bias}, 3, &attr, sizeof attr);
  return g->node.data[n].output[0];
}
