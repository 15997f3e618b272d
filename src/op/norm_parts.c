// The nodes that replace LAYER_NORM, RMS_NORM and their gradients where the dim that they normalise is sharded: local
// sums, all_reduce, apply.
//
// Mean and variance take two all_reduces: of Σ x, then of Σ (x - mean)² about the mean of the whole row, as the kernels
// of a whole row sum it. Merging counts, means and squares of shards (Chan et al., 1979) needs one exchange, but of
// both values of every rank; from four ranks on that moves more, and it rounds differently from one rank. An RMS_NORM
// has no mean and needs one sum; each gradient needs one, of a pair of values.
#include "op/norm_parts.h"
#include "base/fault.h"
#include "op/build.h"
#include <math.h>

static int64_t rows_of_operand(const Operand *x) { return operand_extent(x, 0, x->rank - 1); }
// The width of a whole row, of which this rank has a part.
static double width_of(const Operand *x) {
  return (double)FAULT(norm_of_a_local_row, x->map[x->rank - 1].global, x->size[x->rank - 1]);
}

// ---- NORM_SUM ------------------------------------------------------------------------------------------------------

// x (…, e), sum (…) or -1 → (…)
static void sum_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 2);
  Tensor x = *graph_tensor(g, node->input[0]);
  CHECK(x.shape.rank >= 1);
  graph_output(g, node, "", op_statistics_dtype(x.dtype), shape_of(x.shape.rank - 1, x.shape.size, x.shape.dim));
}

static void sum_rule(const Graph *g, const Node *node, char *text, size_t size) {
  char x[RULE_LETTERS], rows[RULE_LETTERS];
  op_row_letters(g, node->input[0], x, rows);
  op_rule(text, size, (const char *[]){x, node->input[1] < 0 ? "" : rows}, 2, (const char *[]){rows}, 1, "");
}

static void sum_reference(const KernelCall *call) {
  const Operand *x = &call->input[0], *sum = &call->input[1];
  int64_t width = x->size[x->rank - 1], rows = rows_of_operand(x);
  int squares = ((const NormSumAttr *)call->attr)->squares;
  for (int64_t r = 0; r < rows; r++) {
    double mean = sum->data ? operand_load(sum, r) / width_of(x) : 0, total = 0;
    for (int64_t i = 0; i < width; i++) {
      double c = operand_load(x, r * width + i) - mean;
      total += squares ? c * c : c;
    }
    operand_store(&call->output[0], r, total);
  }
}

const OpDef op_def_norm_sum = {
    .name = "norm_sum",
    .meaning =
        "x (…, e), sum (…)? → Σ x (…), or with attr.squares Σ (x - sum / width)² (…), of this rank's part of a row",
    .shape = sum_shape,
    .rule = sum_rule,
    .reference = sum_reference,
};

// ---- NORM_APPLY ----------------------------------------------------------------------------------------------------

// x (…, e), gain (e), bias (e) or -1, sum (…) or -1, squares (…) → y (…, e), mean (…) where there is a sum, rstd (…)
static void apply_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 5);
  Tensor x = *graph_tensor(g, node->input[0]);
  Tensor rows = *graph_tensor(g, node->input[4]);
  CHECK(x.shape.rank >= 1 && rows.shape.rank == x.shape.rank - 1, "%s", node->name);
  graph_output(g, node, "", x.dtype, x.shape);
  if (node->input[3] >= 0) graph_output(g, node, "mean", rows.dtype, rows.shape);
  graph_output(g, node, "rstd", rows.dtype, rows.shape);
}

static void apply_rule(const Graph *g, const Node *node, char *text, size_t size) {
  char x[RULE_LETTERS], rows[RULE_LETTERS], clauses[64];
  const char *e = op_row_letters(g, node->input[0], x, rows);
  int centred = node->input[3] >= 0;
  norm_complete_clause(clauses, sizeof clauses, *e, node->noutput, "");
  op_rule(text, size, (const char *[]){x, e, node->input[2] < 0 ? "" : e, centred ? rows : "", rows}, 5,
          (const char *[]){x, rows, rows}, node->noutput, clauses);
}

static void apply_reference(const KernelCall *call) {
  const Operand *x = &call->input[0], *gain = &call->input[1], *bias = &call->input[2], *sum = &call->input[3],
                *squares = &call->input[4];
  int64_t width = x->size[x->rank - 1], rows = rows_of_operand(x);
  double epsilon = ((const NormAttr *)call->attr)->epsilon;
  for (int64_t r = 0; r < rows; r++) {
    double mean = sum->data ? operand_load(sum, r) / width_of(x) : 0,
           rstd = 1 / sqrt(operand_load(squares, r) / width_of(x) + epsilon);
    for (int64_t i = 0; i < width; i++) {
      double n = (operand_load(x, r * width + i) - mean) * rstd;
      operand_store(&call->output[0], r * width + i,
                    n * operand_load(gain, i) + (bias->data ? operand_load(bias, i) : 0));
    }
    if (sum->data) operand_store(&call->output[1], r, mean);
    operand_store(&call->output[1 + !!sum->data], r, rstd);
  }
}

const OpDef op_def_norm_apply = {
    .name = "norm_apply",
    .meaning =
        "x (…, e), gain (e), bias (e)?, sum (…)?, squares (…) of whole rows → y = (x - mean) rstd gain + bias, mean "
        "(…)?, rstd (…)",
    .shape = apply_shape,
    .rule = apply_rule,
    .reference = apply_reference,
    .in_place = 1,
};

// ---- NORM_GRAD_SUMS ------------------------------------------------------------------------------------------------

// dy (…, e), x (…, e), gain (e), mean (…) or -1, rstd (…) → Σ dy gain n (…, 1), or with a mean that and Σ dy gain (…,
// 2)
static void grad_sums_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 5);
  Tensor x = *graph_tensor(g, node->input[1]);
  Shape s = x.shape;
  CHECK(s.rank >= 1);
  s.dim[s.rank - 1] = DIM_NONE;
  s.size[s.rank - 1] = 1 + (node->input[3] >= 0);
  graph_output(g, node, "", op_statistics_dtype(x.dtype), s);
}

// Letters of x into all, of its rows into rows, of these with the values of a pair appended into pairs; and the
// clauses: a pair is whole.
static const char *pair_letters(const Graph *g, int x, char *all, char *rows, char *pairs, const char *linear,
                                char clauses[48]) {
  const char *e = op_row_letters(g, x, all, rows);
  uint32_t used = 0;
  for (const char *p = all; *p; p++) used |= 1u << (*p - 'a');
  char pair = op_letter(&used, DIM_NONE);
  snprintf(pairs, RULE_LETTERS + 1, "%s%c", rows, pair);
  snprintf(clauses, 48, "; linear %s ; whole %c", linear, pair);
  return e;
}

static void grad_sums_rule(const Graph *g, const Node *node, char *text, size_t size) {
  char x[RULE_LETTERS], rows[RULE_LETTERS], pairs[RULE_LETTERS + 1], clauses[48];
  const char *e = pair_letters(g, node->input[1], x, rows, pairs, "0", clauses);
  op_rule(text, size, (const char *[]){x, x, e, node->input[3] < 0 ? "" : rows, rows}, 5, (const char *[]){pairs}, 1,
          clauses);
}

static void grad_sums_reference(const KernelCall *call) {
  const Operand *dy = &call->input[0], *x = &call->input[1], *gain = &call->input[2], *mean = &call->input[3];
  int64_t width = x->size[x->rank - 1], rows = rows_of_operand(x);
  int pair = mean->data != NULL;
  for (int64_t r = 0; r < rows; r++) {
    double m = pair ? operand_load(mean, r) : 0, rstd = operand_load(&call->input[4], r), a = 0, b = 0;
    for (int64_t i = 0; i < width; i++) {
      double d = operand_load(dy, r * width + i) * operand_load(gain, i);
      a += d;
      b += d * (operand_load(x, r * width + i) - m) * rstd;
    }
    operand_store(&call->output[0], r * (1 + pair), b);
    if (pair) operand_store(&call->output[0], r * 2 + 1, a);
  }
}

const OpDef op_def_norm_grad_sums = {
    .name = "norm_grad_sums",
    .meaning = "dy, x (…, e), gain (e), mean (…)?, rstd (…) → Σ dy gain n and, with a mean, Σ dy gain (…, 1 or 2) with "
               "n = (x - "
               "mean) rstd, of this rank's part of a row",
    .shape = grad_sums_shape,
    .rule = grad_sums_rule,
    .reference = grad_sums_reference,
};

// ---- NORM_GRAD_APPLY -----------------------------------------------------------------------------------------------

// dy, x (…, e), gain (e), mean (…) or -1, rstd (…), sums (…, 1 or 2) → dx (…, e), dgain (e), dbias (e) when attr.bias
static void grad_apply_shape(Graph *g, Node *node) {
  CHECK(node->ninput == 6);
  Tensor x = *graph_tensor(g, node->input[1]), gain = *graph_tensor(g, node->input[2]);
  graph_output(g, node, "dx", x.dtype, x.shape);
  graph_output(g, node, "dgain", gain.dtype, gain.shape);
  if (node_attr(node, NormAttr)->bias) graph_output(g, node, "dbias", gain.dtype, gain.shape);
}

static void grad_apply_rule(const Graph *g, const Node *node, char *text, size_t size) {
  char x[RULE_LETTERS], rows[RULE_LETTERS], pairs[RULE_LETTERS + 1], clauses[48];
  const char *e = pair_letters(g, node->input[1], x, rows, pairs, "0+5", clauses);
  op_rule(text, size, (const char *[]){x, x, e, node->input[3] < 0 ? "" : rows, rows, pairs}, 6,
          (const char *[]){x, e, e}, node->noutput, clauses);
}

static void grad_apply_reference(const KernelCall *call) {
  const Operand *dy = &call->input[0], *x = &call->input[1], *gain = &call->input[2], *mean = &call->input[3];
  int64_t width = x->size[x->rank - 1], rows = rows_of_operand(x);
  int pair = mean->data != NULL;
  double *dgain = xcalloc((size_t)width * 2 + 1, sizeof *dgain), *dbias = dgain + width;
  for (int64_t r = 0; r < rows; r++) {
    double m = pair ? operand_load(mean, r) : 0, rstd = operand_load(&call->input[4], r),
           b = operand_load(&call->input[5], r * (1 + pair)) / width_of(x),
           a = pair ? operand_load(&call->input[5], r * 2 + 1) / width_of(x) : 0;
    for (int64_t i = 0; i < width; i++) {
      double d = operand_load(dy, r * width + i), n = (operand_load(x, r * width + i) - m) * rstd;
      dgain[i] += d * n;
      dbias[i] += d;
      operand_store(&call->output[0], r * width + i, (d * operand_load(gain, i) - a - n * b) * rstd);
    }
  }
  for (int64_t i = 0; i < width; i++)
    for (int k = 1; k < call->noutput; k++) operand_store(&call->output[k], i, k == 1 ? dgain[i] : dbias[i]);
  free(dgain);
}

const OpDef op_def_norm_grad_apply = {
    .name = "norm_grad_apply",
    .meaning =
        "dy, x (…, e), gain (e), mean (…)?, rstd (…), sums (…, 1 or 2) of whole rows → dx (…, e), dgain (e), dbias "
        "(e)?",
    .shape = grad_apply_shape,
    .rule = grad_apply_rule,
    .reference = grad_apply_reference,
    .in_place = 1,
};

// ---- what fuse makes of norms and their gradients ------------------------------------------------------------------

const Operand *norm_of_sum(const KernelCall *call) {
  if (!((const NormAttr *)call->attr)->sum) return &call->input[0];
  Operand term[] = {call->input[0], call->input[call->ninput - 1]};
  KernelCall add = *call;
  add.input = term;
  add.ninput = 2;
  add.output = &call->output[call->noutput - 1];
  add.noutput = 1;
  op_def(OP_ADD)->reference(&add);
  return add.output;
}

void norm_add_first(Node *node) { node_attr(node, NormAttr)->sum = 1; }
int norm_added_first(const Node *node) { return node_attr(node, NormAttr)->sum ? node->noutput - 1 : -1; }

int norm_grad_accumulate(Node *node) {
  NormAttr *attr = node_attr(node, NormAttr);
  if (attr->accumulate) return -1;
  attr->accumulate = 1;
  return 0;
}
int norm_grad_accumulated(const Node *node) { return node_attr(node, NormAttr)->accumulate ? 0 : -1; }

// ---- lowering ------------------------------------------------------------------------------------------------------

void norm_complete_clause(char *text, size_t size, char e, int noutput, const char *before) {
  size_t n = (size_t)snprintf(text, size, "%s; complete", before);
  for (int k = 1; k < noutput && n < size; k++) n += (size_t)snprintf(text + n, size - n, " %d %c", k, e);
}

static int all_reduced(Graph *g, const Node *like, const char *suffix, int x, uint32_t axes) {
  CommAttr attr = {.axes = axes};
  int n = graph_node(g, OP_ALL_REDUCE, op_derived_name(g, like, suffix), &x, 1, &attr, sizeof attr);
  return g->node.data[n].output[0];
}

static int row_sum(Graph *g, const Node *like, const char *suffix, int x, int sum, int squares) {
  NormSumAttr attr = {.squares = squares};
  int n = graph_node(g, OP_NORM_SUM, op_derived_name(g, like, suffix), (int[]){x, sum}, 2, &attr, sizeof attr);
  return g->node.data[n].output[0];
}

void norm_lower(Graph *g, const Node *like, uint32_t axes, int x, int gain, int bias, int centred, int *output) {
  int sum = -1;
  NormAttr attr = *node_attr(like, NormAttr);
  if (centred) sum = all_reduced(g, like, "all_reduce_sum", row_sum(g, like, "sum", x, -1, 0), axes);
  int squares = all_reduced(g, like, "all_reduce_squares", row_sum(g, like, "squares", x, sum, 1), axes);
  int n = graph_node(g, OP_NORM_APPLY, op_derived_name(g, like, "apply"), (int[]){x, gain, bias, sum, squares}, 5,
                     &attr, sizeof attr);
  for (int k = 0; k < like->noutput; k++) output[k] = g->node.data[n].output[k];
}

void norm_grad_lower(Graph *g, const Node *like, uint32_t axes, const int input[5], int *output) {
  NormAttr attr = *node_attr(like, NormAttr);
  int n = graph_node(g, OP_NORM_GRAD_SUMS, op_derived_name(g, like, "sums"), input, 5, NULL, 0);
  int sums = all_reduced(g, like, "all_reduce_sums", g->node.data[n].output[0], axes);
  int all[] = {input[0], input[1], input[2], input[3], input[4], sums};
  n = graph_node(g, OP_NORM_GRAD_APPLY, op_derived_name(g, like, "apply"), all, 6, &attr, sizeof attr);
  for (int k = 0; k < like->noutput; k++) output[k] = g->node.data[n].output[k];
}
