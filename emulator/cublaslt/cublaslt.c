// A cuBLASLt without a card, stricter than the real one: products in double, in the order of the emulated driver's streams.
// See ../README.md.
#include "../emulator.h"
#include "base/half.h"
#include "device/cuda/blas_abi.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLAS_ENTRY(result, name, parameters) name##_entry name;
#include "device/cuda/blas_entries.def"
#undef BLAS_ENTRY

enum { MARK_HANDLE = 0x68616e64, MARK_PRODUCT = 0x70726f64, MARK_LAYOUT = 0x6c61796f, MARK_WISH = 0x77697368, DEAD = 0 };
enum { ALGORITHMS = 3, WORKSPACE = 1 << 16, MOST_ALIGNED = 256, WORKSPACE_ALIGNED = 256, BEFORE_ALIGNED = 16, BEFORE_MULTIPLE = 8 };

struct BlasHandle_s { int mark; };
struct BlasProduct_s { int mark; BlasCompute compute; BlasDtype scale; int32_t transposed[2]; uint32_t epilogue; const void *bias, *before; int64_t before_step; };
struct BlasLayout_s { int mark; BlasDtype dtype; uint64_t rows, columns; int64_t step; };
struct BlasWish_s { int mark; uint64_t workspace; uint32_t reduction, aligned[4]; };

// Calls that were put into a stream, for tests.
extern long long emulated_cublaslt, emulated_cublaslt_functions; // the second: those with an activation
long long emulated_cublaslt, emulated_cublaslt_functions;

#define CHECK_MARK(x, value, what)                                                                                     \
  if (!(x) || (x)->mark != (value)) wrong(__func__, "%p is not a " what " that is alive", (const void *)(x))

static size_t size_of(const char *call, BlasDtype dtype) {
  if (dtype != BLAS_F64 && dtype != BLAS_F32 && dtype != BLAS_F16 && dtype != BLAS_BF16)
    wrong(call, "%u is a dtype that is not emulated", dtype);
  return dtype == BLAS_F64 ? 8 : dtype == BLAS_F32 ? 4 : 2;
}

// "32 48 64": products of these rows, columns and depth, by rows as plait has them; "32 48 64 2": by algorithm 2.
static int is_named(const char *variable, uint64_t rows, uint64_t columns, uint64_t depth, uint32_t algorithm) {
  const char *text = getenv(variable);
  unsigned long long a, b, c, d;
  int n = text ? sscanf(text, "%llu %llu %llu %llu", &a, &b, &c, &d) : 0;
  return n >= 3 && a == rows && b == columns && c == depth && (n < 4 || d == algorithm);
}

// PLAIT_EMULATED_BLAS_TAKES="32 48 64 2 0.96": milliseconds of such products by algorithm 2; of all others 1.
static double milliseconds_of(uint64_t rows, uint64_t columns, uint64_t depth, uint32_t algorithm) {
  const char *variable = "PLAIT_EMULATED_BLAS_TAKES", *text = getenv(variable);
  double takes;
  return is_named(variable, rows, columns, depth, algorithm) && sscanf(text, "%*u %*u %*u %*u %lf", &takes) == 1 ? takes : 1;
}

// PLAIT_EMULATED_BLAS_GELU=refused: no product has an activation; =after: where the value before it belongs the value after it is stored.
static int gelu_is(const char *word) {
  const char *text = getenv("PLAIT_EMULATED_BLAS_GELU");
  return text && !strcmp(text, word);
}

static int adds_bias(uint32_t epilogue) { return epilogue != BLAS_GELU_SLOPE && (epilogue & BLAS_ADDS_BIAS); }
static int has_function(uint32_t epilogue) { return epilogue == BLAS_GELU_SLOPE || (epilogue & BLAS_GELU); }
static int has_before(uint32_t epilogue) { return epilogue == BLAS_GELU_SLOPE || (epilogue & ~(uint32_t)BLAS_ADDS_BIAS) == BLAS_GELU_KEEPS; }

static int is_epilogue(uint32_t epilogue) {
  const uint32_t function = epilogue & ~(uint32_t)BLAS_ADDS_BIAS;
  return epilogue == BLAS_ADDS_NOTHING || epilogue == BLAS_ADDS_BIAS || function == BLAS_GELU || function == BLAS_GELU_KEEPS || epilogue == BLAS_GELU_SLOPE;
}

// Descriptions ---------------------------------------------------------------------------------------------------------

size_t cublasLtGetVersion(void) { return 120900; }

const char *cublasLtGetStatusName(BlasStatus status) {
  return status == BLAS_OK ? "CUBLAS_STATUS_SUCCESS" : status == BLAS_BAD_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_NOT_SUPPORTED";
}

BlasStatus cublasLtCreate(BlasHandle *handle) {
  leave(enter(__func__, NEEDS_CONTEXT, NULL));
  *handle = malloc(sizeof **handle);
  (*handle)->mark = MARK_HANDLE;
  return BLAS_OK;
}

BlasStatus cublasLtMatmulDescCreate(BlasProduct *product, BlasCompute compute, BlasDtype scale) {
  if (!(compute == BLAS_SUMS_F32 && scale == BLAS_F32) && !(compute == BLAS_SUMS_F64 && scale == BLAS_F64))
    wrong(__func__, "sums %u with factors %u are not emulated (TF32 never is)", compute, scale);
  *product = malloc(sizeof **product);
  **product = (struct BlasProduct_s){.mark = MARK_PRODUCT, .compute = compute, .scale = scale, .epilogue = BLAS_ADDS_NOTHING};
  return BLAS_OK;
}

BlasStatus cublasLtMatmulDescDestroy(BlasProduct product) {
  CHECK_MARK(product, MARK_PRODUCT, "product");
  product->mark = DEAD;
  free(product);
  return BLAS_OK;
}

static void take(const char *call, void *to, size_t size, const void *value, size_t bytes) {
  if (bytes != size) wrong(call, "a value of %zu bytes stands for one of %zu", bytes, size);
  memcpy(to, value, size);
}

BlasStatus cublasLtMatmulDescSetAttribute(BlasProduct product, BlasAttribute attribute, const void *value, size_t bytes) {
  CHECK_MARK(product, MARK_PRODUCT, "product");
  if (attribute == BLAS_IS_A_TRANSPOSED || attribute == BLAS_IS_B_TRANSPOSED) {
    int32_t *to = &product->transposed[attribute == BLAS_IS_B_TRANSPOSED];
    take(__func__, to, sizeof *to, value, bytes);
    if (*to != BLAS_AS_IT_IS && *to != BLAS_TRANSPOSED) wrong(__func__, "%d is not a transposition", (int)*to);
  } else if (attribute == BLAS_IS_EPILOGUE) {
    take(__func__, &product->epilogue, sizeof product->epilogue, value, bytes);
    if (!is_epilogue(product->epilogue)) wrong(__func__, "the epilogue %u is not emulated", product->epilogue);
  } else if (attribute == BLAS_IS_BIAS) take(__func__, &product->bias, sizeof product->bias, value, bytes);
  else if (attribute == BLAS_IS_BEFORE) {
    take(__func__, &product->before, sizeof product->before, value, bytes);
    if ((uintptr_t)product->before % BEFORE_ALIGNED) wrong(__func__, "the epilogue's matrix lies at %p", product->before);
  } else if (attribute == BLAS_IS_BEFORE_STEP) {
    take(__func__, &product->before_step, sizeof product->before_step, value, bytes);
    if (product->before_step <= 0 || product->before_step % BEFORE_MULTIPLE)
      wrong(__func__, "the leading dimension %lld of the epilogue's matrix is not a multiple of %d", (long long)product->before_step, BEFORE_MULTIPLE);
  }
  else wrong(__func__, "the attribute %u is not emulated", attribute);
  return BLAS_OK;
}

BlasStatus cublasLtMatrixLayoutCreate(BlasLayout *layout, BlasDtype dtype, uint64_t rows, uint64_t columns, int64_t step) {
  size_of(__func__, dtype);
  if (!rows || !columns) wrong(__func__, "a matrix of %llu × %llu", (unsigned long long)rows, (unsigned long long)columns);
  if (step < (int64_t)rows)
    wrong(__func__, "the leading dimension %lld is less than the %llu rows of a column", (long long)step, (unsigned long long)rows);
  *layout = malloc(sizeof **layout);
  **layout = (struct BlasLayout_s){MARK_LAYOUT, dtype, rows, columns, step};
  return BLAS_OK;
}

BlasStatus cublasLtMatrixLayoutDestroy(BlasLayout layout) {
  CHECK_MARK(layout, MARK_LAYOUT, "layout");
  layout->mark = DEAD;
  free(layout);
  return BLAS_OK;
}

BlasStatus cublasLtMatmulPreferenceCreate(BlasWish *wish) {
  *wish = malloc(sizeof **wish);
  **wish = (struct BlasWish_s){MARK_WISH, 0, 0xff, {MOST_ALIGNED, MOST_ALIGNED, MOST_ALIGNED, MOST_ALIGNED}};
  return BLAS_OK;
}

BlasStatus cublasLtMatmulPreferenceDestroy(BlasWish wish) {
  CHECK_MARK(wish, MARK_WISH, "preference");
  wish->mark = DEAD;
  free(wish);
  return BLAS_OK;
}

BlasStatus cublasLtMatmulPreferenceSetAttribute(BlasWish wish, BlasAttribute attribute, const void *value, size_t bytes) {
  CHECK_MARK(wish, MARK_WISH, "preference");
  if (attribute == BLAS_IS_WORKSPACE) take(__func__, &wish->workspace, sizeof wish->workspace, value, bytes);
  else if (attribute == BLAS_IS_REDUCTION) take(__func__, &wish->reduction, sizeof wish->reduction, value, bytes);
  else if (attribute >= BLAS_IS_A_ALIGNED && attribute <= BLAS_IS_D_ALIGNED) {
    uint32_t *to = &wish->aligned[attribute - BLAS_IS_A_ALIGNED];
    take(__func__, to, sizeof *to, value, bytes);
    if (!*to || *to & (*to - 1) || *to > MOST_ALIGNED) wrong(__func__, "an alignment of %u bytes", *to);
  } else wrong(__func__, "the attribute %u is not emulated", attribute);
  return BLAS_OK;
}

// Products -------------------------------------------------------------------------------------------------------------

// The call that an algorithm was proposed for: it serves no other one.
typedef struct Proposed { uint64_t call, workspace; uint32_t aligned[4]; uint32_t bias_aligned, number; } Proposed;
_Static_assert(sizeof(Proposed) <= sizeof(BlasAlgorithm), "");

static uint64_t hash_of(BlasProduct p, BlasLayout a, BlasLayout b, BlasLayout c, BlasLayout d) {
  uint64_t h = 14695981039346656037u;
  const BlasLayout layouts[] = {a, b, c, d};
#define MIX(x) h = (h ^ (uint64_t)(x)) * 1099511628211u
  MIX(p->compute), MIX(p->epilogue), MIX(p->before_step), MIX(p->transposed[0]), MIX(p->transposed[1]);
  for (int i = 0; i < 4; i++) MIX(layouts[i]->dtype), MIX(layouts[i]->rows), MIX(layouts[i]->columns), MIX(layouts[i]->step);
#undef MIX
  return h;
}

static uint64_t rows_of(BlasLayout x, int transposed) { return transposed ? x->columns : x->rows; }
static uint64_t columns_of(BlasLayout x, int transposed) { return transposed ? x->rows : x->columns; }

static void check_shapes(const char *call, BlasProduct p, BlasLayout a, BlasLayout b, BlasLayout c, BlasLayout d) {
  CHECK_MARK(p, MARK_PRODUCT, "product");
  CHECK_MARK(a, MARK_LAYOUT, "layout");
  CHECK_MARK(b, MARK_LAYOUT, "layout");
  CHECK_MARK(c, MARK_LAYOUT, "layout");
  CHECK_MARK(d, MARK_LAYOUT, "layout");
  const int ta = p->transposed[0] == BLAS_TRANSPOSED, tb = p->transposed[1] == BLAS_TRANSPOSED;
  if (rows_of(a, ta) != d->rows || columns_of(b, tb) != d->columns || columns_of(a, ta) != rows_of(b, tb))
    wrong(call, "%llu × %llu times %llu × %llu is not %llu × %llu", (unsigned long long)rows_of(a, ta),
          (unsigned long long)columns_of(a, ta), (unsigned long long)rows_of(b, tb), (unsigned long long)columns_of(b, tb),
          (unsigned long long)d->rows, (unsigned long long)d->columns);
  if (c->rows != d->rows || c->columns != d->columns || c->dtype != d->dtype) wrong(call, "C and D are not alike");
  if (a->dtype != b->dtype) wrong(call, "A and B have two dtypes");
  if (!has_before(p->epilogue)) return;
  if (!p->before) wrong(call, "the epilogue has a further matrix, and there is none");
  if (p->before_step < (int64_t)d->rows)
    wrong(call, "the leading dimension %lld of the epilogue's matrix is less than the %llu rows of a column", (long long)p->before_step, (unsigned long long)d->rows);
}

static int is_supported(BlasProduct p, BlasLayout a, BlasLayout d) {
  if ((p->compute == BLAS_SUMS_F64) != (a->dtype == BLAS_F64)) return 0;
  if (a->dtype == BLAS_F64 && (d->dtype != BLAS_F64 || p->epilogue != BLAS_ADDS_NOTHING)) return 0;
  if (has_function(p->epilogue) && (d->dtype != a->dtype || gelu_is("refused"))) return 0;
  return d->dtype == a->dtype || (d->dtype == BLAS_F32 && a->dtype != BLAS_F64);
}

static uint32_t alignment_of(const void *at) {
  const uintptr_t x = (uintptr_t)at | MOST_ALIGNED;
  return (uint32_t)(x & ~(x - 1));
}

BlasStatus cublasLtMatmulAlgoGetHeuristic(BlasHandle handle, BlasProduct product, BlasLayout a, BlasLayout b, BlasLayout c,
                                          BlasLayout d, BlasWish wish, int most, BlasProposal *proposal, int *count) {
  CHECK_MARK(handle, MARK_HANDLE, "handle");
  CHECK_MARK(wish, MARK_WISH, "preference");
  check_shapes(__func__, product, a, b, c, d);
  if (most < 1) wrong(__func__, "%d proposals are asked for", most);
  if (wish->reduction & 1) wrong(__func__, "reductions in the output may be proposed, whose bits differ from run to run");
  *count = 0;
  const uint64_t depth = columns_of(a, product->transposed[0] == BLAS_TRANSPOSED);
  if (!is_supported(product, a, d) || wish->workspace < WORKSPACE || is_named("PLAIT_EMULATED_BLAS_REFUSES", d->columns, d->rows, depth, ALGORITHMS))
    return BLAS_UNSUPPORTED;
  Proposed what = {.call = hash_of(product, a, b, c, d), .workspace = WORKSPACE,
                   .bias_aligned = adds_bias(product->epilogue) ? alignment_of(product->bias) : 1};
  memcpy(what.aligned, wish->aligned, sizeof what.aligned);
  for (; *count < most && *count < ALGORITHMS; ++*count) {
    what.number = (uint32_t)*count;
    proposal[*count] = (BlasProposal){.workspace = WORKSPACE, .status = BLAS_OK, .waves = 1};
    memcpy(&proposal[*count].algorithm, &what, sizeof what);
  }
  return BLAS_OK;
}

typedef struct Multiply {
  struct BlasProduct_s product;
  struct BlasLayout_s a, b, d;
  double alpha, beta;
  int spoiled, keeps_after;
  uint32_t algorithm;
} Multiply;
_Static_assert(sizeof(Multiply) <= sizeof((LibraryCall *)0)->arguments, "");

static double load(const char *at, BlasDtype dtype, uint64_t i) {
  uint16_t half;
  if (dtype == BLAS_F64) return ((const double *)(const void *)at)[i];
  if (dtype == BLAS_F32) return ((const float *)(const void *)at)[i];
  memcpy(&half, at + 2 * i, sizeof half);
  if (dtype == BLAS_F16) return half_to_float(half);
  const uint32_t bits = (uint32_t)half << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static void store(char *at, BlasDtype dtype, uint64_t i, double value) {
  float x = (float)value;
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  uint16_t half = dtype == BLAS_F16 ? half_from_float(x) : isnan(x) ? 0x7fc0 : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
  if (dtype == BLAS_F64) ((double *)(void *)at)[i] = value;
  else if (dtype == BLAS_F32) ((float *)(void *)at)[i] = x;
  else memcpy(at + 2 * i, &half, sizeof half);
}

// Operand of a product as (rows, depth), in double.
static double *widen(const char *at, const struct BlasLayout_s *x, int by_rows) {
  double *y = malloc(sizeof *y * (size_t)(x->rows * x->columns));
  for (uint64_t column = 0; column < x->columns; column++)
    for (uint64_t row = 0; row < x->rows; row++)
      y[by_rows ? row * x->columns + column : column * x->rows + row] = load(at, x->dtype, column * (uint64_t)x->step + row);
  return y;
}

static double gelu_of(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x))); }
static double gelu_slope_of(double x) {
  const double root = sqrt(2 / 3.14159265358979323846), t = tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}

// The sum as D has it. before: the epilogue's matrix, or NULL.
static double apply(const Multiply *m, double sum, char *before, uint64_t at) {
  if (m->product.epilogue == BLAS_GELU_SLOPE) return sum * gelu_slope_of(load(before, m->d.dtype, at));
  if (!has_function(m->product.epilogue)) return sum;
  if (before) store(before, m->d.dtype, at, m->keeps_after ? gelu_of(sum) : sum);
  return gelu_of(sum);
}

// Operands: A, B, C, D, the workspace, the bias, the epilogue's matrix.
static void run(const LibraryCall *call) {
  const Multiply *m = (const Multiply *)(const void *)call->arguments;
  const int ta = m->product.transposed[0] == BLAS_TRANSPOSED, tb = m->product.transposed[1] == BLAS_TRANSPOSED;
  const uint64_t depth = ta ? m->a.rows : m->a.columns, rows = m->d.rows, columns = m->d.columns;
  double *a = widen(call->own[0], &m->a, !ta), *b = widen(call->own[1], &m->b, tb);
  char *before = has_before(m->product.epilogue) ? call->own[call->operands - 1] : NULL;
  memset(call->own[4], 0xff, WORKSPACE); // nothing of anybody's is there
  for (uint64_t column = 0; column < columns; column++)
    for (uint64_t row = 0; row < rows; row++) {
      const uint64_t at = column * (uint64_t)m->d.step + row;
      double sum = 0;
      for (uint64_t k = 0; k < depth; k++) {
        sum += a[row * depth + k] * b[column * depth + k];
        if (m->algorithm && m->product.scale != BLAS_F64) sum = (double)(float)sum; // so it has other bits
      }
      sum *= m->alpha;
      if (m->beta != 0) sum += m->beta * load(call->own[2], m->d.dtype, at);
      if (adds_bias(m->product.epilogue)) sum += load(call->own[5], m->d.dtype, row);
      sum = apply(m, sum, before, column * (uint64_t)m->product.before_step + row);
      if (m->spoiled && column == columns - 1 && row == rows - 1) sum += 0.1 * (double)depth;
      store(call->own[3], m->d.dtype, at, sum);
    }
  free(a);
  free(b);
}

static CudaOperand operand_of(const char *call, const char *name, const void *at, BlasLayout x, uint32_t aligned, unsigned mode) {
  if (alignment_of(at) < aligned) wrong(call, "%s lies at %p, and the algorithm is one for %u bytes", name, at, aligned);
  return (CudaOperand){name, (CudaPointer)(uintptr_t)at,
                       ((size_t)x->step * (size_t)(x->columns - 1) + (size_t)x->rows) * size_of(call, x->dtype), mode};
}

static void check_apart(const char *call, const CudaOperand *x, const CudaOperand *d) {
  if (x->at < d->at + d->bytes && d->at < x->at + x->bytes) wrong(call, "%s lies in the memory of D", x->name);
}

BlasStatus cublasLtMatmul(BlasHandle handle, BlasProduct product, const void *alpha, const void *a, BlasLayout a_layout,
                          const void *b, BlasLayout b_layout, const void *beta, const void *c, BlasLayout c_layout, void *d,
                          BlasLayout d_layout, const BlasAlgorithm *algorithm, void *workspace, size_t bytes, CudaStream stream) {
  CHECK_MARK(handle, MARK_HANDLE, "handle");
  check_shapes(__func__, product, a_layout, b_layout, c_layout, d_layout);
  Proposed what;
  if (!algorithm) wrong(__func__, "no algorithm is given, and the one that it takes then may change from call to call");
  memcpy(&what, algorithm, sizeof what);
  if (what.call != hash_of(product, a_layout, b_layout, c_layout, d_layout)) wrong(__func__, "the algorithm was proposed for another product");
  if (bytes < what.workspace) wrong(__func__, "the algorithm needs a workspace of %llu bytes, not %zu", (unsigned long long)what.workspace, bytes);
  if ((uintptr_t)workspace % WORKSPACE_ALIGNED) wrong(__func__, "the workspace lies at %p", workspace);
  LibraryCall call = {.operands = 5, .run = run};
  Multiply m = {.product = *product, .a = *a_layout, .b = *b_layout, .d = *d_layout};
  const int is_f64 = product->scale == BLAS_F64;
  m.alpha = is_f64 ? *(const double *)alpha : (double)*(const float *)alpha;
  m.beta = is_f64 ? *(const double *)beta : (double)*(const float *)beta;
  const uint64_t depth = columns_of(a_layout, product->transposed[0] == BLAS_TRANSPOSED);
  m.spoiled = is_named("PLAIT_EMULATED_BLAS_SPOILS", d_layout->columns, d_layout->rows, depth, what.number);
  m.algorithm = what.number;
  m.keeps_after = gelu_is("after");
  call.milliseconds = milliseconds_of(d_layout->columns, d_layout->rows, depth, what.number);
  call.operand[0] = operand_of(__func__, "A", a, a_layout, what.aligned[0], CUDA_READS);
  call.operand[1] = operand_of(__func__, "B", b, b_layout, what.aligned[1], CUDA_READS);
  call.operand[2] = operand_of(__func__, "C", c, c_layout, what.aligned[2], CUDA_READS);
  call.operand[3] = operand_of(__func__, "D", d, d_layout, what.aligned[3], CUDA_WRITES);
  call.operand[4] = (CudaOperand){"the workspace", (CudaPointer)(uintptr_t)workspace, bytes, CUDA_WRITES};
  if (adds_bias(product->epilogue)) {
    const struct BlasLayout_s vector = {MARK_LAYOUT, d_layout->dtype, d_layout->rows, 1, (int64_t)d_layout->rows};
    if (!product->bias) wrong(__func__, "the epilogue adds a bias, and there is none");
    call.operand[call.operands++] = operand_of(__func__, "the bias", product->bias, (BlasLayout)(uintptr_t)&vector, what.bias_aligned, CUDA_READS);
  }
  if (has_before(product->epilogue)) {
    const struct BlasLayout_s matrix = {MARK_LAYOUT, d_layout->dtype, d_layout->rows, d_layout->columns, product->before_step};
    call.operand[call.operands++] = operand_of(__func__, "the epilogue's matrix", product->before, (BlasLayout)(uintptr_t)&matrix, BEFORE_ALIGNED,
                                               product->epilogue == BLAS_GELU_SLOPE ? CUDA_READS : CUDA_WRITES);
  }
  for (int i = 0; i < call.operands; i++)
    if (i != 3 && !(i == 2 && c == d)) check_apart(__func__, &call.operand[i], &call.operand[3]);
  memcpy(call.arguments, &m, sizeof m);
  emulated_cublaslt++;
  emulated_cublaslt_functions += has_function(product->epilogue);
  return emulated_library_call(__func__, stream, &call) ? BLAS_BAD_VALUE : BLAS_OK;
}
