// Launches, the table of ops that have kernels, and which of them run there.
#include "device/cuda/facts.h"
#include "device/cuda/launch.h"
#include "device/cuda/attention_library.h"
#include "device/cuda/neighbours.h"
#include <stdlib.h>
#include <string.h>

static const struct OpKernel {
  Op op;
  void (*launch)(Launch *l);
  int (*fits)(const KernelCall *call, Dtype dtype);
  size_t (*workspace)(const Operand *input, const Operand *output, const void *attr, int threads);
} table[] = {
#define OP_KERNEL(op, launch, fits, workspace) {op, launch, fits, workspace},
#include "device/cuda/op_kernels.def"
#undef OP_KERNEL
};
enum { ROWS = sizeof table / sizeof *table };

static int has_dtype(Dtype dtype) {
  return dtype == DTYPE_F64 || dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16;
}

// Masks have no floating-point dtype, and kernels of theirs are one for all.
static int takes_dtype(const struct OpKernel *row, Dtype dtype) {
  return has_dtype(dtype) || row->fits == fits_capacity;
}

int kernels_find(Op op, Dtype dtype, DeviceKernel *kernel) {
  for (int i = 0; i < ROWS; i++)
    if (table[i].op == op && takes_dtype(&table[i], dtype) && !fallback_takes(op)) {
      *kernel = (DeviceKernel){.workspace = table[i].workspace};
      return 1;
    }
  return 0;
}

// An op with a kernel, and how it runs on the host where its operands do not fit.
typedef struct Bound { const struct OpKernel *row; Dtype dtype; int own; DeviceBound host; } Bound;

int kernels_bind(const DeviceKernel *kernel, const KernelCall *call, Arena *arena, DeviceBound *bound, Error *error) {
  Bound *b = arena_array(arena, Bound, 1);
  *b = (Bound){.dtype = has_dtype(kernel->dtype) ? kernel->dtype : DTYPE_F64, .own = own_takes(kernel->op)};
  for (int i = 0; i < ROWS && !kernel->on_host; i++)
    if (table[i].op == kernel->op) b->row = &table[i];
  *bound = (DeviceBound){.own = b};
  return fallback_bind(kernel, call, arena, &b->host, error);
}

// Whether it makes products.
static int multiplies(const struct OpKernel *row) {
  return row->workspace == cuda_product_workspace || row->workspace == cuda_head_workspace ||
         row->workspace == cuda_orthogonalize_workspace;
}

static int attends(const struct OpKernel *row) {
  return row->workspace == cuda_attention_workspace || row->workspace == cuda_attention_grad_workspace;
}

// Operands of a call that only says which products it makes: all are there, as aligned as memory is.
static Operand *stand_ins(const Operand *x, int n) {
  Operand *y = xcalloc((size_t)n + 1, sizeof *y);
  memcpy(y, x, (size_t)n * sizeof *y);
  for (int k = 0; k < n; k++) y[k].data = (void *)((uintptr_t)1 << 40);
  return y;
}

static int check_attention(CudaQueue *queue, const Bound *b, const KernelCall *call, char *memory, int64_t bytes) {
  const int gradient = b->row->workspace == cuda_attention_grad_workspace;
  AttentionKey key;
  if (!attention_key(call, gradient, &key) || !attention_ready(queue->instance)) return 0;
  attention_try(queue, call, gradient, memory, bytes);
  return 1;
}

// Where a product is found wrong, the call asks for another one in its place, which is tried next.
static int check_products(CudaQueue *queue, const Bound *b, const KernelCall *call, char *memory, int64_t bytes) {
  int count = 0, tried = 1;
  while (tried) {
    ProductKeys asked = {0};
    Launch l = {.queue = queue, .call = call, .op = op_name(b->row->op), .dtype = b->dtype, .asked = &asked};
    tried = 0;
    b->row->launch(&l);
    for (int i = 0; i < asked.list.count; i++) tried |= products_try(queue, &asked.list.data[i], memory, bytes);
    count = asked.list.count;
    vec_free(&asked.list);
  }
  return count;
}

int kernels_check(CudaQueue *queue, const DeviceBound *bound, const KernelCall *call, char *memory, int64_t bytes) {
  const Bound *b = bound->own;
  if (!b->row || b->own || !queue->instance->has_kernels || !b->row->fits(call, b->dtype)) return 0;
  if (attends(b->row)) return check_attention(queue, b, call, memory, bytes);
  if (!multiplies(b->row) || !products_ready(queue->instance)) return 0;
  Operand *input = stand_ins(call->input, call->ninput), *output = stand_ins(call->output, call->noutput);
  KernelCall there = *call;
  there.input = input;
  there.output = output;
  there.workspace = (void *)((uintptr_t)1 << 40);
  const int count = check_products(queue, b, &there, memory, bytes);
  free(input);
  free(output);
  return count;
}

void kernels_run(CudaQueue *queue, const DeviceBound *bound, const KernelCall *call) {
  const Bound *b = bound->own;
  const int waits = b->row && neighbours_wait(b->row->op);
  if (!waits) neighbours_flush(queue);
  if (cuda_has_failed(queue)) return;
  if (!b->row || !queue->instance->has_kernels || !b->row->fits(call, b->dtype)) {
    neighbours_flush(queue);
    queue->host_calls += b->row != NULL;
    fallback_run(queue, &b->host, call);
    return;
  }
  Launch l = {.queue = queue, .call = call, .op = op_name(b->row->op), .dtype = b->dtype, .own = b->own,
              .waits = waits};
  b->row->launch(&l);
}

int64_t cuda_host_calls(const DeviceQueue *queue) { return ((const CudaQueue *)(const void *)queue)->host_calls; }

// Parts of a launch ------------------------------------------------------------------------------------------------

void *launch_bytes(Launch *l, const char *name, void *at, int64_t bytes, unsigned mode) {
  if (!at || bytes <= 0) return NULL;
  CHECK(l->operands < LAUNCH_OPERANDS, "%s has too many operands", l->op);
  l->operand[l->operands++] = (CudaOperand){name, (CudaPointer)(uintptr_t)at, (size_t)bytes, mode};
  return at;
}

void *launch_operand(Launch *l, const char *name, const Operand *x, unsigned mode) {
  return launch_bytes(l, name, x->data, x->data ? operand_elements(x) * (int64_t)dtype_size(x->dtype) : 0, mode);
}

Array launch_array(Launch *l, const char *name, const Operand *x, unsigned mode) {
  return (Array){launch_operand(l, name, x, mode), x->dtype};
}

int block_threads(int64_t n) {
  return n >= BLOCK_THREADS ? BLOCK_THREADS : n <= WARP ? WARP : (int)divide_up(n, WARP) * WARP;
}

int pack_threads(int64_t n, Dtype dtype) { return block_threads(divide_up(n * (int64_t)dtype_size(dtype), 16)); }

RowMap launch_map(const IndexMap *map) {
  RowMap m = {.valid = map->valid, .runs = map->runs};
  for (int r = 0; r < 2; r++) {
    m.local[r] = map->run[r].local;
    m.global[r] = map->run[r].global;
  }
  return m;
}

MaskArguments launch_mask(const Launch *l, double probability, uint64_t stream, const IndexMap *samples) {
  if (probability <= 0) return (MaskArguments){.factor = 1};
  const CallParameters *p = l->call->parameters;
  PhiloxKey key = philox_key(p->seed, p->step, stream);
  return (MaskArguments){.samples = launch_map(samples), .sample_base = p->sample_base, .probability = probability,
                         .factor = 1 / (1 - probability), .key = {key.k[0], key.k[1]}};
}

int64_t launch_valid(const Operand *x) {
  for (int i = 1; i < x->rank; i++)
    if (x->map[i].valid < x->size[i]) return -1;
  return x->rank ? x->map[0].valid * operand_extent(x, 1, x->rank) : 1;
}

void launch_now(Launch *l, CudaKernel kernel, int64_t blocks, int threads, const void *arguments,
                const CudaOperand *operand, int operands) {
  CudaQueue *q = l->queue;
  const CudaDriver *driver = q->instance->driver;
  void *parameter = (void *)(uintptr_t)arguments;
  if (cuda_has_failed(q)) return;
  CHECK(blocks <= INT32_MAX, "%s has more blocks than a grid", l->op);
  if (driver->takes_operands) driver->takes_operands(operand, operands);
  CudaResult result = driver->cuLaunchKernel(q->instance->function[kernel][l->dtype], (unsigned)blocks, 1, 1,
                                             (unsigned)threads, 1, 1, 0, q->stream, &parameter, NULL);
  if (!cuda_noted(q, result, "cuLaunchKernel", l->op)) cuda_wait_if_asked(q, l->op);
}

void launch_kernel(Launch *l, CudaKernel kernel, int64_t blocks, int threads, const void *arguments) {
  if (!l->asked && blocks > 0 && !(l->waits && neighbours_take(l, kernel, blocks, threads, arguments))) {
    neighbours_flush(l->queue);
    launch_now(l, kernel, blocks, threads, arguments, l->operand, l->operands);
  }
  l->operands = 0;
}

// Which operands fit --------------------------------------------------------------------------------------------------

static int is_float_or_absent(const Operand *x) { return !x->data || dtype_is_float(x->dtype); }

int fits_any(const KernelCall *call, Dtype dtype) { return 1; }

int fits_one_dtype(const KernelCall *call, Dtype dtype) {
  if (call->ninput > MOST_TERMS) return 0;
  for (int k = 0; k < call->ninput; k++)
    if (call->input[k].data && call->input[k].dtype != dtype) return 0;
  for (int k = 0; k < call->noutput; k++)
    if (call->output[k].dtype != dtype) return 0;
  return 1;
}

int fits_floats(const KernelCall *call, Dtype dtype) {
  for (int k = 0; k < call->noutput; k++)
    if (!is_float_or_absent(&call->output[k])) return 0;
  return 1;
}

// The first input and output are the kernel's; others have any dtype.
int fits_first(const KernelCall *call, Dtype dtype) {
  return call->input[0].dtype == dtype && call->output[0].dtype == dtype;
}

// Valid elements come first.
int fits_prefix(const KernelCall *call, Dtype dtype) {
  return launch_valid(&call->input[0]) >= 0 && (!call->noutput || launch_valid(&call->output[0]) >= 0);
}
