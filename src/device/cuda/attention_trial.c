// Trials of cuDNN's attention, against plait's own kernels.
#include "device/cuda/attention_library.h"
#include "device/cuda/launch.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACED = 256, BLOCKS_OF_TRIAL = 256, FOUND = 3, INPUTS = 8, OUTPUTS = 3 };

// Of one call. own, library: the same call with outputs of their own; those of plait's are of the dtype of sums.
typedef struct Trial {
  const CudaAttention *p;
  const LibraryAttention *x;
  CudaQueue *queue;
  const KernelCall *call;
  KernelCall own, library, forward; // forward: by which a gradient's out and logsumexp are made
  Operand input[INPUTS], expected[OUTPUTS], output[OUTPUTS];
  double *found; // (BLOCKS_OF_TRIAL, FOUND)
  char *memory, *workspace;
  int64_t used, workspace_bytes;
} Trial;

// Operands that are known to have failed: scores so low that the exponential of their logsumexp is 0 in fp32, and heads
// with outliers. factor: of q and k.
typedef struct Drawing { double factor, q_sign, k_sign, outliers; } Drawing;

static void *place(Trial *t, int64_t bytes) {
  char *at = t->memory ? t->memory + t->used : NULL;
  t->used += divide_up(bytes, PLACED) * PLACED;
  return at;
}

static int64_t bytes_of(const Operand *x) { return operand_elements(x) * (int64_t)dtype_size(x->dtype); }

static Operand place_like(Trial *t, const Operand *x, Dtype dtype) {
  Operand y = *x;
  y.dtype = dtype;
  y.data = place(t, bytes_of(&y));
  return y;
}

// memory NULL: only t->used, the bytes that it takes.
static void lay_out(Trial *t, char *memory) {
  const KernelCall *call = t->call;
  const int gradient = t->x->key.gradient;
  t->memory = memory;
  t->used = 0;
  t->workspace_bytes = attention_workspace(call->input, call->output, call->attr, gradient);
  t->workspace = place(t, t->workspace_bytes);
  t->found = place(t, BLOCKS_OF_TRIAL * FOUND * (int64_t)sizeof(double));
  for (int i = 0; i < call->ninput; i++) t->input[i] = place_like(t, &call->input[i], call->input[i].dtype);
  for (int i = 0; i < call->noutput; i++) {
    t->expected[i] = place_like(t, &call->output[i], DTYPE_F32);
    t->output[i] = place_like(t, &call->output[i], call->output[i].dtype);
  }
  t->own = *call;
  t->own.input = t->input;
  t->own.output = t->expected;
  t->own.workspace = t->workspace;
  t->own.workspace_size = (size_t)t->workspace_bytes;
  t->library = t->own;
  t->library.output = t->output;
  t->forward = t->own;
  t->forward.ninput = 5;
  t->forward.noutput = 2;
  t->forward.output = &t->input[5];
}

static Launch launch_of(const Trial *t, const KernelCall *call) {
  return (Launch){.queue = t->queue, .call = call, .op = "attention on trial", .dtype = t->call->input[0].dtype,
                  .own = 1};
}

// Documents of which one is as long as half a sample or more, and others have few tokens, or one; or one alone.
static void draw_documents(const Trial *t) {
  const AttentionKey *k = &t->x->key;
  const CudaDriver *driver = t->queue->instance->driver;
  int32_t *documents = xcalloc((size_t)(k->b * k->t), sizeof *documents);
  uint32_t drawn = 1;
  for (int64_t b = 0; b < k->b && !k->whole; b++)
    for (int64_t i = 1; i < k->t; i++) {
      drawn = drawn * 1664525u + 1013904223u;
      const int ends = i > k->t / 2 && b % 4 != 1 && drawn % 5 == 0;
      documents[b * k->t + i] = documents[b * k->t + i - 1] + ends;
    }
  CudaResult result = CUDA_OK;
  for (int i = 3; i < 5 && !result; i++)
    result = driver->cuMemcpyHtoDAsync_v2((CudaPointer)(uintptr_t)t->input[i].data, documents,
                                          (size_t)bytes_of(&t->input[i]), t->queue->stream);
  if (!result) result = driver->cuStreamSynchronize(t->queue->stream);
  cuda_noted(t->queue, result, "cuMemcpyHtoDAsync", "attention on trial");
  free(documents);
}

static int64_t blocks_for(int64_t n) {
  const int64_t blocks = divide_up(n, BLOCK_THREADS);
  return blocks < BLOCKS_OF_TRIAL ? blocks : BLOCKS_OF_TRIAL;
}

static void draw(const Trial *t, const Operand *x, int64_t heads, uint64_t seed, double factor, double sign,
                 double outliers) {
  const AttentionKey *k = &t->x->key;
  Launch l = launch_of(t, t->call);
  AttentionTrialArguments a = {.rows = k->b * k->t, .heads = heads, .width = k->d, .seed = seed << 40,
                               .factor = factor, .sign = sign, .outliers = outliers};
  a.x = launch_array(&l, "x", x, CUDA_WRITES);
  launch_kernel(&l, CUDA_KERNEL_draw_heads, blocks_for(a.rows * heads * k->d), BLOCK_THREADS, &a);
}

static void draw_all(const Trial *t, const Drawing *how) {
  const AttentionKey *k = &t->x->key;
  const int64_t heads = k->g * k->r;
  draw(t, &t->input[0], heads, 1, how->factor, how->q_sign, how->outliers);
  draw(t, &t->input[1], k->g, 2, how->factor, how->k_sign, 1);
  draw(t, &t->input[2], k->g, 3, 1, 0, 1);
  if (!k->gradient) return;
  draw(t, &t->input[7], heads, 4, 1, 0, 1);
  Launch l = launch_of(t, &t->forward);
  launch_own_attention(&l);
}

static void fill(const Trial *t, void *at, unsigned char byte, int64_t bytes) {
  const CudaDriver *driver = t->queue->instance->driver;
  if (bytes <= 0 || cuda_has_failed(t->queue)) return;
  cuda_noted(t->queue, driver->cuMemsetD8Async((CudaPointer)(uintptr_t)at, byte, (size_t)bytes, t->queue->stream),
             "cuMemsetD8Async", "attention on trial");
}

// found: sums of the first two over the blocks, and the largest of the third. 0: the device has failed.
static int measure(const Trial *t, int output, double unit, double least, double found[FOUND]) {
  const Operand *x = &t->output[output];
  Launch l = launch_of(t, t->call);
  const int64_t width = x->rank == 4 && !t->x->key.gradient ? 1 : t->x->key.d; // logsumexp has four dims
  AttentionTrialArguments a = {.rows = operand_elements(x) / width, .width = width, .bound = 16 * unit, .least = least};
  const int64_t blocks = blocks_for(a.rows), bytes = blocks * FOUND * (int64_t)sizeof(double);
  const CudaDriver *driver = t->queue->instance->driver;
  double each[BLOCKS_OF_TRIAL * FOUND];
  a.x = launch_array(&l, "x", x, CUDA_READS);
  a.expected = launch_array(&l, "expected", &t->expected[output], CUDA_READS);
  a.found = launch_bytes(&l, "found", t->found, bytes, CUDA_WRITES);
  launch_kernel(&l, CUDA_KERNEL_compare_rows, blocks, BLOCK_THREADS, &a);
  if (cuda_has_failed(t->queue)) return 0;
  CudaResult result =
      driver->cuMemcpyDtoHAsync_v2(each, (CudaPointer)(uintptr_t)t->found, (size_t)bytes, t->queue->stream);
  if (!result) result = driver->cuStreamSynchronize(t->queue->stream);
  if (cuda_noted(t->queue, result, "cuStreamSynchronize", "attention on trial")) return 0;
  found[0] = found[1] = found[2] = 0;
  for (int64_t i = 0; i < blocks; i++) {
    found[0] += each[FOUND * i];
    found[1] += each[FOUND * i + 1];
    found[2] = each[FOUND * i + 2] > found[2] ? each[FOUND * i + 2] : found[2];
  }
  return 1;
}

// Over their bounds, the larger of the distance of all elements and the largest of one. Of a row whose elements nearly
// cancel, as those of a query that sees one key, the bound is that of one a 256th as large as others.
static double far_off(const Trial *t, int output, double unit) {
  double found[FOUND];
  if (!measure(t, output, unit, 0, found)) return 0;
  const double n = (double)operand_elements(&t->output[output]), least = sqrt(found[1] / n) / 256;
  const double all = found[0] > 0 ? sqrt(found[0]) / (4 * unit * sqrt(found[1])) : found[0];
  if (!(all <= 1)) return all >= 0 ? all : INFINITY; // of a NaN
  if (!measure(t, output, unit, least, found)) return 0;
  return found[2] > all ? found[2] : all;
}

// *which: of the output that is farthest off.
static DnnStatus compare(const Trial *t, const Drawing *how, double *worst, int *which) {
  const double narrow = t->call->input[0].dtype == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
  draw_all(t, how);
  Launch own = launch_of(t, &t->own), library = launch_of(t, &t->library);
  if (t->x->key.gradient) launch_own_attention_grad(&own);
  else launch_own_attention(&own);
  for (int i = 0; i < t->call->noutput; i++) fill(t, t->output[i].data, 0xff, bytes_of(&t->output[i]));
  fill(t, t->workspace, 0xff, t->workspace_bytes);
  DnnStatus status = attention_attend(t->p, t->x, &library);
  for (int i = 0; i < t->call->noutput && !status && !cuda_has_failed(t->queue); i++) {
    const double far = far_off(t, i, t->output[i].dtype == DTYPE_F32 ? 0x1p-14 : narrow);
    if (far > *worst) *worst = far, *which = i;
  }
  return status;
}

static void end_trial(const Trial *t, CudaPointer own) {
  const CudaDriver *driver = t->queue->instance->driver;
  if (!own) {
    fill(t, t->memory, 0, t->used);
    return;
  }
  cuda_noted(t->queue, driver->cuStreamSynchronize(t->queue->stream), "cuStreamSynchronize", "attention on trial");
  driver->cuMemFree_v2(own);
}

int attention_is_right(const CudaAttention *p, const LibraryAttention *x, CudaQueue *queue, const KernelCall *call,
                       char *memory, int64_t bytes, char *why, size_t size) {
  static const char *const names[2][OUTPUTS] = {{"out", "logsumexp", ""}, {"dq", "dk", "dv"}};
  const AttentionKey *k = &x->key;
  const double low = sqrt(1024 / (fabs(k->scale) * (double)k->d)); // scores of about -256
  const Drawing drawings[] = {{2, 0, 0, 1}, {low, 1, -1, 1}, {1, 0, 0, 64}};
  Trial t = {.p = p, .x = x, .queue = queue, .call = call};
  CudaPointer own = 0;
  DnnStatus status = DNN_OK;
  double worst = 0;
  int which = 0;
  if (queue->base.believes) return 1;
  lay_out(&t, NULL);
  if (t.used > bytes && queue->instance->driver->cuMemAlloc_v2(&own, (size_t)t.used)) {
    snprintf(why, size, "%lld bytes are too little memory to compare cuDNN's with it", (long long)bytes);
    return 0;
  }
  lay_out(&t, own ? (char *)(uintptr_t)own : memory);
  draw_documents(&t);
  for (size_t i = 0; i < sizeof drawings / sizeof *drawings && !status && !cuda_has_failed(queue); i++)
    status = compare(&t, &drawings[i], &worst, &which);
  end_trial(&t, own);
  if (status) snprintf(why, size, "cuDNN refuses it (%s)", p->dnn->cudnnGetErrorString(status));
  else if (FAULT(attention_library_is_believed, worst > 1, 0))
    snprintf(why, size, "cuDNN's %s differs from it by %.3g times what rounding explains", names[k->gradient][which],
             worst);
  else return 1;
  return 0;
}
