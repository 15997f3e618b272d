// Dropout masks: the bits of op/formula.h, many counters at a time. The same code for all real types.

#include "device/cpu/philox_batch.h"

// Philox4x32-10 at the counters (c0, c1, c2 + i step2, c3 + i step3), i < PHILOX_BATCH: out[4 i + word].
static void JOIN(philox_batch_, LEVEL)(PhiloxKey key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                                       uint32_t step2, uint32_t step3, uint32_t out[4 * PHILOX_BATCH]) {
  uint32_t c[4][PHILOX_BATCH];
  for (uint32_t i = 0; i < PHILOX_BATCH; i++) {
    c[0][i] = c0;
    c[1][i] = c1;
    c[2][i] = c2 + i * step2;
    c[3][i] = c3 + i * step3;
  }
  philox_rounds(key, c);
  for (int i = 0; i < PHILOX_BATCH; i++)
    for (int word = 0; word < 4; word++) out[4 * i + word] = c[word][i];
}

// An element is kept when its 32 bits are at least this: bits · 2^-32 >= probability, which is below 1.
static uint32_t JOIN(keep_threshold_, LEVEL)(double probability) {
  double threshold = ceil(probability * 0x1p32);
  return threshold >= 0x1p32 ? UINT32_MAX : (uint32_t)threshold;
}

#define philox_batch JOIN(philox_batch_, LEVEL)
#define keep_threshold JOIN(keep_threshold_, LEVEL)
