// Trials of a library's products: whether they are right, and how long each algorithm takes.
#include "device/cuda/product_parts.h"
#include "base/clock.h"
#include "device/cuda/launch.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TRIAL_BLOCKS = 256 };

// The slope of tanh-gelu is at most that, and so is what it makes of an error.
static const double most_slope = 1.13;

// One comparison, and where its operands lie. expected, magnitude: plait's product of the same operands, and of their
// magnitudes, of the dtype of sums; wide: as they are, what its function's slope is taken at.
typedef struct Trial {
  CudaQueue *queue;
  const ProductKey *key;
  ProductArguments a;
  Array expected, magnitude, wide;
  double *worst; // (TRIAL_BLOCKS)
  char *workspace, *memory;
  int64_t used, touched; // touched: bytes of the workspace
  CudaPointer own;       // memory that the device had left; 0: it is not needed
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
  t->a.function = k->function;
  t->a.before = (Array){has_before(k) ? place(t, n * out, k->out_aligned) : NULL, k->out};
  t->wide = (Array){k->function == PRODUCT_GELU_SLOPE ? place(t, sums, MOST_ALIGNED) : NULL, wide};
  t->a.a_row = k->a_transposed ? 1 : k->a_step;
  t->a.a_depth = k->a_transposed ? k->a_step : 1;
  t->a.b_column = k->b_transposed ? 1 : k->b_step;
  t->a.b_depth = k->b_transposed ? k->b_step : 1;
}

static Launch launch_of(const Trial *t) {
  return (Launch){.queue = t->queue, .op = "a product on trial", .dtype = (Dtype)t->key->dtype};
}

static int64_t trial_blocks(int64_t n) {
  const int64_t blocks = divide_up(n, BLOCK_THREADS);
  return blocks < TRIAL_BLOCKS ? blocks : TRIAL_BLOCKS;
}

static void draw(const Trial *t, Array x, int64_t n, uint64_t seed, int magnitudes) {
  Launch l = launch_of(t);
  if (!x.data) return;
  product_name_array(&l, "x", x, n, CUDA_WRITES);
  TrialArguments a = {.x = x, .n = n, .seed = seed << 40, .magnitudes = magnitudes};
  launch_kernel(&l, CUDA_KERNEL_trial_fill, trial_blocks(n), BLOCK_THREADS, &a);
}

// By plait's plain kernel, in which each thread multiplies in fp32: a reference that does not share the library's way
// through tensor cores. To what the output holds it adds where `adds`.
static void expect(const Trial *t, Array out, int adds) {
  const ProductKey *k = t->key;
  Launch l = launch_of(t);
  ProductArguments a = t->a;
  a.out = out;
  a.added = adds ? t->a.out : (Array){0};
  a.before = (Array){0};
  a.function = PRODUCT_ALONE;
  product_name_array(&l, "a", a.a, elements_of_a(k), CUDA_READS);
  product_name_array(&l, "b", a.b, elements_of_b(k), CUDA_READS);
  if (adds) product_name_array(&l, "added", a.added, k->rows * k->columns, CUDA_READS);
  if (k->bias) product_name_array(&l, "bias", a.bias, k->columns, CUDA_READS);
  product_name_array(&l, "out", out, k->rows * k->columns, CUDA_WRITES);
  launch_plain_product(&l, &a);
}

static void run_elementwise(const Trial *t, CudaKernel kernel, Dtype dtype, const ElementwiseArguments *a) {
  Launch l = launch_of(t);
  const int64_t bytes = a->n * (int64_t)dtype_size(dtype);
  l.dtype = dtype;
  for (int k = 0; k < a->count; k++) launch_bytes(&l, "x", (void *)(uintptr_t)a->x[k], bytes, CUDA_READS);
  if (a->y) launch_bytes(&l, "y", a->y, bytes, CUDA_WRITES);
  product_name_array(&l, "array", a->array, a->n, CUDA_READS);
  product_name_array(&l, "to", a->to, a->n, CUDA_WRITES);
  launch_kernel(&l, kernel, trial_blocks(a->n), BLOCK_THREADS, a);
}

// The key's function of what is expected of the product alone.
static void expect_function(const Trial *t) {
  const ProductKey *k = t->key;
  const int is_slope = k->function == PRODUCT_GELU_SLOPE;
  ElementwiseArguments a = {.n = k->rows * k->columns};
  if (is_slope) {
    a.array = t->a.before;
    a.to = t->wide;
    run_elementwise(t, CUDA_KERNEL_cast, (Dtype)k->dtype, &a);
  }
  a = (ElementwiseArguments){.n = a.n, .count = 1 + is_slope, .kind = ACTIVATION_GELU_TANH, .y = t->expected.data};
  a.x[0] = is_slope ? t->wide.data : t->expected.data;
  a.x[1] = t->expected.data;
  run_elementwise(t, is_slope ? CUDA_KERNEL_activation_grad : CUDA_KERNEL_activation, (Dtype)t->expected.dtype, &a);
}

// The largest difference of an element over what rounding explains: half a unit of the output, and of 4 √depth sums
// that are as large as the magnitudes'; `slope` times as much.
static double worst_of(const Trial *t, Array out, double slope) {
  const ProductKey *k = t->key;
  const int64_t n = k->rows * k->columns;
  const double of_sums = k->dtype == DTYPE_F64 ? 0x1p-53 : 0x1p-24;
  const double unit = k->out == DTYPE_F64   ? 0x1p-53
                      : k->out == DTYPE_F32 ? 0x1p-24
                      : k->out == DTYPE_F16 ? 0x1p-11
                                            : 0x1p-8;
  Launch l = launch_of(t);
  TrialArguments a = {.x = out,
                      .expected = t->expected,
                      .magnitude = t->magnitude,
                      .worst = t->worst,
                      .unit = slope * unit,
                      .bound = slope * 4 * sqrt((double)k->depth) * of_sums,
                      .n = n};
  product_name_array(&l, "x", a.x, n, CUDA_READS);
  product_name_array(&l, "expected", a.expected, n, CUDA_READS);
  product_name_array(&l, "magnitude", a.magnitude, n, CUDA_READS);
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
  if (k->function == PRODUCT_GELU_SLOPE) draw(t, t->a.before, k->rows * k->columns, 5, 0);
}

static void fill(const Trial *t, void *at, unsigned char byte, int64_t bytes) {
  const CudaDriver *driver = t->queue->instance->driver;
  if (bytes <= 0 || cuda_has_failed(t->queue)) return;
  cuda_noted(t->queue,
             driver->cuMemsetD8Async((CudaPointer)(uintptr_t)at, byte, (size_t)bytes, t->queue->stream),
             "cuMemsetD8Async", "a product on trial");
}

static void touch(Trial *t, size_t bytes) {
  if ((int64_t)bytes > t->touched) t->touched = (int64_t)bytes;
}

static void at_least(double *worst, double far) {
  if (far > *worst) *worst = far;
}

// The largest difference of all outputs.
static double worst_of_all(const Trial *t) {
  double worst = 0;
  if (t->key->function == PRODUCT_GELU_KEEPS)
    at_least(&worst, FAULT(value_before_is_believed, worst_of(t, t->a.before, 1), 0));
  if (t->key->function) expect_function(t);
  at_least(&worst, worst_of(t, t->a.out, t->key->function ? most_slope : 1));
  return worst;
}

// Both without an accumulator and in place of one, where there can be one. *worst: the larger of both.
static BlasStatus compare(const CudaProducts *p, const LibraryProduct *x, Trial *t, double *worst) {
  const ProductKey *k = t->key;
  const int64_t bytes = k->rows * k->columns * (int64_t)dtype_size((Dtype)k->out);
  *worst = 0;
  for (int adds = 0; adds < (k->bias || k->function ? 1 : 2); adds++) {
    draw_all(t, adds, 1);
    expect(t, t->magnitude, adds);
    draw_all(t, adds, 0);
    expect(t, t->expected, adds);
    if (!adds) fill(t, t->a.out.data, 0xff, bytes);
    if (k->function == PRODUCT_GELU_KEEPS) fill(t, t->a.before.data, 0xff, bytes);
    touch(t, x->workspace);
    t->a.added = adds ? t->a.out : (Array){0};
    BlasStatus status = product_multiply(p, x, &t->a, t->workspace, t->queue->stream);
    if (status) return status;
    at_least(worst, worst_of_all(t));
  }
  return BLAS_OK;
}

// Lays the trial out in the memory that was given, or, where that is too small, as where a model only generates, in
// some that the device has left, until end_trial. 0: it has not.
static int begin_trial(Trial *t, char *memory, int64_t bytes) {
  lay_out(t, NULL);
  if (t->used > bytes && t->queue->instance->driver->cuMemAlloc_v2(&t->own, (size_t)t->used)) return 0;
  lay_out(t, t->used > bytes ? (char *)(uintptr_t)t->own : memory);
  return 1;
}

static void end_trial(const Trial *t) {
  const CudaDriver *driver = t->queue->instance->driver;
  if (t->own) {
    cuda_noted(t->queue, driver->cuStreamSynchronize(t->queue->stream), "cuStreamSynchronize", "a product on trial");
    driver->cuMemFree_v2(t->own);
  } else {
    fill(t, t->workspace, 0, t->touched);
    fill(t, (char *)t->worst, 0, t->memory + t->used - (char *)t->worst);
  }
}

// 1: the product is right. Else why it is not to be used.
static int passes(const CudaProducts *p, const LibraryProduct *x, Trial *t, char *why, size_t size) {
  double worst = 0;
  BlasStatus status = t->queue->base.believes ? BLAS_OK : compare(p, x, t, &worst);
  if (status) snprintf(why, size, "cuBLASLt refuses them (%s)", p->blas->cublasLtGetStatusName(status));
  else if (FAULT(library_is_believed, worst > 1, 0))
    snprintf(why, size, "cuBLASLt's differ from it by %.3g times what rounding explains", worst);
  else return 1;
  return 0;
}

static void try_new(CudaProducts *p, CudaQueue *q, const ProductKey *key, char *memory, int64_t bytes) {
  LibraryProduct x = {.key = *key};
  Trial t = {.queue = q, .key = key};
  BlasProposal proposal = {.status = BLAS_UNSUPPORTED};
  char why[160];
  int count, good = 0;
  BlasStatus status = product_open(p, &x, &proposal, 1, &count);
  if (status) snprintf(why, sizeof why, "cuBLASLt refuses them (%s)", p->blas->cublasLtGetStatusName(status));
  else if (q->base.believes) good = 1;
  else if (begin_trial(&t, memory, bytes)) {
    good = passes(p, &x, &t, why, sizeof why);
    end_trial(&t);
  } else snprintf(why, sizeof why, "%" PRId64 " bytes are too little memory to compare cuBLASLt's with it", bytes);
  if (!good) {
    product_note(q->instance, key, why);
    product_forget(p->blas, &x);
  }
  vec_push(&p->list, x);
}

int products_try(CudaQueue *q, const ProductKey *key, char *memory, int64_t bytes) {
  CudaProducts *p = q->instance->products;
  if (!p || cuda_has_failed(q)) return 0;
  pthread_mutex_lock(&p->mutex);
  const int is_new = !product_find(p, key);
  if (is_new) try_new(p, q, key, memory, bytes);
  pthread_mutex_unlock(&p->mutex);
  return is_new;
}

// Choices as text -----------------------------------------------------------------------------------------------------

static char *key_text(const ProductKey *k) {
  return xformat("%" PRId64 " x %" PRId64 " of depth %" PRId64 ", steps %" PRId64 " %" PRId64
                 ", transposed %d %d, %s to %s, bias %d, function %d, aligned %d %d %d %d",
                 k->rows, k->columns, k->depth, k->a_step, k->b_step, k->a_transposed, k->b_transposed,
                 dtype_name((Dtype)k->dtype), dtype_name((Dtype)k->out), k->bias, k->function, k->a_aligned,
                 k->b_aligned, k->out_aligned, k->bias_aligned);
}

static int read_dtype(const char *name, int32_t *dtype) {
  for (*dtype = 0; *dtype < CUDA_DTYPES; ++*dtype)
    if (!strcmp(dtype_name((Dtype)*dtype), name)) return 1;
  return 0;
}

static int is_alignment(int32_t x) { return x > 0 && x <= MOST_ALIGNED && !(x & (x - 1)); }

// 0: the text has another form.
static int read_key(const char *text, ProductKey *k) {
  char dtype[16], out[16];
  *k = (ProductKey){0};
  int n = sscanf(text,
                 "%" SCNd64 " x %" SCNd64 " of depth %" SCNd64 ", steps %" SCNd64 " %" SCNd64
                 ", transposed %d %d, %15s to %15[^,], bias %d, function %d, aligned %d %d %d %d",
                 &k->rows, &k->columns, &k->depth, &k->a_step, &k->b_step, &k->a_transposed, &k->b_transposed, dtype,
                 out, &k->bias, &k->function, &k->a_aligned, &k->b_aligned, &k->out_aligned, &k->bias_aligned);
  return n == 15 && k->function >= PRODUCT_ALONE && k->function <= PRODUCT_GELU_SLOPE && read_dtype(dtype, &k->dtype) &&
         read_dtype(out, &k->out) && is_alignment(k->a_aligned) && is_alignment(k->b_aligned) &&
         is_alignment(k->out_aligned) && is_alignment(k->bias_aligned);
}

// "", or the algorithm and bytes of workspace.
static char *value_text(const BlasProposal *x) {
  char text[8 * 17 + 24];
  int n = 0;
  for (int i = 0; i < 8; i++) n += snprintf(text + n, sizeof text - (size_t)n, "%016" PRIx64 " ", x->algorithm.data[i]);
  snprintf(text + n, sizeof text - (size_t)n, "%zu", x->workspace);
  return xstrdup(text);
}

static int read_value(const char *text, BlasAlgorithm *algorithm, size_t *workspace) {
  uint64_t *d = algorithm->data;
  int n = sscanf(text,
                 "%" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %zu",
                 &d[0], &d[1], &d[2], &d[3], &d[4], &d[5], &d[6], &d[7], workspace);
  return n == 9 && *workspace <= LIBRARY_WORKSPACE;
}

void products_list(CudaQueue *q, DeviceChoices *choices) {
  CudaProducts *p = q->instance->products;
  if (!p) return;
  choices->kind = xformat("%s, cuBLASLt %zu", q->instance->name, p->blas->version);
  pthread_mutex_lock(&p->mutex);
  for (int i = 0; i < p->list.count; i++)
    if (!p->list.data[i].own)
      vec_push(&choices->list, (DeviceChoice){key_text(&p->list.data[i].key), xstrdup("")});
  pthread_mutex_unlock(&p->mutex);
}

// Times ---------------------------------------------------------------------------------------------------------------

enum { CANDIDATES = 8, ROUNDS = 5, MOST_CALLS = 64 };
static const double warm_up_seconds = 0.3, enough_milliseconds = 1, least_gain = 0.97;

// Milliseconds of `calls` calls, one after the other.
static float time_calls(const CudaProducts *p, const LibraryProduct *x, Trial *t, const CudaEvent event[2], int calls) {
  const CudaDriver *driver = t->queue->instance->driver;
  float milliseconds = 0;
  if (cuda_has_failed(t->queue)) return 0;
  touch(t, x->workspace);
  CudaResult result = driver->cuEventRecord(event[0], t->queue->stream);
  for (int i = 0; i < calls && !result; i++)
    if (product_multiply(p, x, &t->a, t->workspace, t->queue->stream)) return INFINITY;
  if (!result) result = driver->cuEventRecord(event[1], t->queue->stream);
  if (!result) result = driver->cuEventSynchronize(event[1]);
  if (!result) result = driver->cuEventElapsedTime(&milliseconds, event[0], event[1]);
  cuda_noted(t->queue, result, "cuEventElapsedTime", "a product that is timed");
  return milliseconds;
}

// A card that has had nothing to do is slow at first.
static void warm_up(CudaProducts *p, const LibraryProduct *x, Trial *t, const CudaEvent event[2]) {
  const double start = clock_seconds();
  while (!p->is_warm && clock_seconds() < start + warm_up_seconds && !cuda_has_failed(t->queue))
    if (isinf(time_calls(p, x, t, event, 1))) break;
  p->is_warm = 1;
}

static float median(float *x) {
  for (int i = 1; i < ROUNDS; i++)
    for (int j = i; j > 0 && x[j] < x[j - 1]; j--) {
      float kept = x[j];
      x[j] = x[j - 1];
      x[j - 1] = kept;
    }
  return x[ROUNDS / 2];
}

static LibraryProduct with(const LibraryProduct *x, const BlasProposal *proposal) {
  LibraryProduct y = *x;
  y.algorithm = proposal->algorithm;
  y.workspace = proposal->workspace;
  return y;
}

// Candidates take turns, so that what slows a card for a while slows all of them.
static void time_candidates(CudaProducts *p, const LibraryProduct *x, Trial *t, const BlasProposal *proposal, int count,
                            const CudaEvent event[2], float medians[CANDIDATES]) {
  float times[CANDIDATES][ROUNDS];
  draw_all(t, 0, 0);
  t->a.added = (Array){0};
  warm_up(p, x, t, event);
  time_calls(p, x, t, event, 1); // which loads the kernel
  float first = time_calls(p, x, t, event, 1);
  int calls = first > 0 && first < enough_milliseconds ? (int)(enough_milliseconds / (double)first) : 1;
  if (calls > MOST_CALLS) calls = MOST_CALLS;
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < count; i++) {
      LibraryProduct y = with(x, &proposal[i]);
      int usable = !proposal[i].status && proposal[i].workspace <= LIBRARY_WORKSPACE;
      times[i][round] = usable ? time_calls(p, &y, t, event, calls) : INFINITY;
    }
  for (int i = 0; i < count; i++) medians[i] = median(times[i]);
}

// The fastest of those that are right, where it is clearly faster than the first; -1: the first, too, is wrong.
static int fastest(const CudaProducts *p, const LibraryProduct *x, Trial *t, const BlasProposal *proposal, int count,
                   float medians[CANDIDATES]) {
  char why[160];
  for (;;) {
    int best = 0;
    for (int i = 1; i < count; i++)
      if ((double)medians[i] < FAULT(library_any_gain_counts, least_gain, 1) * (double)medians[0] &&
          (!best || medians[i] < medians[best]))
        best = i;
    LibraryProduct y = with(x, &proposal[best]);
    if (passes(p, &y, t, why, sizeof why)) return best;
    if (!best) return -1;
    medians[best] = INFINITY;
  }
}

static char *choose(CudaProducts *p, CudaQueue *q, const ProductKey *key, char *memory, int64_t bytes) {
  const CudaDriver *driver = q->instance->driver;
  LibraryProduct x = {.key = *key};
  Trial t = {.queue = q, .key = key};
  BlasProposal proposal[CANDIDATES] = {{.status = BLAS_UNSUPPORTED}};
  CudaEvent event[2] = {NULL};
  float medians[CANDIDATES];
  int count, best = -1;
  CudaResult result = CUDA_OK;
  for (int i = 0; i < 2 && !result; i++) result = driver->cuEventCreate(&event[i], CUDA_EVENT_WITH_TIME);
  if (!cuda_noted(q, result, "cuEventCreate", "a product that is timed") &&
      !product_open(p, &x, proposal, CANDIDATES, &count) && begin_trial(&t, memory, bytes)) {
    time_candidates(p, &x, &t, proposal, count, event, medians);
    best = fastest(p, &x, &t, proposal, count, medians);
    end_trial(&t);
  }
  product_forget(p->blas, &x);
  for (int i = 0; i < 2; i++)
    if (event[i]) driver->cuEventDestroy_v2(event[i]);
  return best < 0 ? xstrdup("") : value_text(&proposal[best]);
}

char *products_choose(CudaQueue *q, const char *text, char *memory, int64_t bytes) {
  CudaProducts *p = q->instance->products;
  ProductKey key;
  if (!p || cuda_has_failed(q) || !read_key(text, &key)) return xstrdup("");
  pthread_mutex_lock(&p->mutex);
  char *value = choose(p, q, &key, memory, bytes);
  pthread_mutex_unlock(&p->mutex);
  return value;
}

static void take(CudaProducts *p, CudaQueue *q, LibraryProduct *x, const char *value, char *memory, int64_t bytes) {
  LibraryProduct y = *x;
  Trial t = {.queue = q, .key = &x->key};
  char why[160] = "there is too little memory to compare it", what[160];
  int good = 0;
  if (!read_value(value, &y.algorithm, &y.workspace)) snprintf(why, sizeof why, "its text is not an algorithm");
  else if (!memcmp(&y.algorithm, &x->algorithm, sizeof y.algorithm) && y.workspace == x->workspace) return;
  else if (begin_trial(&t, memory, bytes)) {
    good = passes(p, &y, &t, why, sizeof why);
    end_trial(&t);
  }
  if (good) {
    *x = y;
    return;
  }
  product_describe(&x->key, what, sizeof what);
  fprintf(stderr,
          "note: CUDA device %d: products of %s take cuBLASLt's first algorithm and not the one that was chosen, so "
          "bits may differ: %s\n", q->instance->number, what, why);
}

void products_take(CudaQueue *q, const char *text, const char *value, char *memory, int64_t bytes) {
  CudaProducts *p = q->instance->products;
  ProductKey key;
  if (!p || cuda_has_failed(q) || !read_key(text, &key) || !*value) return;
  pthread_mutex_lock(&p->mutex);
  LibraryProduct *x = product_find(p, &key);
  if (x && !x->own) take(p, q, x, value, memory, bytes);
  pthread_mutex_unlock(&p->mutex);
}
