// Attention and its gradient: correct, and not fast.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(attention)

// Whether the query at row s sees key t of sample b.
INLINE int sees(const AttentionArguments *a, int64_t b, int64_t s, int64_t t) {
  if (a->documents[b * a->s + s] != a->key_documents[b * a->t + t]) return 0;
  return !a->causal || map_global(&a->keys, t) <= FAULT(kernel_mask_is_one_off, 0, 1) + map_global(&a->queries, s);
}

// By which a probability is multiplied: 0 or 1 / (1 - p) with dropout.
INLINE double mask_of(const AttentionArguments *a, int64_t b, int64_t g, int64_t r, int64_t s, int64_t t) {
  if (a->mask.probability == 0) return 1;
  const int64_t position = map_global(&a->keys, t);
  const uint32_t head = (uint32_t)(map_global(&a->groups, g) * a->all_heads + map_global(&a->heads, r));
  const Four drawn = philox_at(a->mask.key, mask_sample(&a->mask, b), head, (uint32_t)map_global(&a->queries, s),
                               (uint32_t)(position / 4));
  const int lane = (int)(position % 4);
  const uint32_t mine = lane == 0 ? drawn.r[0] : lane == 1 ? drawn.r[1] : lane == 2 ? drawn.r[2] : drawn.r[3];
  return is_kept(&a->mask, mine) ? a->mask.factor : 0;
}

#define OF_REALS "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/each_real.h"
