// ROUTER_BALANCE: the loss that keeps the experts of a router equally busy (Shazeer et al., 2017; Fedus et al., "Switch
// Transformers", 2022), per sequence, with its gradient in the same node, since the seed is known before. Over a cut
// sequence it becomes SUMS, all_reduce, APPLY.
//
// Of a sequence of S positions and E experts: f[x], the number of positions that chose expert x, over S; P[x], the mean
// of its probability over the positions; the loss is E Σ f P. Of one sequence that is what transformers'
// load_balancing_loss_func gives: with k choices a position, f adds up to k. f is not differentiable: its gradient is
// 0.
#include "base/fault.h"
#include "op/build.h"
#include <math.h>

// How many rows of experts there are in an operand (b, s, x), and the positions of a whole sequence, of which these
// may be a part.
typedef struct Rows {
  int64_t batch, positions, experts;
  double sequence;
} Rows;

static Rows rows_of(const Operand *logits) {
  return (Rows){logits->size[0], logits->size[1], logits->size[2], (double)logits->map[1].global};
}

static void check_operands(const Graph *g, const Node *node) {
  const Tensor *logits = graph_tensor(g, node->input[0]), *mask = graph_tensor(g, node->input[1]);
  CHECK(logits->shape.rank == 3 && op_same_sizes(g, node->input[0], node->input[1]), "%s", node->name);
  CHECK(mask->dtype == DTYPE_U8, "%s: its mask", node->name);
}

static void loss_outputs(Graph *g, Node *node) {
  Tensor logits = *graph_tensor(g, node->input[0]);
  graph_output(g, node, "loss_sum", DTYPE_F64, (Shape){.rank = 0});
  graph_output(g, node, "dlogits", logits.dtype, logits.shape);
}

// logits (b, s, x), mask (b, s, x), seed () → loss_sum () fp64, dlogits (b, s, x)
static void loss_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 3 && node->input[2] >= 0);
  check_operands(g, node);
  loss_outputs(g, node);
}

static void loss_gradient(Graph *g, int id, const int *doutput, int *dinput) {
  dinput[0] = g->node.data[id].output[1];
  dinput[1] = dinput[2] = -1;
}

static void loss_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bsx", "bsx", ""}, 3, (const char *[]){"", "bsx"}, 2,
          "; whole x ; lower s ; complete 0 s");
}

// The probabilities of one position's experts.
static void softmax(const double *logit, int64_t n, double *p) {
  double most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++) most = fmax(most, logit[i]);
  for (int64_t i = 0; i < n; i++) sum += p[i] = exp(logit[i] - most);
  for (int64_t i = 0; i < n; i++) p[i] /= sum;
}

// Adds what the positions of sequence b say to sums (x, 2): choices, and probabilities.
static void add_sums(const Rows *r, const double *logits, const Operand *mask, int64_t b, double *p, double *sums) {
  const uint8_t *chosen = mask->data;
  for (int64_t s = 0; s < r->positions; s++) {
    int64_t row = (b * r->positions + s) * r->experts;
    softmax(logits + row, r->experts, p);
    for (int64_t i = 0; i < r->experts; i++) {
      sums[2 * i] += chosen[row + i];
      sums[2 * i + 1] += p[i];
    }
  }
}

// The loss of one sequence from its sums (x, 2).
static double loss_of(const Rows *r, const double *sums) {
  double loss = 0;
  for (int64_t i = 0; i < r->experts; i++) loss += sums[2 * i] * sums[2 * i + 1];
  return (double)r->experts * loss / (r->sequence * r->sequence);
}

// d loss / d logit = E / S p (f - Σ f p)
static void store_gradient(const Rows *r, const double *logits, int64_t b, const double *sums, double seed, double *p,
                           const Operand *dlogits) {
  double scale = seed * (double)r->experts / (r->sequence * r->sequence);
  for (int64_t s = 0; s < r->positions; s++) {
    int64_t row = (b * r->positions + s) * r->experts;
    softmax(logits + row, r->experts, p);
    double mean = 0;
    for (int64_t i = 0; i < r->experts; i++) mean += sums[2 * i] * p[i];
    for (int64_t i = 0; i < r->experts; i++)
      operand_store(dlogits, row + i, scale * p[i] * (sums[2 * i] - FAULT(balance_gradient, mean, 0)));
  }
}

// Inputs logits, mask, seed and, of whole sequences of which this is a part, sums (b, x, 2).
static void loss_reference(const KernelCall *call) {
  const Operand *given = call->ninput > 3 ? &call->input[3] : NULL;
  Rows r = rows_of(&call->input[0]);
  double *logits = operand_doubles(&call->input[0]), seed = operand_load(&call->input[2], 0), total = 0;
  double *p = xcalloc((size_t)r.experts * 3 + 1, sizeof *p), *sums = p + r.experts;
  for (int64_t b = 0; b < r.batch; b++) {
    for (int64_t i = 0; i < 2 * r.experts; i++) sums[i] = given ? operand_load(given, b * 2 * r.experts + i) : 0;
    if (!given) add_sums(&r, logits, &call->input[1], b, p, sums);
    total += loss_of(&r, sums);
    store_gradient(&r, logits, b, sums, seed, p, &call->output[1]);
  }
  operand_store(&call->output[0], 0, total);
  free(p);
  operand_doubles_free(&call->input[0], logits);
}

static void loss_lower(Graph *g, const Node *like, uint32_t axes, int ranks, const int *input, int *output) {
  Node node = *like;
  CommAttr attr = {.axes = axes};
  int n = graph_node(g, OP_ROUTER_BALANCE_SUMS, op_derived_name(g, &node, "sums"), input, 2, NULL, 0);
  n = graph_node(g, OP_ALL_REDUCE, op_derived_name(g, &node, "all_reduce_sums"), g->node.data[n].output, 1, &attr,
                 sizeof attr);
  int all[] = {input[0], input[1], input[2], g->node.data[n].output[0]};
  n = graph_node(g, OP_ROUTER_BALANCE_APPLY, op_derived_name(g, &node, "apply"), all, 4, NULL, 0);
  for (int k = 0; k < node.noutput; k++) output[k] = g->node.data[n].output[k];
}

const OpDef op_def_router_balance = {
    .name = "router_balance",
    .meaning = "logits (b, s, x), mask (b, s, x), seed () → loss_sum () = Σ over b of x Σ over x of f P, with f, P "
               "(b, x) the means over s of mask and softmax(logits); dlogits = seed · its gradient",
    .shape = loss_shape,
    .gradient = loss_gradient,
    .rule = loss_rule,
    .lower = loss_lower,
    .reference = loss_reference,
};

// ---- what it is lowered to -----------------------------------------------------------------------------------------

// logits, mask (b, s, x) → sums (b, x, 2)
static void sums_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  check_operands(g, node);
  Tensor logits = *graph_tensor(g, node->input[0]);
  const Shape *s = &logits.shape;
  graph_output(g, node, "", op_statistics_dtype(logits.dtype),
               shape_of(3, (int64_t[]){s->size[0], s->size[2], 2}, (DimName[]){s->dim[0], s->dim[2], DIM_NONE}));
}

static void sums_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bsx", "bsx"}, 2, (const char *[]){"bxa"}, 1, "; whole x a");
}

static void sums_reference(const KernelCall *call) {
  Rows r = rows_of(&call->input[0]);
  double *logits = operand_doubles(&call->input[0]);
  double *p = xcalloc((size_t)r.experts * 3 + 1, sizeof *p), *sums = p + r.experts;
  for (int64_t b = 0; b < r.batch; b++) {
    memset(sums, 0, sizeof *sums * 2 * (size_t)r.experts);
    add_sums(&r, logits, &call->input[1], b, p, sums);
    for (int64_t i = 0; i < 2 * r.experts; i++) operand_store(&call->output[0], b * 2 * r.experts + i, sums[i]);
  }
  free(p);
  operand_doubles_free(&call->input[0], logits);
}

const OpDef op_def_router_balance_sums = {
    .name = "router_balance_sums",
    .meaning = "logits, mask (b, s, x) → Σ over s of mask and of softmax(logits) (b, x, 2), of this rank's positions",
    .shape = sums_shape,
    .rule = sums_rule,
    .reference = sums_reference,
};

// logits, mask (b, s, x), seed (), sums (b, x, 2) → loss_sum (), dlogits (b, s, x)
static void apply_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 4);
  check_operands(g, node);
  loss_outputs(g, node);
}

static void apply_rule(const Graph *g, const Node *node, char *text, size_t size) {
  op_rule(text, size, (const char *[]){"bsx", "bsx", "", "bxa"}, 4, (const char *[]){"", "bsx"}, 2,
          FAULT(balance_counts_every_part, "; whole x a ; complete 0 s", "; whole x a"));
}

const OpDef op_def_router_balance_apply = {
    .name = "router_balance_apply",
    .meaning = "logits, mask (b, s, x), seed (), sums (b, x, 2) of whole sequences → loss_sum (), on every rank that "
               "has a part of them; dlogits (b, s, x)",
    .shape = apply_shape,
    .rule = apply_rule,
    .reference = loss_reference,
};
