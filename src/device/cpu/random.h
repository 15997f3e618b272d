// Random bits at a level, for dropout masks (op/formula.h) and for rounding moments. The same code for all real types.

#include "device/cpu/philox_batch.h"

static void JOIN(philox_batch_, LEVEL)(PhiloxKey key, uint64_t c01, uint32_t step01, uint32_t c2, uint32_t step2,
                                       uint32_t c3, uint32_t step3, uint32_t out[4 * PHILOX_BATCH]) {
  philox_inline(key, c01, step01, c2, step2, c3, step3, out);
}

// An element is kept when its 32 bits are at least this: bits · 2^-32 >= probability, which is below 1.
static uint32_t JOIN(keep_threshold_, LEVEL)(double probability) {
  double threshold = ceil(probability * 0x1p32);
  return threshold >= 0x1p32 ? UINT32_MAX : (uint32_t)threshold;
}

#define philox_batch JOIN(philox_batch_, LEVEL)
#define keep_threshold JOIN(keep_threshold_, LEVEL)
