// Sums of products of users' graphs that no product of a library is.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(einsum)

// Moves the operands by `index` steps of these loops, the last of which is the fastest.
INLINE void loops_move(const EinsumLoops *l, int64_t index, int64_t at[3]) {
  for (int d = (int)l->count - 1; d >= 0; d--) {
    const int64_t next = d ? index / l->size[d] : 0, i = index - next * l->size[d];
    for (int k = 0; k < 3; k++) at[k] += i * l->step[k][d];
    index = next;
  }
}

// Where the element of the output with this number, by its parts one after the other, begins in each operand.
typedef struct EinsumPlace { int64_t at[3]; } EinsumPlace;
INLINE EinsumPlace place_of(const EinsumArguments *a, int64_t i) {
  EinsumPlace p = {{0, 0, 0}};
  for (int part = EINSUM_COLUMNS; part >= EINSUM_BOTH; part--) {
    const int64_t next = i / a->part[part].all;
    loops_move(&a->part[part], i - next * a->part[part].all, p.at);
    i = next;
  }
  return p;
}

#define OF_REALS "device/cuda/kernels/einsum.h"
#include "device/cuda/kernels/each_real.h"
