#include "device/cuda/attention_library.h"
#include "device/cuda/launch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int start(CudaInstance *c, Error *error) {
  const CudaDnn *dnn = cuda_dnn(c->driver, error);
  if (!dnn) return PLAIT_INFEASIBLE;
  CudaAttention *p = xcalloc(1, sizeof *p);
  p->dnn = dnn;
  DnnStatus status = dnn->cudnnCreate(&p->handle);
  if (status) {
    free(p);
    return error_set(error, PLAIT_INFEASIBLE, "%s does not start: %s", dnn->path, dnn->cudnnGetErrorString(status));
  }
  pthread_mutex_init(&p->mutex, NULL);
  c->attention = p;
  return PLAIT_OK;
}

int attention_ready(CudaInstance *c) { return cuda_library_ready(c, CUDA_LIBRARY_DNN, "attention uses", start); }

// Keys ---------------------------------------------------------------------------------------------------------------

static int is_narrow(Dtype dtype) { return dtype == DTYPE_BF16 || dtype == DTYPE_F16; }

// Of sizes and dtypes alone, which are known when memory is planned.
static int has_form(const Operand *input, const Operand *output, const AttentionAttr *attr) {
  const Operand *q = &input[0], *k = &input[1];
  return is_narrow(q->dtype) && k->dtype == q->dtype && input[2].dtype == q->dtype && output[0].dtype == q->dtype &&
         attr->causal && attr->documents != ATTENTION_DOCUMENTS_ANY && attr->dropout == 0 && q->size[1] == k->size[1] &&
         q->size[4] % 8 == 0 && q->size[4] <= ATTENTION_WIDTH && operand_elements(q) > 0 && q->size[1] <= INT32_MAX;
}

// Ranks that share a sequence have parts of it.
static int has_same_positions(const IndexMap *x, const IndexMap *y) {
  return x->runs == 1 && y->runs == 1 && x->run[0].global == y->run[0].global && x->valid == x->local &&
         y->valid == y->local;
}

static AttentionKey key_of(const Operand *input, const AttentionAttr *attr, int gradient) {
  const int64_t *n = input[0].size;
  return (AttentionKey){.b = n[0], .t = n[1], .g = n[2], .r = n[3], .d = n[4], .scale = attr->scale,
                        .dtype = (int32_t)input[0].dtype, .gradient = gradient,
                        .whole = attr->documents == ATTENTION_DOCUMENTS_ONE,
                        .same_bits = gradient && FAULT(attention_forgets_same_bits, attr->same_bits, 0)};
}

int attention_key(const KernelCall *call, int gradient, AttentionKey *key) {
  const Operand *statistics = gradient ? &call->input[6] : &call->output[1];
  if (!has_form(call->input, call->output, call->attr) || statistics->dtype != DTYPE_F32) return 0;
  if (gradient && (call->input[5].dtype != call->input[0].dtype || call->input[7].dtype != call->input[0].dtype))
    return 0;
  if (!has_same_positions(&call->input[0].map[1], &call->input[1].map[1])) return 0;
  *key = key_of(call->input, call->attr, gradient);
  return 1;
}

static void describe(const AttentionKey *k, char *text, size_t size) {
  snprintf(text, size, "%s of %lld × %lld, %lld heads of %lld%s in %s%s%s", k->gradient ? "gradients" : "attention",
           (long long)k->b, (long long)k->t, (long long)(k->g * k->r), (long long)k->d,
           k->r > 1 ? ", grouped," : "", dtype_name((Dtype)k->dtype), k->whole ? " without documents" : "",
           k->same_bits ? " that have the same bits" : "");
}

static LibraryAttention *find(CudaAttention *p, const AttentionKey *key) {
  for (int i = 0; i < p->list.count; i++)
    if (!memcmp(&p->list.data[i].key, key, sizeof *key)) return &p->list.data[i];
  return NULL;
}

// Workspace ----------------------------------------------------------------------------------------------------------

enum { PLACED = 256 };
static int64_t placed(int64_t bytes) { return divide_up(bytes, PLACED) * PLACED; }

// Of a call, in this order. sums: of a gradient, as plait's own kernel has them.
typedef struct Parts { int64_t sums, starts, dq_sums, library, bytes; } Parts;
static Parts parts_of(const AttentionKey *k) {
  const int64_t rows = k->b * k->t * k->g * k->r;
  Parts p = {0};
  p.starts = k->gradient ? placed(rows * (int64_t)sizeof(float)) : 0;
  p.dq_sums = p.starts + (k->whole ? 0 : placed(k->b * k->t * (int64_t)sizeof(int32_t)));
  p.library = p.dq_sums + (k->gradient && !k->same_bits ? placed(rows * k->d * (int64_t)sizeof(float)) : 0);
  p.bytes = p.library + attention_plan_room(k);
  return p;
}

int64_t attention_workspace(const Operand *input, const Operand *output, const AttentionAttr *attr, int gradient) {
  if (!has_form(input, output, attr)) return 0;
  const AttentionKey key = key_of(input, attr, gradient);
  return parts_of(&key).bytes;
}

// Calls --------------------------------------------------------------------------------------------------------------

// The first key of each query's document. (Documents lie one after the other.)
static void find_starts(Launch *l, const AttentionKey *k, int32_t *starts) {
  StartsArguments a = {.starts = starts, .t = k->t};
  Launch own = {.queue = l->queue, .call = l->call, .op = l->op, .dtype = l->dtype};
  a.documents = launch_operand(&own, "documents", launch_input(l, 4), CUDA_READS);
  launch_bytes(&own, "starts", starts, k->b * k->t * (int64_t)sizeof *starts, CUDA_WRITES);
  launch_kernel(&own, CUDA_KERNEL_document_starts, k->b, BLOCK_THREADS, &a);
}

static void clear(const Launch *l, void *at, int64_t bytes) {
  const CudaDriver *driver = l->queue->instance->driver;
  cuda_noted(l->queue, driver->cuMemsetD8Async((CudaPointer)(uintptr_t)at, 0, (size_t)bytes, l->queue->stream),
             "cuMemsetD8Async", l->op);
}

// Of a call whose operands lie in the device's memory.
DnnStatus attention_attend(const CudaAttention *p, const LibraryAttention *x, Launch *l) {
  const KernelCall *call = l->call;
  const Parts parts = parts_of(&x->key);
  char *workspace = call->workspace;
  CHECK(workspace && (int64_t)call->workspace_size >= parts.bytes, "%s has too little workspace", l->op);
  void *at[ATTENTION_OPERANDS] = {[ATTENTION_Q] = call->input[0].data,
                                  [ATTENTION_K] = call->input[1].data,
                                  [ATTENTION_V] = call->input[2].data,
                                  [ATTENTION_STARTS] = workspace + parts.starts,
                                  [ATTENTION_SUMS] = workspace + parts.sums,
                                  [ATTENTION_DQ_SUMS] = workspace + parts.dq_sums};
  if (x->key.gradient) {
    at[ATTENTION_OUT] = call->input[5].data;
    at[ATTENTION_LOGSUMEXP] = call->input[6].data;
    at[ATTENTION_DOUT] = call->input[7].data;
    for (int i = 0; i < 3; i++) at[ATTENTION_DQ + i] = call->output[i].data;
  } else {
    at[ATTENTION_OUT] = call->output[0].data;
    at[ATTENTION_LOGSUMEXP] = call->output[1].data;
  }
  for (int i = 0; i < ATTENTION_OPERANDS; i++)
    if (x->plan.used[i] && (uintptr_t)at[i] % ATTENTION_ALIGNED) return DNN_BAD_VALUE;
  if (!x->key.whole) find_starts(l, &x->key, (int32_t *)at[ATTENTION_STARTS]);
  if (x->clears) clear(l, at[ATTENTION_DQ_SUMS], parts.library - parts.dq_sums);
  if (cuda_has_failed(l->queue)) return DNN_OK; // whoever waits for the queue learns it
  DnnStatus status = p->dnn->cudnnSetStream(p->handle, l->queue->stream);
  return status ? status
                : attention_plan_run(p->dnn, p->handle, &x->plan, &x->key, at, workspace + parts.library);
}

static void note(const CudaInstance *c, const AttentionKey *key, const char *text) {
  char what[128];
  describe(key, what, sizeof what);
  fprintf(stderr, "note: CUDA device %d: plait's own kernel makes %s: %s\n", c->number, what, text);
}

int attention_launch(Launch *l, int gradient) {
  CudaAttention *p = l->queue->instance->attention;
  AttentionKey key;
  if (!p || l->own || cuda_has_failed(l->queue) || !attention_key(l->call, gradient, &key)) return 0;
  DnnStatus status = DNN_OK;
  pthread_mutex_lock(&p->mutex);
  LibraryAttention *x = find(p, &key);
  if (!x) {
    note(l->queue->instance, &key, "cuDNN's was not compared with it when the run began");
    vec_push(&p->list, ((LibraryAttention){.key = key, .own = 1}));
  }
  int own = !x || x->own;
  if (!own) status = attention_attend(p, x, l);
  pthread_mutex_unlock(&p->mutex);
  if (own) return 0;
  if (status) cuda_noted_text(l->queue, p->dnn->cudnnGetErrorString(status), "cudnnBackendExecute", l->op);
  else cuda_wait_if_asked(l->queue, l->op);
  return 1;
}

// Kernels of older cards may add to dq_sums without making them zero: then this is done for them.
static void try_plan(const CudaAttention *p, LibraryAttention *x, CudaQueue *q, const KernelCall *call, char *memory,
                     int64_t bytes, char *why, size_t size) {
  if (attention_is_right(p, x, q, call, memory, bytes, why, size) || !x->key.gradient || x->key.same_bits) return;
  char first[160];
  snprintf(first, sizeof first, "%s", why);
  x->clears = 1;
  *why = 0;
  if (!attention_is_right(p, x, q, call, memory, bytes, why, size)) snprintf(why, size, "%s", first);
}

void attention_try(CudaQueue *q, const KernelCall *call, int gradient, char *memory, int64_t bytes) {
  CudaAttention *p = q->instance->attention;
  AttentionKey key;
  if (!p || cuda_has_failed(q) || !attention_key(call, gradient, &key)) return;
  pthread_mutex_lock(&p->mutex);
  if (!find(p, &key)) {
    LibraryAttention x = {.key = key};
    char why[160] = "";
    DnnStatus status = attention_plan_make(p->dnn, &(DnnTarget){.handle = p->handle}, &key, &x.plan);
    if (status)
      snprintf(why, sizeof why, "cuDNN has none (%s: %s)", x.plan.failed, p->dnn->cudnnGetErrorString(status));
    else if (x.plan.workspace > attention_plan_room(&key))
      snprintf(why, sizeof why, "cuDNN's needs %lld bytes of workspace, and memory plans have %lld for it",
               (long long)x.plan.workspace, (long long)attention_plan_room(&key));
    else try_plan(p, &x, q, call, memory, bytes, why, sizeof why);
    if (*why) {
      note(q->instance, &key, why);
      attention_plan_free(p->dnn, &x.plan);
      x.own = 1;
    }
    vec_push(&p->list, x);
  }
  pthread_mutex_unlock(&p->mutex);
}
