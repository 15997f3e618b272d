// Attention without dropout, and its gradient: correct, and not fast.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(attention)

// Whether the query at row s sees key t of sample b.
INLINE int sees(const AttentionArguments *a, int64_t b, int64_t s, int64_t t) {
  if (a->documents[b * a->s + s] != a->key_documents[b * a->t + t]) return 0;
  return !a->causal || map_global(&a->keys, t) <= FAULT(kernel_mask_is_one_off, 0, 1) + map_global(&a->queries, s);
}

#define OF_REALS "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/each_real.h"
