// Sums of products of users' graphs that no product of a library is.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(einsum)

// Elements by which an operand has moved after `index` steps of these loops, the last of which is the fastest.
INLINE int64_t loops_at(const EinsumLoops *l, int operand, int64_t index) {
  int64_t at = 0;
  for (int d = (int)l->count - 1; d > 0; d--) {
    at += index % l->size[d] * l->step[operand][d];
    index /= l->size[d];
  }
  return l->count ? at + index * l->step[operand][0] : 0;
}

// Where the element of the output with this number, by its parts one after the other, begins in each operand.
typedef struct EinsumPlace { int64_t at[3]; } EinsumPlace;
INLINE EinsumPlace place_of(const EinsumArguments *a, int64_t i) {
  EinsumPlace p = {{0, 0, 0}};
  for (int part = EINSUM_COLUMNS; part >= EINSUM_BOTH; part--) {
    const EinsumLoops *l = &a->part[part];
    for (int k = 0; k < 3; k++) p.at[k] += loops_at(l, k, i % l->all);
    i /= l->all;
  }
  return p;
}

#define OF_REALS "device/cuda/kernels/einsum.h"
#include "device/cuda/kernels/each_real.h"
