// ROUTE: which experts a token goes to and with which weights, by the softmax of its logits (Shazeer et al.,
// "Outrageously large neural networks", 2017), and its gradient.
#include "base/fault.h"
#include "op/build.h"
#include <math.h>

static void forward_shape(Graph *g, Node *node) {
  const RouteAttr *attr = node_attr(node, RouteAttr);
  CHECK(node->ninput == 2);
  Tensor logits = *graph_tensor(g, node->input[0]);
  CHECK(logits.shape.rank == 3 && attr->k >= 1 && attr->k <= logits.shape.size[2], "%s: %d of %lld experts", node->name,
        attr->k, (long long)logits.shape.size[2]);
  if (node->input[1] >= 0) CHECK(shape_elements(&graph_tensor(g, node->input[1])->shape) == logits.shape.size[2]);
  graph_output(g, node, "", op_statistics_dtype(logits.dtype), logits.shape);
  graph_output(g, node, "mask", DTYPE_U8, logits.shape);
}

// The bias only chooses, and the choice has no gradient.
static void forward_gradient(Graph *g, int id, const int *doutput, int *dinput) {
  Node node = op_node(g, id);
  dinput[0] = dinput[1] = -1;
  if (doutput[0] < 0) return;
  int input[] = {node.input[0], node.output[1], doutput[0]};
  int n = graph_node(g, OP_ROUTE_GRAD, op_derived_name(g, &node, "gradient"), input, 3, node.attr, sizeof(RouteAttr));
  dinput[0] = g->node.data[n].output[0];
}

static void forward_rule(const Graph *g, const Node *node, char *text, size_t size) {
  snprintf(text, size, "b s x, %s -> b s x, b s x ; whole x", node->input[1] >= 0 ? "x" : "");
  (void)g;
}

// The softmax of `width` logits.
static void probabilities(const Operand *logits, int64_t at, int64_t width, double *p) {
  double maximum = -INFINITY, sum = 0;
  for (int64_t i = 0; i < width; i++) maximum = fmax(maximum, operand_load(logits, at + i));
  for (int64_t i = 0; i < width; i++) sum += p[i] = exp(operand_load(logits, at + i) - maximum);
  for (int64_t i = 0; i < width; i++) p[i] /= sum;
}

// The expert of the largest score among those that are not chosen; of equal ones the lower.
static int64_t best_expert(const double *score, const Operand *mask, int64_t at, int64_t width) {
  int64_t best = -1;
  for (int64_t i = 0; i < width; i++) {
    if (operand_load(mask, at + i) != 0) continue;
    if (best < 0 || score[i] > score[best] || FAULT(ties_go_to_the_higher_expert, 0, score[i] == score[best])) best = i;
  }
  return best;
}

static void forward_reference(const KernelCall *call) {
  const RouteAttr *attr = call->attr;
  const Operand *logits = &call->input[0], *bias = &call->input[1], *weights = &call->output[0],
                *mask = &call->output[1];
  int64_t width = logits->size[2], rows = operand_extent(logits, 0, 2);
  double *p = xcalloc(2 * (size_t)width, sizeof *p), *score = p + width;
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0;
    probabilities(logits, r * width, width, p);
    for (int64_t i = 0; i < width; i++) {
      score[i] = p[i] + (bias->data ? operand_load(bias, i) : 0);
      operand_store(mask, r * width + i, 0);
    }
    for (int k = 0; k < attr->k; k++) {
      int64_t best = best_expert(score, mask, r * width, width);
      operand_store(mask, r * width + best, 1);
      sum += p[best];
    }
    for (int64_t i = 0; i < width; i++)
      operand_store(weights, r * width + i,
                    operand_load(mask, r * width + i) != 0 ? p[i] / (attr->normalize ? sum : 1) : 0);
  }
  free(p);
}

const OpDef op_def_route = {
    .name = "route",
    .meaning = "logits (b, s, x), bias (x) → p = softmax over x in at least fp32; mask (b, s, x): the k experts of the "
               "largest p + bias, of equal ones the lower; weights: their p, with `normalize` over the sum of these",
    .shape = forward_shape,
    .gradient = forward_gradient,
    .rule = forward_rule,
    .reference = forward_reference,
};

// logits (b, s, x), mask (b, s, x), dweights (b, s, x) → dlogits (b, s, x)
static void grad_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3 && op_same_sizes(g, node->input[0], node->input[1]) &&
        op_same_sizes(g, node->input[0], node->input[2]));
  Tensor logits = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "", logits.dtype, logits.shape);
}

static void grad_rule(const Graph *g, const Node *node, char *text, size_t size) {
  (void)g, (void)node;
  snprintf(text, size, "b s x, b s x, b s x -> b s x ; linear 2 ; whole x");
}

// Normalized weights are the softmax over those that were chosen, so that its gradient is theirs alone.
static void grad_reference(const KernelCall *call) {
  const RouteAttr *attr = call->attr;
  const Operand *logits = &call->input[0], *mask = &call->input[1], *dweights = &call->input[2];
  int64_t width = logits->size[2], rows = operand_extent(logits, 0, 2);
  double *p = xcalloc((size_t)width, sizeof *p);
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0, dot = 0;
    int64_t at = r * width;
    probabilities(logits, at, width, p);
    for (int64_t i = 0; i < width; i++)
      if (operand_load(mask, at + i) != 0) sum += p[i];
    for (int64_t i = 0; attr->normalize && i < width; i++) p[i] = operand_load(mask, at + i) != 0 ? p[i] / sum : 0;
    for (int64_t i = 0; i < width; i++)
      if (operand_load(mask, at + i) != 0) dot += p[i] * operand_load(dweights, at + i);
    for (int64_t i = 0; i < width; i++) {
      double dp = operand_load(mask, at + i) != 0 ? operand_load(dweights, at + i) : 0;
      operand_store(&call->output[0], at + i, p[i] * (dp - dot));
    }
  }
  free(p);
}

const OpDef op_def_route_grad = {
    .name = "route_grad",
    .meaning = "logits, mask, dweights (b, s, x) → dlogits (b, s, x)",
    .shape = grad_shape,
    .rule = grad_rule,
    .reference = grad_reference,
};

void op_route(Graph *g, const char *name, int logits, int bias, const RouteAttr *attr, int *weights, int *mask) {
  int n = graph_node(g, OP_ROUTE, name, (int[]){logits, bias}, 2, attr, sizeof *attr);
  *weights = g->node.data[n].output[0];
  *mask = g->node.data[n].output[1];
}
