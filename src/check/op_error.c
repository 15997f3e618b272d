// Compares outputs, with bounds by dtype and by the terms of sums.
#include "check/op_error.h"
#include <math.h>
#include <stdio.h>

// About how many terms the sums of a call have.
static double reduction(Op op, const Operand *input, const Operand *output) {
  const Operand *a = &input[0], *b = &input[1];
  double n = (double)operand_elements(a);
  switch (op) {
  case OP_MATMUL:
  case OP_MATMUL_ACTIVATION:
  case OP_MATMUL_ACTIVATION_GRAD: return sqrt(n * (double)operand_elements(b) / (double)operand_elements(&output[0]));
  case OP_ATTENTION:
  case OP_ATTENTION_GRAD: return (double)(a->size[1] * a->size[3] + a->size[4]);
  case OP_LOGITS: return (double)(b->size[0] + b->size[1]);
  case OP_LINEAR_CROSS_ENTROPY:
  case OP_CROSS_ENTROPY_STATISTICS:
  case OP_CROSS_ENTROPY_WEIGHT:
  case OP_CROSS_ENTROPY_APPLY: return (double)(a->size[0] * a->size[1] + b->size[0] + b->size[1]);
  case OP_GROUPED: return (double)a->size[3];
  case OP_GROUPED_WEIGHT: return (double)a->size[0];
  case OP_COMBINE: return (double)input[0].size[2];
  case OP_COMBINE_GRAD: return (double)a->size[2];
  case OP_REDUCE: return n / (double)operand_elements(&output[0]);
  case OP_EMBEDDING_GRAD: return n;
  case OP_LAYER_NORM:
  case OP_RMS_NORM:
  case OP_LAYER_NORM_GRAD:
  case OP_RMS_NORM_GRAD: return n;
  default: return 1;
  }
}

Dtype op_kernel_dtype(const Operand *input, int ninput, const Operand *output) {
  for (int k = 0; k < ninput; k++)
    if (input[k].data && dtype_is_float(input[k].dtype)) return input[k].dtype;
  return output[0].dtype;
}

// Whether bf16 kernels round values between two products of the op: probabilities, gradients of scores and logits.
static int rounds_factors(Op op) {
  return op == OP_ATTENTION || op == OP_ATTENTION_GRAD || op == OP_CACHE_ATTENTION || op == OP_LINEAR_CROSS_ENTROPY ||
         op == OP_CROSS_ENTROPY_APPLY || op == OP_CROSS_ENTROPY_WEIGHT;
}

static float joined(const Operand *output, int noutput, int64_t i) {
  return bf16_join(((const uint16_t *)output[0].data)[i], ((const uint16_t *)output[noutput - 1].data)[i]);
}

// A comparison under way: the worst share of a bound so far, and the place of the first error that is above its bound.
typedef struct Comparison {
  const Operand *fast, *slow;
  int noutput;
  const OpBound *bound;
  double largest_term; // of sums that may cancel; 0: they do not
  double share;
  char *text;
  size_t size;
} Comparison;

// 1: `error` is above its bound, and the first that is: the caller says where.
static int is_first_wrong(Comparison *c, double error, double most) {
  most *= c->bound->factor;
  double share = error == 0 ? 0 : most > 0 && error <= INFINITY ? error / most : INFINITY; // NaN: infinite
  int first = !(c->share > 1) && share > 1;
  c->share = fmax(c->share, share);
  return first;
}

static void compare_split(Comparison *c) {
  for (int64_t i = 0, n = operand_elements(&c->slow[0]); i < n; i++) {
    double got = joined(c->fast, c->noutput, i), expected = joined(c->slow, c->noutput, i);
    if (is_first_wrong(c, fabs(got - expected), 0x1p-20 * (fabs(expected) + 1)))
      snprintf(c->text, c->size, "weight [%lld]: %.12g, reference %.12g", (long long)i, got, expected);
  }
}

// A row's sum may be relative to anything: the logarithm of the sum counts. Rows without a target have two zeros.
static void compare_sums(Comparison *of, double tolerance) {
  for (int64_t i = 0, n = operand_elements(&of->slow[2]); i < n; i++) {
    double a = operand_load(&of->fast[2], i), b = operand_load(&of->fast[3], i), c = operand_load(&of->slow[2], i),
           d = operand_load(&of->slow[3], i);
    double error = d > 0 ? fabs(a + log(b) - c - log(d)) : a != 0 || b != 0 ? INFINITY : 0;
    if (is_first_wrong(of, error, tolerance * (fabs(c) + 1)))
      snprintf(of->text, of->size, "sum [%lld]: e^%.12g · %.12g, reference e^%.12g · %.12g", (long long)i, a, b, c, d);
  }
}

// Of an output of dtype `stored`, where the kernel computes in `dtype`, relative to its largest element. Rounding
// errors of a sum of n terms grow like its square root.
static double tolerance_of(Op op, Dtype dtype, Dtype stored, double terms) {
  if (op == OP_REORDER_ROWS || op == OP_COUNT_ROWS || op == OP_SPLIT_POSITIONS || op == OP_JOIN_POSITIONS) return 0;
  double sums = 8 + 4 * sqrt(terms);
  // one rounding of what is stored, sums in fp32, and bf16 factors of some products
  if (dtype == DTYPE_BF16)
    return (stored == DTYPE_BF16 ? 0x1.1p-8 : 0) + (rounds_factors(op) ? 0x1p-7 : 0) + 0x1p-23 * sums;
  if (dtype == DTYPE_F16) return (stored == DTYPE_F16 ? 0x1.1p-11 : 0) + 0x1p-23 * sums; // fp32 inside
  double unit = stored == DTYPE_BF16 ? 0x1p-8 : stored == DTYPE_F16 ? 0x1p-11 : dtype == DTYPE_F64 ? 2e-14 : 0x1p-23;
  if (op == OP_EMBEDDING_GRAD && stored == DTYPE_F32) unit = 0x1p-23;
  if (op == OP_ORTHOGONALIZE) unit *= 485; // 3.4445⁵: so much rounding is amplified near singular values of 0
  return unit * sums;
}

static double largest_of(const Operand *x, int real) {
  double largest = 0;
  for (int64_t i = 0, n = operand_elements(x); i < n; i++)
    if (isfinite(operand_load(x, i)) && (!real || operand_valid(x, i)))
      largest = fmax(largest, fabs(operand_load(x, i)));
  return largest;
}

// Errors are relative to the largest element of an output.
static void compare_output(Comparison *c, int k, double tolerance) {
  const Operand *x = &c->fast[k], *y = &c->slow[k];
  int64_t n = operand_elements(y);
  double largest = fmax(largest_of(y, c->bound->real), c->largest_term);
  for (int64_t i = 0; i < n; i++) {
    double got = operand_load(x, i), expected = operand_load(y, i);
    if (c->bound->real && !operand_valid(y, i)) continue;
    double error = got == expected ? 0 : fabs(got - expected); // of two infinite ones, too
    if (is_first_wrong(c, error, tolerance * (fabs(expected) + largest + c->bound->least)))
      snprintf(c->text, c->size, "output %d [%lld]: %.12g, reference %.12g, largest %.3g, tolerance %.2g", k,
               (long long)i, got, expected, largest, tolerance);
  }
}

double op_error(Op op, const Operand *input, int ninput, const Operand *fast, const Operand *slow, int noutput,
                const OpBound *bound, char *text, size_t size) {
  Comparison c = {.fast = fast, .slow = slow, .noutput = noutput, .bound = bound, .text = text, .size = size};
  Dtype dtype = op_kernel_dtype(input, ninput, slow);
  double terms = reduction(op, input, slow);
  int split = noutput && slow[noutput - 1].dtype == DTYPE_U16; // its halves are compared together
  *text = 0;
  if (bound->real && op == OP_REDUCE) c.largest_term = largest_of(&input[0], 1);
  for (int k = 0; k < noutput - split; k++) {
    if (!slow[k].data) continue;
    double tolerance = tolerance_of(op, dtype, slow[k].dtype, terms);
    if (op == OP_LAYER_NORM_GRAD && k == 3 && dtype_size(dtype) == 2) // of dx before or after it is rounded
      tolerance += dtype == DTYPE_BF16 ? 0x1p-9 : 0x1p-12;
    if (split && !k) compare_split(&c);
    else if (op != OP_LINEAR_CROSS_ENTROPY || noutput != 4 || k < 2) compare_output(&c, k, tolerance);
    else if (k == 2) compare_sums(&c, tolerance);
  }
  return c.share;
}
