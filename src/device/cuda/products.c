#include "device/cuda/products.h"
#include "device/cuda/launch.h"
#include "device/cuda/library.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ALIGNED = 256, TRIAL_BLOCKS = 256 };

// A product of the library's, or one that it does not make (own).
typedef struct LibraryProduct {
  ProductKey key;
  int own;
  BlasProduct product;
  BlasLayout a, b, out; // as the library sees them
  BlasAlgorithm algorithm;
  size_t workspace; // bytes that it uses
} LibraryProduct;

// Ranks that share a device share it. mutex: of the list, and of what a call sets in a BlasProduct.
struct CudaProducts {
  const CudaBlas *blas;
  BlasHandle handle;
  pthread_mutex_t mutex;
  Vec(LibraryProduct) list;
};

static CudaProducts *create(const CudaInstance *c, Error *error) {
  const CudaBlas *blas = cuda_blas(c->driver, error);
  if (!blas) return NULL;
  CudaProducts *p = xcalloc(1, sizeof *p);
  p->blas = blas;
  BlasStatus status = blas->cublasLtCreate(&p->handle);
  if (status) {
    error_set(error, PLAIT_INFEASIBLE, "%s does not start: %s", blas->path, blas->cublasLtGetStatusName(status));
    free(p);
    return NULL;
  }
  pthread_mutex_init(&p->mutex, NULL);
  return p;
}

// An emulated driver has no library unless somebody names one.
static void tell_missing(const CudaInstance *c, const char *why) {
  static int told;
  const char *folders = getenv("PLAIT_CUDA_LIBRARIES");
  if (!told && (!c->driver->takes_operands || (folders && *folders)))
    fprintf(stderr, "note: products use plait's own kernels, which are slow: %s\n", why);
  told = 1;
}

int products_ready(CudaInstance *c) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  Error error = {0};
  pthread_mutex_lock(&mutex);
  if (!c->products && !c->lacks_products) c->products = create(c, &error);
  if (!c->products && !c->lacks_products) tell_missing(c, error.message);
  c->lacks_products = !c->products;
  pthread_mutex_unlock(&mutex);
  return c->products != NULL;
}

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

static void describe(const ProductKey *k, char *text, size_t size) {
  snprintf(text, size, "%lld × %lld of depth %lld in %s%s%s%s", (long long)k->rows, (long long)k->columns,
           (long long)k->depth, dtype_name((Dtype)k->dtype), k->out == k->dtype ? "" : " into ",
           k->out == k->dtype ? "" : dtype_name((Dtype)k->out), k->bias ? " with a bias" : "");
}

static LibraryProduct *find(CudaProducts *p, const ProductKey *key) {
  for (int i = 0; i < p->list.count; i++)
    if (!memcmp(&p->list.data[i].key, key, sizeof *key)) return &p->list.data[i];
  return NULL;
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

// The first algorithm that it proposes. Those whose parts are added in the output are excluded: they are added in any
// order, and narrow.
static BlasStatus choose(const CudaProducts *p, LibraryProduct *x) {
  const CudaBlas *blas = p->blas;
  const ProductKey *k = &x->key;
  const uint64_t workspace = LIBRARY_WORKSPACE;
  const uint32_t reduction = BLAS_REDUCES_SUMS;
  const struct { BlasAttribute attribute; uint32_t bytes; } aligned[] = {
      {BLAS_IS_A_ALIGNED, (uint32_t)k->b_aligned}, {BLAS_IS_B_ALIGNED, (uint32_t)k->a_aligned},
      {BLAS_IS_C_ALIGNED, (uint32_t)k->out_aligned}, {BLAS_IS_D_ALIGNED, (uint32_t)k->out_aligned}};
  BlasWish wish;
  BlasProposal proposal = {.status = BLAS_UNSUPPORTED};
  int count = 0;
  BlasStatus status = blas->cublasLtMatmulPreferenceCreate(&wish);
  if (status) return status;
  status = blas->cublasLtMatmulPreferenceSetAttribute(wish, BLAS_IS_WORKSPACE, &workspace, sizeof workspace);
  if (!status)
    status = blas->cublasLtMatmulPreferenceSetAttribute(wish, BLAS_IS_REDUCTION, &reduction, sizeof reduction);
  for (size_t i = 0; i < sizeof aligned / sizeof *aligned && !status; i++)
    status = blas->cublasLtMatmulPreferenceSetAttribute(wish, aligned[i].attribute, &aligned[i].bytes,
                                                        sizeof aligned[i].bytes);
  if (!status)
    status = blas->cublasLtMatmulAlgoGetHeuristic(p->handle, x->product, x->a, x->b, x->out, x->out, wish, 1,
                                                  &proposal, &count);
  blas->cublasLtMatmulPreferenceDestroy(wish);
  if (!status) status = count ? proposal.status : BLAS_UNSUPPORTED;
  x->algorithm = proposal.algorithm;
  x->workspace = proposal.workspace;
  return status;
}

static BlasStatus multiply(const CudaProducts *p, const LibraryProduct *x, const ProductArguments *a, void *workspace,
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

static void forget(const CudaBlas *blas, LibraryProduct *x) {
  if (x->product) blas->cublasLtMatmulDescDestroy(x->product);
  const BlasLayout layouts[] = {x->a, x->b, x->out};
  for (int i = 0; i < 3; i++)
    if (layouts[i]) blas->cublasLtMatrixLayoutDestroy(layouts[i]);
  *x = (LibraryProduct){.key = x->key, .own = 1};
}

// Trials -------------------------------------------------------------------------------------------------------------

// One comparison, and where its operands lie. expected, magnitude: plait's product of the same operands, and of their
// magnitudes, of the dtype of sums.
typedef struct Trial {
  CudaQueue *queue;
  const ProductKey *key;
  ProductArguments a;
  Array expected, magnitude;
  double *worst; // (TRIAL_BLOCKS)
  char *workspace, *memory;
  int64_t used;
} Trial;

// As aligned as the run's will be, and no more.
static void *place(Trial *t, int64_t bytes, int32_t aligned) {
  char *at = t->memory ? t->memory + t->used + aligned % MOST_ALIGNED : NULL;
  t->used += divide_up(bytes + aligned % MOST_ALIGNED, MOST_ALIGNED) * MOST_ALIGNED;
  return at;
}

static int64_t elements_of_a(const ProductKey *k) { return (k->a_transposed ? k->depth : k->rows) * k->a_step; }
static int64_t elements_of_b(const ProductKey *k) { return (k->b_transposed ? k->depth : k->columns) * k->b_step; }

// memory NULL: only t->used, the bytes that it takes.
static void lay_out(Trial *t, char *memory) {
  const ProductKey *k = t->key;
  const int64_t size = (int64_t)dtype_size((Dtype)k->dtype), out = (int64_t)dtype_size((Dtype)k->out),
                n = k->rows * k->columns, sums = n * sum_bytes((Dtype)k->dtype);
  const int32_t wide = (int32_t)sum_dtype((Dtype)k->dtype);
  t->memory = memory;
  t->used = 0;
  t->workspace = place(t, LIBRARY_WORKSPACE, MOST_ALIGNED);
  t->worst = place(t, TRIAL_BLOCKS * (int64_t)sizeof(double), MOST_ALIGNED);
  t->expected = (Array){place(t, sums, MOST_ALIGNED), wide};
  t->magnitude = (Array){place(t, sums, MOST_ALIGNED), wide};
  t->a = (ProductArguments){.rows = k->rows, .columns = k->columns, .depth = k->depth};
  t->a.a = (Array){place(t, elements_of_a(k) * size, k->a_aligned), k->dtype};
  t->a.b = (Array){place(t, elements_of_b(k) * size, k->b_aligned), k->dtype};
  t->a.out = (Array){place(t, n * out, k->out_aligned), k->out};
  t->a.bias = (Array){k->bias ? place(t, k->columns * out, k->bias_aligned) : NULL, k->out};
  t->a.a_row = k->a_transposed ? 1 : k->a_step;
  t->a.a_depth = k->a_transposed ? k->a_step : 1;
  t->a.b_column = k->b_transposed ? 1 : k->b_step;
  t->a.b_depth = k->b_transposed ? k->b_step : 1;
}

static Launch launch_of(const Trial *t) {
  return (Launch){.queue = t->queue, .op = "a product on trial", .dtype = (Dtype)t->key->dtype};
}

static void name_array(Launch *l, const char *name, Array x, int64_t n, unsigned mode) {
  launch_bytes(l, name, x.data, n * (int64_t)dtype_size((Dtype)x.dtype), mode);
}

static int64_t trial_blocks(int64_t n) {
  const int64_t blocks = divide_up(n, BLOCK_THREADS);
  return blocks < TRIAL_BLOCKS ? blocks : TRIAL_BLOCKS;
}

static void draw(const Trial *t, Array x, int64_t n, uint64_t seed, int magnitudes) {
  Launch l = launch_of(t);
  if (!x.data) return;
  name_array(&l, "x", x, n, CUDA_WRITES);
  TrialArguments a = {.x = x, .n = n, .seed = seed << 40, .magnitudes = magnitudes};
  launch_kernel(&l, CUDA_KERNEL_trial_fill, trial_blocks(n), BLOCK_THREADS, &a);
}

// By plait's kernel; to what the output holds it adds where `adds`.
static void expect(const Trial *t, Array out, int adds) {
  const ProductKey *k = t->key;
  Launch l = launch_of(t);
  ProductArguments a = t->a;
  a.out = out;
  if (adds) a.added = t->a.out;
  name_array(&l, "a", a.a, elements_of_a(k), CUDA_READS);
  name_array(&l, "b", a.b, elements_of_b(k), CUDA_READS);
  if (adds) name_array(&l, "added", a.added, k->rows * k->columns, CUDA_READS);
  if (k->bias) name_array(&l, "bias", a.bias, k->columns, CUDA_READS);
  name_array(&l, "out", out, k->rows * k->columns, CUDA_WRITES);
  launch_own_product(&l, &a);
}

// The largest difference of an element over what rounding explains: half a unit of the output, and of 4 √depth sums
// that are as large as the magnitudes'.
static double worst_of(const Trial *t) {
  const ProductKey *k = t->key;
  const int64_t n = k->rows * k->columns;
  const double of_sums = k->dtype == DTYPE_F64 ? 0x1p-53 : 0x1p-24;
  const double unit = k->out == DTYPE_F64   ? 0x1p-53
                      : k->out == DTYPE_F32 ? 0x1p-24
                      : k->out == DTYPE_F16 ? 0x1p-11
                                            : 0x1p-8;
  Launch l = launch_of(t);
  TrialArguments a = {.x = t->a.out,
                      .expected = t->expected,
                      .magnitude = t->magnitude,
                      .worst = t->worst,
                      .unit = unit,
                      .bound = 4 * sqrt((double)k->depth) * of_sums,
                      .n = n};
  name_array(&l, "x", a.x, n, CUDA_READS);
  name_array(&l, "expected", a.expected, n, CUDA_READS);
  name_array(&l, "magnitude", a.magnitude, n, CUDA_READS);
  const int64_t bytes = trial_blocks(n) * (int64_t)sizeof(double);
  launch_bytes(&l, "worst", a.worst, bytes, CUDA_WRITES);
  launch_kernel(&l, CUDA_KERNEL_trial_compare, trial_blocks(n), BLOCK_THREADS, &a);
  double worst[TRIAL_BLOCKS] = {0}, most = 0;
  const CudaDriver *driver = t->queue->instance->driver;
  if (cuda_has_failed(t->queue)) return 0; // whoever waits for the queue learns it
  CudaResult result =
      driver->cuMemcpyDtoHAsync_v2(worst, (CudaPointer)(uintptr_t)t->worst, (size_t)bytes, t->queue->stream);
  if (!result) result = driver->cuStreamSynchronize(t->queue->stream);
  if (cuda_noted(t->queue, result, "cuStreamSynchronize", "a product on trial")) return 0;
  for (int i = 0; i < TRIAL_BLOCKS; i++) most = worst[i] > most ? worst[i] : most;
  return most;
}

static void draw_all(const Trial *t, int adds, int magnitudes) {
  const ProductKey *k = t->key;
  draw(t, t->a.a, elements_of_a(k), 1, magnitudes);
  draw(t, t->a.b, elements_of_b(k), 2, magnitudes);
  draw(t, t->a.bias, k->columns, 3, magnitudes);
  if (adds) draw(t, t->a.out, k->rows * k->columns, 4, magnitudes);
}

static void fill(const Trial *t, void *at, unsigned char byte, int64_t bytes) {
  const CudaDriver *driver = t->queue->instance->driver;
  if (bytes <= 0 || cuda_has_failed(t->queue)) return;
  cuda_noted(t->queue,
             driver->cuMemsetD8Async((CudaPointer)(uintptr_t)at, byte, (size_t)bytes, t->queue->stream),
             "cuMemsetD8Async", "a product on trial");
}

// Both without an accumulator and in place of one. *worst: the larger of both.
static BlasStatus compare(const CudaProducts *p, const LibraryProduct *x, Trial *t, double *worst) {
  const int64_t bytes = t->key->rows * t->key->columns * (int64_t)dtype_size((Dtype)t->key->out);
  *worst = 0;
  for (int adds = 0; adds < (t->key->bias ? 1 : 2); adds++) {
    draw_all(t, adds, 1);
    expect(t, t->magnitude, adds);
    draw_all(t, adds, 0);
    expect(t, t->expected, adds);
    if (!adds) fill(t, t->a.out.data, 0xff, bytes);
    t->a.added = adds ? t->a.out : (Array){0};
    BlasStatus status = multiply(p, x, &t->a, t->workspace, t->queue->stream);
    if (status) return status;
    double far = worst_of(t);
    if (far > *worst) *worst = far;
  }
  return BLAS_OK;
}

static void note(const CudaInstance *c, const ProductKey *key, const char *text) {
  char what[128];
  describe(key, what, sizeof what);
  fprintf(stderr, "note: CUDA device %d: plait's own kernel makes products of %s: %s\n", c->number, what, text);
}

// Lays the trial out in the memory that was given, or, where that is too small, as where a model only generates, in
// some that the device has left, until end_trial. 0: it has not.
static int begin_trial(Trial *t, char *memory, int64_t bytes, CudaPointer *own) {
  *own = 0;
  lay_out(t, NULL);
  if (t->used > bytes && t->queue->instance->driver->cuMemAlloc_v2(own, (size_t)t->used)) return 0;
  lay_out(t, t->used > bytes ? (char *)(uintptr_t)*own : memory);
  return 1;
}

static void end_trial(const Trial *t, const LibraryProduct *x, CudaPointer own) {
  const CudaDriver *driver = t->queue->instance->driver;
  if (own) {
    cuda_noted(t->queue, driver->cuStreamSynchronize(t->queue->stream), "cuStreamSynchronize", "a product on trial");
    driver->cuMemFree_v2(own);
  } else {
    fill(t, t->workspace, 0, (int64_t)x->workspace);
    fill(t, (char *)t->worst, 0, t->memory + t->used - (char *)t->worst);
  }
}

static void try_new(CudaProducts *p, CudaQueue *q, const ProductKey *key, char *memory, int64_t bytes) {
  LibraryProduct x = {.key = *key};
  Trial t = {.queue = q, .key = key};
  CudaPointer own;
  char why[160] = "";
  double worst = 0;
  BlasStatus status = make_product(p->blas, &x);
  if (!status) status = make_layouts(p->blas, &x);
  if (!status) status = choose(p, &x);
  if (!status && !begin_trial(&t, memory, bytes, &own)) {
    snprintf(why, sizeof why, "%lld bytes are too little memory to compare cuBLASLt's with it", (long long)bytes);
  } else if (!status) {
    status = compare(p, &x, &t, &worst);
    end_trial(&t, &x, own);
  }
  if (status) snprintf(why, sizeof why, "cuBLASLt refuses them (%s)", p->blas->cublasLtGetStatusName(status));
  else if (FAULT(library_is_believed, worst > 1, 0))
    snprintf(why, sizeof why, "cuBLASLt's differ from it by %.3g times what rounding explains", worst);
  if (*why) {
    note(q->instance, key, why);
    forget(p->blas, &x);
  }
  vec_push(&p->list, x);
}

void products_try(CudaQueue *q, const ProductKey *key, char *memory, int64_t bytes) {
  CudaProducts *p = q->instance->products;
  if (!p || cuda_has_failed(q)) return;
  pthread_mutex_lock(&p->mutex);
  if (!find(p, key)) try_new(p, q, key, memory, bytes);
  pthread_mutex_unlock(&p->mutex);
}

// The bias in the dtype of the output, at `to`.
static Array round_bias(const Launch *l, const ProductArguments *a, char *to) {
  Launch cast = {.queue = l->queue, .op = l->op, .dtype = l->dtype};
  ElementwiseArguments e = {.array = a->bias, .to = {to, a->out.dtype}, .n = a->columns};
  name_array(&cast, "bias", e.array, e.n, CUDA_READS);
  name_array(&cast, "rounded bias", e.to, e.n, CUDA_WRITES);
  launch_kernel(&cast, CUDA_KERNEL_cast, divide_up(e.n, BLOCK_THREADS), BLOCK_THREADS, &e);
  return e.to;
}

int products_launch(Launch *l, const ProductArguments *a) {
  CudaProducts *p = l->queue->instance->products;
  ProductKey key;
  if (!p || l->own || cuda_has_failed(l->queue) || !product_key(a, &key)) return 0;
  BlasStatus status = BLAS_OK;
  pthread_mutex_lock(&p->mutex);
  LibraryProduct *x = find(p, &key);
  if (!x) {
    note(l->queue->instance, &key, "cuBLASLt's were not compared with it when the run began");
    vec_push(&p->list, (LibraryProduct){.key = key, .own = 1});
  }
  int own = !x || x->own;
  if (!own) {
    CHECK(l->call->workspace && l->call->workspace_size >= PRODUCT_WORKSPACE, "%s has no workspace for products",
          l->op);
    char *workspace = (char *)l->call->workspace + (l->call->workspace_size - PRODUCT_WORKSPACE);
    ProductArguments given = *a;
    if (a->bias.data && a->bias.dtype != a->out.dtype) given.bias = round_bias(l, a, workspace);
    status = multiply(p, x, &given, workspace + BIAS_WORKSPACE, l->queue->stream);
  }
  pthread_mutex_unlock(&p->mutex);
  if (own) return 0;
  l->operands = 0;
  if (status) cuda_noted_text(l->queue, p->blas->cublasLtGetStatusName(status), "cublasLtMatmul", l->op);
  else cuda_wait_if_asked(l->queue, l->op);
  return 1;
}
