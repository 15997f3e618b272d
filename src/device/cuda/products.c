#include "device/cuda/product_parts.h"
#include "device/cuda/launch.h"
#include <stdio.h>
#include <string.h>

static int start(CudaInstance *c, Error *error) {
  const CudaBlas *blas = cuda_blas(c->driver, error);
  if (!blas) return PLAIT_INFEASIBLE;
  CudaProducts *p = xcalloc(1, sizeof *p);
  p->blas = blas;
  BlasStatus status = blas->cublasLtCreate(&p->handle);
  if (status) {
    free(p);
    return error_set(error, PLAIT_INFEASIBLE, "%s does not start: %s", blas->path, blas->cublasLtGetStatusName(status));
  }
  pthread_mutex_init(&p->mutex, NULL);
  c->products = p;
  return PLAIT_OK;
}

int products_ready(CudaInstance *c) { return cuda_library_ready(c, CUDA_LIBRARY_BLAS, "products use", start); }

// Keys ---------------------------------------------------------------------------------------------------------------

static int32_t alignment_of(const void *address) {
  uintptr_t at = (uintptr_t)address | MOST_ALIGNED;
  return (int32_t)(at & ~(at - 1));
}

static int is_narrow(int32_t dtype) { return dtype == DTYPE_BF16 || dtype == DTYPE_F16; }

// It adds one of the output's dtype, into which another is rounded first, and none in fp64.
static int has_bias(const ProductArguments *a) {
  return a->out.dtype != DTYPE_F64 && a->columns <= BIAS_WORKSPACE / (int64_t)sizeof(float) &&
         dtype_is_float((Dtype)a->bias.dtype);
}

static int has_dtypes(const ProductArguments *a) {
  int32_t dtype = a->a.dtype, out = a->out.dtype;
  return dtype_is_float((Dtype)dtype) && (is_narrow(dtype) || dtype == DTYPE_F32 || dtype == DTYPE_F64) &&
         a->b.dtype == dtype && (out == dtype || (is_narrow(dtype) && out == DTYPE_F32)) &&
         (!a->added.data || a->added.dtype == out) && (!a->bias.data || has_bias(a));
}

// How a matrix of (rows, depth) lies in memory; 0: as none does.
static int find_order(int64_t rows, int64_t depth, int64_t row, int64_t step, int32_t *transposed, int64_t *pitch) {
  *transposed = !(step == 1 && row >= depth);
  *pitch = *transposed ? step : row;
  return !*transposed || (row == 1 && step >= rows);
}

int product_key(const ProductArguments *a, ProductKey *k) {
  *k = (ProductKey){.rows = a->rows, .columns = a->columns, .depth = a->depth, .dtype = a->a.dtype,
                    .out = a->out.dtype, .bias = a->bias.data != NULL};
  if (a->rows <= 0 || a->columns <= 0 || a->depth <= 0 || !has_dtypes(a)) return 0;
  if (a->rows > INT32_MAX || a->columns > INT32_MAX || a->depth > INT32_MAX) return 0;
  if (!find_order(a->rows, a->depth, a->a_row, a->a_depth, &k->a_transposed, &k->a_step)) return 0;
  if (!find_order(a->columns, a->depth, a->b_column, a->b_depth, &k->b_transposed, &k->b_step)) return 0;
  k->a_aligned = alignment_of(a->a.data);
  k->b_aligned = alignment_of(a->b.data);
  k->out_aligned = alignment_of((void *)((uintptr_t)a->out.data | (uintptr_t)a->added.data));
  k->bias_aligned = a->bias.data && a->bias.dtype == a->out.dtype ? alignment_of(a->bias.data) : MOST_ALIGNED;
  return 1;
}

void product_describe(const ProductKey *k, char *text, size_t size) {
  snprintf(text, size, "%lld × %lld of depth %lld in %s%s%s%s", (long long)k->rows, (long long)k->columns,
           (long long)k->depth, dtype_name((Dtype)k->dtype), k->out == k->dtype ? "" : " into ",
           k->out == k->dtype ? "" : dtype_name((Dtype)k->out), k->bias ? " with a bias" : "");
}

LibraryProduct *product_find(CudaProducts *p, const ProductKey *key) {
  for (int i = 0; i < p->list.count; i++)
    if (!memcmp(&p->list.data[i].key, key, sizeof *key)) return &p->list.data[i];
  return NULL;
}

void product_note(const CudaInstance *c, const ProductKey *key, const char *text) {
  char what[128];
  product_describe(key, what, sizeof what);
  fprintf(stderr, "note: CUDA device %d: plait's own kernel makes products of %s: %s\n", c->number, what, text);
}

// The library's calls ------------------------------------------------------------------------------------------------

static BlasDtype blas_dtype(int32_t dtype) {
  return dtype == DTYPE_F64 ? BLAS_F64 : dtype == DTYPE_F32 ? BLAS_F32 : dtype == DTYPE_F16 ? BLAS_F16 : BLAS_BF16;
}

// The library's matrices lie by columns: what are rows here are columns there. So it multiplies b by a, and makes the
// transposed output. fp32 is CUBLAS_COMPUTE_32F, which is never TF32.
static BlasStatus make_layouts(const CudaBlas *blas, LibraryProduct *x) {
  const ProductKey *k = &x->key;
  BlasDtype dtype = blas_dtype(k->dtype);
  int64_t a_step = FAULT(library_wrong_leading_dimension, k->a_step, k->a_step + 8);
  BlasStatus status = k->b_transposed
                          ? blas->cublasLtMatrixLayoutCreate(&x->a, dtype, (uint64_t)k->columns, (uint64_t)k->depth,
                                                             k->b_step)
                          : blas->cublasLtMatrixLayoutCreate(&x->a, dtype, (uint64_t)k->depth, (uint64_t)k->columns,
                                                             k->b_step);
  if (!status)
    status = k->a_transposed
                 ? blas->cublasLtMatrixLayoutCreate(&x->b, dtype, (uint64_t)k->rows, (uint64_t)k->depth, a_step)
                 : blas->cublasLtMatrixLayoutCreate(&x->b, dtype, (uint64_t)k->depth, (uint64_t)k->rows, a_step);
  if (!status)
    status = blas->cublasLtMatrixLayoutCreate(&x->out, blas_dtype(k->out), (uint64_t)k->columns, (uint64_t)k->rows,
                                              k->columns);
  return status;
}

static BlasStatus make_product(const CudaBlas *blas, LibraryProduct *x) {
  const ProductKey *k = &x->key;
  int is_f64 = k->dtype == DTYPE_F64;
  int32_t a = k->b_transposed ? BLAS_AS_IT_IS : BLAS_TRANSPOSED,
          b = FAULT(library_lacks_a_transposition, k->a_transposed, 0) ? BLAS_TRANSPOSED : BLAS_AS_IT_IS;
  uint32_t epilogue = k->bias ? BLAS_ADDS_BIAS : BLAS_ADDS_NOTHING;
  const void *bias = (void *)(uintptr_t)k->bias_aligned; // what it proposes depends on the alignment alone
  BlasStatus status = blas->cublasLtMatmulDescCreate(&x->product, is_f64 ? BLAS_SUMS_F64 : BLAS_SUMS_F32,
                                                     is_f64 ? BLAS_F64 : BLAS_F32);
  if (!status) status = blas->cublasLtMatmulDescSetAttribute(x->product, BLAS_IS_A_TRANSPOSED, &a, sizeof a);
  if (!status) status = blas->cublasLtMatmulDescSetAttribute(x->product, BLAS_IS_B_TRANSPOSED, &b, sizeof b);
  if (!status)
    status = blas->cublasLtMatmulDescSetAttribute(x->product, BLAS_IS_EPILOGUE, &epilogue, sizeof epilogue);
  if (!status && k->bias)
    status = blas->cublasLtMatmulDescSetAttribute(x->product, BLAS_IS_BIAS, &bias, sizeof bias);
  return status;
}

// Those whose parts are added in the output are excluded: they are added in any order, and narrow.
static BlasStatus propose(const CudaProducts *p, const LibraryProduct *x, BlasProposal *proposal, int most,
                          int *count) {
  const CudaBlas *blas = p->blas;
  const ProductKey *k = &x->key;
  const uint64_t workspace = LIBRARY_WORKSPACE;
  const uint32_t reduction = BLAS_REDUCES_SUMS;
  const struct { BlasAttribute attribute; uint32_t bytes; } aligned[] = {
      {BLAS_IS_A_ALIGNED, (uint32_t)k->b_aligned}, {BLAS_IS_B_ALIGNED, (uint32_t)k->a_aligned},
      {BLAS_IS_C_ALIGNED, (uint32_t)k->out_aligned}, {BLAS_IS_D_ALIGNED, (uint32_t)k->out_aligned}};
  BlasWish wish;
  *count = 0;
  BlasStatus status = blas->cublasLtMatmulPreferenceCreate(&wish);
  if (status) return status;
  status = blas->cublasLtMatmulPreferenceSetAttribute(wish, BLAS_IS_WORKSPACE, &workspace, sizeof workspace);
  if (!status)
    status = blas->cublasLtMatmulPreferenceSetAttribute(wish, BLAS_IS_REDUCTION, &reduction, sizeof reduction);
  for (size_t i = 0; i < sizeof aligned / sizeof *aligned && !status; i++)
    status = blas->cublasLtMatmulPreferenceSetAttribute(wish, aligned[i].attribute, &aligned[i].bytes,
                                                        sizeof aligned[i].bytes);
  if (!status)
    status = blas->cublasLtMatmulAlgoGetHeuristic(p->handle, x->product, x->a, x->b, x->out, x->out, wish, most,
                                                  proposal, count);
  blas->cublasLtMatmulPreferenceDestroy(wish);
  if (!status) status = *count ? proposal->status : BLAS_UNSUPPORTED;
  return status;
}

BlasStatus product_open(const CudaProducts *p, LibraryProduct *x, BlasProposal *proposal, int most, int *count) {
  BlasStatus status = make_product(p->blas, x);
  *count = 0;
  if (!status) status = make_layouts(p->blas, x);
  if (!status) status = propose(p, x, proposal, most, count);
  if (status) return status;
  x->algorithm = proposal->algorithm;
  x->workspace = proposal->workspace;
  return BLAS_OK;
}

BlasStatus product_multiply(const CudaProducts *p, const LibraryProduct *x, const ProductArguments *a, void *workspace,
                           CudaStream stream) {
  const float one = 1, zero = 0;
  const double wide_one = 1, wide_zero = 0;
  const int is_f64 = x->key.dtype == DTYPE_F64, adds = FAULT(library_adds_nothing, a->added.data != NULL, 0);
  const void *alpha = is_f64 ? (const void *)&wide_one : &one;
  const void *beta = adds ? alpha : is_f64 ? (const void *)&wide_zero : &zero;
  const void *bias = a->bias.data;
  if (bias) {
    BlasStatus status = p->blas->cublasLtMatmulDescSetAttribute(x->product, BLAS_IS_BIAS, &bias, sizeof bias);
    if (status) return status;
  }
  return p->blas->cublasLtMatmul(p->handle, x->product, alpha, a->b.data, x->a, a->a.data, x->b, beta,
                                 adds ? a->added.data : a->out.data, x->out, a->out.data, x->out, &x->algorithm,
                                 workspace, x->workspace, stream);
}

void product_forget(const CudaBlas *blas, LibraryProduct *x) {
  if (x->product) blas->cublasLtMatmulDescDestroy(x->product);
  const BlasLayout layouts[] = {x->a, x->b, x->out};
  for (int i = 0; i < 3; i++)
    if (layouts[i]) blas->cublasLtMatrixLayoutDestroy(layouts[i]);
  *x = (LibraryProduct){.key = x->key, .own = 1};
}

// In a run -----------------------------------------------------------------------------------------------------------

void product_name_array(Launch *l, const char *name, Array x, int64_t n, unsigned mode) {
  launch_bytes(l, name, x.data, n * (int64_t)dtype_size((Dtype)x.dtype), mode);
}

// The bias in the dtype of the output, at `to`.
static Array round_bias(const Launch *l, const ProductArguments *a, char *to) {
  Launch cast = {.queue = l->queue, .op = l->op, .dtype = l->dtype};
  ElementwiseArguments e = {.array = a->bias, .to = {to, a->out.dtype}, .n = a->columns};
  product_name_array(&cast, "bias", e.array, e.n, CUDA_READS);
  product_name_array(&cast, "rounded bias", e.to, e.n, CUDA_WRITES);
  launch_kernel(&cast, CUDA_KERNEL_cast, divide_up(e.n, BLOCK_THREADS), BLOCK_THREADS, &e);
  return e.to;
}

int products_launch(Launch *l, const ProductArguments *a) {
  CudaProducts *p = l->queue->instance->products;
  ProductKey key;
  if (!p || l->own || cuda_has_failed(l->queue) || !product_key(a, &key)) return 0;
  BlasStatus status = BLAS_OK;
  pthread_mutex_lock(&p->mutex);
  LibraryProduct *x = product_find(p, &key);
  if (!x) {
    product_note(l->queue->instance, &key, "cuBLASLt's were not compared with it when the run began");
    vec_push(&p->list, (LibraryProduct){.key = key, .own = 1});
  }
  int own = !x || x->own;
  if (!own) {
    CHECK(l->call->workspace && l->call->workspace_size >= PRODUCT_WORKSPACE, "%s has no workspace for products",
          l->op);
    char *workspace = (char *)l->call->workspace + (l->call->workspace_size - PRODUCT_WORKSPACE);
    ProductArguments given = *a;
    if (a->bias.data && a->bias.dtype != a->out.dtype) given.bias = round_bias(l, a, workspace);
    status = product_multiply(p, x, &given, workspace + BIAS_WORKSPACE, l->queue->stream);
  }
  pthread_mutex_unlock(&p->mutex);
  if (own) return 0;
  l->operands = 0;
  if (status) cuda_noted_text(l->queue, p->blas->cublasLtGetStatusName(status), "cublasLtMatmul", l->op);
  else cuda_wait_if_asked(l->queue, l->op);
  return 1;
}
