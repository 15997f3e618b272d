// Makes variants of a case, and compares outputs.
#include "check/op_variant.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const op_variant_name[VARIANTS] = {
    "", " sharded", " empty", " empty sharded", " empty of no rows", " in place", " sum in place"};

// ---- variants of a case

static void zero_tail(Operand *x, int64_t valid) {
  int64_t row = operand_extent(x, 1, x->rank);
  for (int64_t i = valid * row; i < x->size[0] * row; i++) operand_store(x, i, 0);
}

// The table of an embedding or head as one shard of a larger, padded one.
static void shard_rows(Operand *x, int zero) {
  int64_t n = x->size[0];
  x->map[0] = (IndexMap){.local = n, .valid = n - 2, .global = 2 * n, .runs = 1, .run = {{0, 3}}};
  if (zero) zero_tail(x, n - 2);
}

// A sequence dim as one of two shards in zigzag order.
static void zigzag(Operand *x, int dim) {
  int64_t n = x->size[dim];
  x->map[dim] =
      (IndexMap){.local = n, .valid = n, .global = 2 * n, .runs = n > 1 ? 2 : 1, .run = {{0, n}, {n / 2, 2 * n + 3}}};
}

// What a gradient reads of the forward pass, by the maps that its operands have now.
static void attention_again(OpCase *c) {
  KernelCall call = op_case_call(c);
  call.ninput = 5;
  call.noutput = 2;
  call.output = &c->input[5];
  op_def(OP_ATTENTION)->reference(&call);
}

// 0: the op has no such variant.
static int make_sharded(OpCase *c) {
  switch (c->op) {
  case OP_EMBEDDING: shard_rows(&c->input[0], 1); return 1;
  case OP_EMBEDDING_GRAD: shard_rows(&c->output[0], 0); return 1;
  case OP_LOGITS:
  case OP_LINEAR_CROSS_ENTROPY:
  case OP_CROSS_ENTROPY_STATISTICS:
  case OP_CROSS_ENTROPY_WEIGHT:
  case OP_CROSS_ENTROPY_APPLY: shard_rows(&c->input[1], 1); return 1;
  case OP_ATTENTION:
  case OP_ATTENTION_GRAD:
    for (int k = 0; k < 3; k++) zigzag(&c->input[k], 1);
    c->input[0].map[2].run[0].global = 5;
    c->input[0].map[2].global = 9;
    if (c->op == OP_ATTENTION_GRAD) attention_again(c);
    return 1;
  case OP_DROPOUT:
    zigzag(&c->input[0], 1);
    if (c->input[0].rank > 2) {
      c->input[0].map[2].run[0].global = 3;
      c->input[0].map[2].global = c->input[0].size[2] + 9;
    }
    return 1;
  case OP_FILL:
  case OP_SUM_SQUARES:
    c->input[0].map[0].valid = c->output[0].map[0].valid =
        c->input[0].size[0] - 1; // the garbage after them must not count
    return 1;
  default: return 0;
  }
}

static void drop_rows(Operand *x) { x->size[0] = 0; }

static int make_rowless(OpCase *c) {
  switch (c->op) {
  case OP_MATMUL:
    if (node_attr(&c->graph->node.data[c->node], MatmulAttr)->kind != MATMUL_TN) return 0;
    for (int k = 0; k < 2; k++) drop_rows(&c->input[k]);
    return 1;
  case OP_EMBEDDING_GRAD:
    for (int k = 0; k < 2; k++) drop_rows(&c->input[k]);
    return 1;
  case OP_GROUPED_WEIGHT:
    for (int k = 0; k < 3; k++) drop_rows(&c->input[k]);
    return 1;
  case OP_LINEAR_CROSS_ENTROPY:
  case OP_CROSS_ENTROPY_WEIGHT:
  case OP_CROSS_ENTROPY_APPLY:
    for (int k = 0; k < c->ninput - 1; k++)
      if (c->input[k].rank > 1 && k != 1) drop_rows(&c->input[k]);
    if (c->op != OP_CROSS_ENTROPY_WEIGHT) drop_rows(&c->output[1]);
    return 1;
  default: return 0;
  }
}

// Whatever the output holds, all of it is stored.
static int make_empty(OpCase *c, int sharded, int rows) {
  if (!op_case_empty(c)) return 0;
  for (int k = 0; k < c->noutput; k++)
    memset(c->output[k].data, 0xff, (size_t)operand_elements(&c->output[k]) * dtype_size(c->output[k].dtype));
  return (!sharded || make_sharded(c)) && (rows || make_rowless(c));
}

static int make_in_place(OpCase *c) {
  int pairs = op_def(c->op)->in_place;
  if (!pairs || c->op == OP_CAST) return 0;
  for (int k = 0; k < pairs && k < c->noutput; k++) {
    if (c->output[k].data == c->input[k].data || c->output[k].dtype != c->input[k].dtype) return 0;
    free(c->output[k].data);
    c->output[k].data = c->input[k].data;
  }
  return 1;
}

// What the last input is added to lies in its memory, and what else may in that of other inputs.
static int make_sum_in_place(OpCase *c) {
  const OpDef *op = op_def(c->op);
  int sum = op->accumulated ? op->accumulated(&c->graph->node.data[c->node]) : -1, last = c->ninput - 1;
  if (sum < 0 || c->output[sum].data == c->input[last].data || c->output[sum].dtype != c->input[last].dtype) return 0;
  for (int k = 0; k < c->noutput; k++) {
    int from = k == sum ? last : k < op->in_place ? k : -1;
    if (from < 0) continue;
    free(c->output[k].data);
    c->output[k].data = c->input[from].data;
  }
  return 1;
}

// A copy of the case as that variant of it. 0: it has none.
int op_case_variant(const OpCase *whole, Variant variant, OpCase *c) {
  op_case_copy(whole, c);
  if (variant == WHOLE || (variant == SHARDED    ? make_sharded(c)
                           : variant < IN_PLACE  ? make_empty(c, variant == EMPTY_SHARDED, variant != EMPTY_NO_ROWS)
                           : variant == IN_PLACE ? make_in_place(c)
                                                 : make_sum_in_place(c)))
    return 1;
  op_case_free(c);
  return 0;
}

// ---- comparison

// About how many terms the sums of the case have.
static double reduction(const OpCase *c) {
  const Operand *a = &c->input[0], *b = &c->input[1];
  double n = (double)operand_elements(a);
  switch (c->op) {
  case OP_MATMUL: return sqrt(n * (double)operand_elements(b) / (double)operand_elements(&c->output[0]));
  case OP_ATTENTION:
  case OP_ATTENTION_GRAD: return (double)(a->size[1] * a->size[3] + a->size[4]);
  case OP_LOGITS: return (double)(b->size[0] + b->size[1]);
  case OP_LINEAR_CROSS_ENTROPY:
  case OP_CROSS_ENTROPY_STATISTICS:
  case OP_CROSS_ENTROPY_WEIGHT:
  case OP_CROSS_ENTROPY_APPLY: return (double)(a->size[0] * a->size[1] + b->size[0] + b->size[1]);
  case OP_GROUPED: return (double)a->size[3];
  case OP_GROUPED_WEIGHT: return (double)a->size[0];
  case OP_COMBINE: return (double)c->input[0].size[2];
  case OP_COMBINE_GRAD: return (double)a->size[2];
  case OP_REDUCE: return n / (double)operand_elements(&c->output[0]);
  case OP_EMBEDDING_GRAD: return n;
  case OP_LAYER_NORM:
  case OP_RMS_NORM:
  case OP_LAYER_NORM_GRAD:
  case OP_RMS_NORM_GRAD: return n;
  default: return 1;
  }
}

Dtype op_case_dtype(const OpCase *c) {
  for (int k = 0; k < c->ninput; k++)
    if (c->input[k].data && dtype_is_float(c->input[k].dtype)) return c->input[k].dtype;
  return c->output[0].dtype;
}

// Whether bf16 kernels round values between two products of the op: probabilities, gradients of scores and logits.
static int rounds_factors(Op op) {
  return op == OP_ATTENTION || op == OP_ATTENTION_GRAD || op == OP_CACHE_ATTENTION || op == OP_LINEAR_CROSS_ENTROPY ||
         op == OP_CROSS_ENTROPY_APPLY || op == OP_CROSS_ENTROPY_WEIGHT;
}

static float joined(const OpCase *c, int64_t i) {
  return bf16_join(((const uint16_t *)c->output[0].data)[i],
                   ((const uint16_t *)c->output[c->noutput - 1].data)[i]);
}

// The worst of a comparison so far: an error's share of its bound, and the place of the first that is above it.
typedef struct Worst { double share; char *text; size_t size; } Worst;

// 1: `error` is above `bound`, and the first that is; the caller says where in worst->text.
static int is_first_wrong(Worst *worst, double error, double bound) {
  double share = error == 0 ? 0 : bound > 0 && error <= INFINITY ? error / bound : INFINITY; // NaN: infinite
  int first = !(worst->share > 1) && share > 1;
  worst->share = fmax(worst->share, share);
  return first;
}

static void compare_split(const OpCase *fast, const OpCase *slow, Worst *worst) {
  for (int64_t i = 0, n = operand_elements(&slow->output[0]); i < n; i++) {
    double got = joined(fast, i), expected = joined(slow, i);
    if (is_first_wrong(worst, fabs(got - expected), 0x1p-20 * (fabs(expected) + 1)))
      snprintf(worst->text, worst->size, "weight [%lld]: %.12g, reference %.12g", (long long)i, got, expected);
  }
}

// A row's sum may be relative to anything: the logarithm of the sum counts. Rows without a target have two zeros.
static void compare_sums(const OpCase *fast, const OpCase *slow, double tolerance, Worst *worst) {
  for (int64_t i = 0, n = operand_elements(&slow->output[2]); i < n; i++) {
    double a = operand_load(&fast->output[2], i), b = operand_load(&fast->output[3], i),
           c = operand_load(&slow->output[2], i), d = operand_load(&slow->output[3], i);
    double error = d > 0 ? fabs(a + log(b) - c - log(d)) : a != 0 || b != 0 ? INFINITY : 0;
    if (is_first_wrong(worst, error, tolerance * (fabs(c) + 1)))
      snprintf(worst->text, worst->size, "sum [%lld]: e^%.12g · %.12g, reference e^%.12g · %.12g", (long long)i, a, b,
               c, d);
  }
}

// Rounding errors of a sum of n terms grow like its square root; they are relative to the largest element (the inputs
// are about 1, and where all cancels, their rounding stays).
double op_case_error(const OpCase *fast, const OpCase *slow, char *text, size_t size) {
  Worst worst = {0, text, size};
  *text = 0;
  int split = slow->noutput && slow->output[slow->noutput - 1].dtype == DTYPE_U16; // its halves are compared together
  for (int k = 0; k < slow->noutput - split; k++) {
    const Operand *x = &fast->output[k], *y = &slow->output[k];
    if (!y->data) continue;
    if (split && !k) {
      compare_split(fast, slow, &worst);
      continue;
    }
    double unit = x->dtype == DTYPE_BF16                                                       ? 0x1p-8
                  : op_case_dtype(slow) == DTYPE_F64 ? 2e-14 : 0x1p-23;
    if (slow->op == OP_ORTHOGONALIZE) unit *= 485; // 3.4445⁵: so much rounding is amplified near singular values of 0
    if (slow->op == OP_EMBEDDING_GRAD && y->dtype == DTYPE_F32) unit = 0x1p-23;
    double terms = reduction(slow), tolerance = unit * (8 + 4 * sqrt(terms)), largest = 0;
    if (op_case_dtype(slow) ==
        DTYPE_BF16) { // one rounding of what is stored, sums in fp32, and bf16 factors of some products
      double store = x->dtype == DTYPE_BF16 ? 0x1.1p-8 : 0, factors = rounds_factors(slow->op) ? 0x1p-7 : 0;
      tolerance = store + factors + 0x1p-23 * (8 + 4 * sqrt(terms));
    }
    if (op_case_dtype(slow) == DTYPE_F16)
      tolerance = (x->dtype == DTYPE_F16 ? 0x1.1p-11 : 0) + 0x1p-23 * (8 + 4 * sqrt(terms)); // fp32 inside
    if (slow->op == OP_LINEAR_CROSS_ENTROPY && slow->noutput == 4 && k >= 2) {
      if (k == 2) compare_sums(fast, slow, tolerance, &worst);
      continue;
    }
    if (slow->op == OP_REORDER_ROWS || slow->op == OP_SPLIT_POSITIONS || slow->op == OP_JOIN_POSITIONS) tolerance = 0;
    int64_t n = operand_elements(y);
    for (int64_t i = 0; i < n; i++)
      if (isfinite(operand_load(y, i))) largest = fmax(largest, fabs(operand_load(y, i)));
    for (int64_t i = 0; i < n; i++) {
      double got = operand_load(x, i), expected = operand_load(y, i);
      double error = got == expected ? 0 : fabs(got - expected); // of two infinite ones, too
      if (is_first_wrong(&worst, error, tolerance * (fabs(expected) + largest + 0.1)))
        snprintf(text, size, "output %d [%lld]: %.12g, reference %.12g, largest %.3g, tolerance %.2g", k, (long long)i,
                 got, expected, largest, tolerance);
    }
  }
  return worst.share;
}

int op_case_other_bits(const OpCase *a, const OpCase *b) {
  for (int k = 0; k < a->noutput; k++)
    if (a->output[k].data && memcmp(a->output[k].data, b->output[k].data,
                                    (size_t)operand_elements(&a->output[k]) * dtype_size(a->output[k].dtype)))
      return k;
  return -1;
}
