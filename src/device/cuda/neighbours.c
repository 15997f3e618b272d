#include "device/cuda/neighbours.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// Kernels that do the work of many launches of another one.
static const struct { CudaKernel one, many; size_t bytes; } kernels[] = {
    {CUDA_KERNEL_adamw, CUDA_KERNEL_adamw_many, sizeof(OptimizerArguments)},
    {CUDA_KERNEL_sum_squares, CUDA_KERNEL_sum_squares_many, sizeof(SumArguments)},
    {CUDA_KERNEL_sum, CUDA_KERNEL_sum_many, sizeof(SumArguments)},
    {CUDA_KERNEL_cast, CUDA_KERNEL_cast_many, sizeof(ElementwiseArguments)}};

int neighbours_wait(Op op) {
  return op == OP_ADAMW || op == OP_SUM_SQUARES || op == OP_CAST || op == OP_ACCUMULATE;
}

enum { GROUPS = 6, GROUP_OPERANDS = MANY * 20, FIRST_BYTES = (MANY + 2) * sizeof(int32_t), MOST_BYTES = 4096 };
#define FITS(Many)                                                                                                     \
  _Static_assert(sizeof(Many) <= MOST_BYTES, "more arguments than a launch takes");                                    \
  _Static_assert(offsetof(Many, each) == FIRST_BYTES, "arguments that lie elsewhere")
FITS(ManyOptimizerArguments);
FITS(ManyElementwiseArguments);
FITS(ManySumArguments);
#undef FITS

// Launches that become one. Each names as many operands, in the same places; one after the other they are in operand.
typedef struct Group {
  CudaKernel many, one;
  Dtype dtype;
  const char *op;
  int threads, count, operands, places;
  size_t bytes; // of the arguments of one
  CudaOperand operand[GROUP_OPERANDS];
  CudaOperand hull[LAUNCH_OPERANDS]; // of each place: from the first byte of its operands to the last
  _Alignas(16) char arguments[MOST_BYTES];
} Group;

// In the order in which they will be done.
struct CudaNeighbours { int count; Group group[GROUPS]; };

static int overlap(const CudaOperand *x, const CudaOperand *y) {
  return x->at < y->at + y->bytes && y->at < x->at + x->bytes;
}

// Parameters lie one after the other, so that most hulls are apart.
static int overlaps_place(const CudaOperand *x, const Group *g, int place) {
  if (!overlap(x, &g->hull[place])) return 0;
  for (int k = place; k < g->operands; k += g->places)
    if (overlap(x, &g->operand[k])) return 1;
  return 0;
}

// Whether the launch reads or writes what the group writes, or writes what the group reads.
static int needs_order(const Launch *l, const Group *g) {
  for (int i = 0; i < l->operands; i++)
    for (int place = 0; place < g->places; place++)
      if ((l->operand[i].mode | g->hull[place].mode) & CUDA_WRITES && overlaps_place(&l->operand[i], g, place))
        return 1;
  return 0;
}

static int32_t *first_of(Group *g) { return (int32_t *)(void *)g->arguments; }

static void launch_group(CudaQueue *q, Group *g) {
  Launch l = {.queue = q, .op = g->op, .dtype = g->dtype};
  int32_t *first = first_of(g);
  for (int k = g->count + 1; k < MANY + 2; k++) first[k] = first[g->count];
  size_t used = FIRST_BYTES + (size_t)g->count * g->bytes;
  memset(g->arguments + used, 0, MOST_BYTES - used); // no addresses of earlier launches
  if (g->count == 1) launch_now(&l, g->one, first[1], g->threads, g->arguments + FIRST_BYTES, g->operand, g->operands);
  else launch_now(&l, g->many, first[g->count], g->threads, g->arguments, g->operand, g->operands);
}

void neighbours_flush(CudaQueue *q) {
  CudaNeighbours *n = q->neighbours;
  for (int i = 0; n && i < n->count; i++) launch_group(q, &n->group[i]);
  if (n) n->count = 0;
}

void neighbours_free(CudaQueue *q) { free(q->neighbours); }

// The group that the launch may join: nothing that comes later needs to be done before it. NULL: none.
static Group *group_for(CudaNeighbours *n, const Launch *l, int kernel, int64_t blocks, int threads) {
  for (int i = n->count - 1; i >= 0; i--) {
    Group *g = &n->group[i];
    const int needs = FAULT(neighbours_forget_their_order, needs_order(l, g), 0);
    if (!needs && g->one == kernels[kernel].one && g->dtype == l->dtype && g->threads == threads && g->count < MANY &&
        g->places == l->operands && g->operands + l->operands <= GROUP_OPERANDS &&
        first_of(g)[g->count] + blocks <= INT32_MAX)
      return g;
    if (needs) return NULL;
  }
  return NULL;
}

static void widen(CudaOperand *hull, const CudaOperand *by) {
  const CudaPointer end = hull->at + hull->bytes, other = by->at + by->bytes;
  if (by->at < hull->at) hull->at = by->at;
  hull->bytes = (end > other ? end : other) - hull->at;
  hull->mode |= by->mode;
}

static void join(Group *g, const Launch *l, int64_t blocks, const void *arguments) {
  for (int i = 0; i < l->operands; i++) {
    if (g->count) widen(&g->hull[i], &l->operand[i]);
    else g->hull[i] = l->operand[i];
    g->operand[g->operands++] = l->operand[i];
  }
  memcpy(g->arguments + FIRST_BYTES + (size_t)g->count * g->bytes, arguments, g->bytes);
  first_of(g)[g->count + 1] = first_of(g)[g->count] + (int32_t)blocks;
  g->count++;
}

int neighbours_take(Launch *l, CudaKernel kernel, int64_t blocks, int threads, const void *arguments) {
  enum { KERNELS = sizeof kernels / sizeof *kernels };
  CudaQueue *q = l->queue;
  int k = 0;
  while (k < KERNELS && kernels[k].one != kernel) k++;
  if (k == KERNELS || q->instance->waits || blocks > INT32_MAX) return 0;
  if (!q->neighbours) q->neighbours = xcalloc(1, sizeof *q->neighbours);
  Group *g = group_for(q->neighbours, l, k, blocks, threads);
  if (!g) {
    if (q->neighbours->count == GROUPS) neighbours_flush(q);
    g = &q->neighbours->group[q->neighbours->count++];
    g->many = kernels[k].many;
    g->one = kernel;
    g->dtype = l->dtype;
    g->op = l->op;
    g->threads = threads;
    g->count = g->operands = 0;
    g->places = l->operands;
    g->bytes = kernels[k].bytes;
    first_of(g)[0] = 0;
  }
  join(g, l, blocks, arguments);
  return 1;
}
