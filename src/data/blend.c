// Weighted blends by the van der Corput sequence.
#include "data/blend.h"
#include "base/philox.h"
#include <math.h>
#include <stdlib.h>

enum { BITS = 32 };

static uint32_t reverse_bits(uint32_t v) {
  uint32_t r = 0;
  for (int i = 0; i < BITS; i++) r = r << 1 | (v >> i & 1);
  return r;
}

// How many of the points 0 … n-1 lie in [0, x); n, x in [0, 2^32]. [0, n) is the union of one aligned block per set bit
// t of n: there the low t digits run through everything and the others are fixed. Mirrored, the top t bits of the point
// are free and the rest is fixed, so the block holds one point in each of 2^t equal stretches.
static uint64_t points_below(uint64_t n, uint64_t x, uint32_t shift) {
  uint64_t total = 0;
  for (int t = 0; t <= BITS; t++) {
    if (!(n >> t & 1)) continue;
    uint64_t block = (n >> t ^ 1) << t; // bit t cleared: the block's first sample; n = 2^32 gives t = 32 and block 0
    uint64_t stretch = (uint64_t)1 << (BITS - t);
    uint64_t fixed = (reverse_bits((uint32_t)block) ^ shift) & (stretch - 1);
    total += x / stretch + (fixed < x % stretch);
  }
  return total;
}

int blend_create(Blend *blend, const double *weights, int count, uint64_t seed, Error *error) {
  *blend = (Blend){0};
  double sum = 0;
  for (int k = 0; k < count; k++) {
    if (!isfinite(weights[k]) || weights[k] <= 0)
      return error_set(error, PLAIT_BAD_INPUT, "the weight of dataset %d of the blend is %g, it must be positive",
                       k + 1, weights[k]);
    sum += weights[k];
  }
  if (count < 1 || !isfinite(sum))
    return error_set(error, PLAIT_BAD_INPUT, "a blend needs at least one dataset and weights with a finite sum");
  blend->begin = xcalloc((size_t)count + 1, sizeof *blend->begin);
  blend->count = count;
  double before = 0;
  for (int k = 1; k <= count; k++) {
    before += weights[k - 1];
    blend->begin[k] = k == count ? (uint64_t)1 << BITS : (uint64_t)llround(before / sum * 0x1p32);
    if (blend->begin[k] > blend->begin[k - 1]) continue;
    blend_destroy(blend);
    return error_set(error, PLAIT_BAD_INPUT,
                     "the weight of dataset %d of the blend is %g, less than 2^-32 of the sum %g", k, weights[k - 1],
                     sum);
  }
  blend->shift = philox_key(seed, 0, philox_name("data.blend")).k[0];
  return PLAIT_OK;
}

void blend_destroy(Blend *blend) {
  free(blend->begin);
  *blend = (Blend){0};
}

int64_t blend_count(const Blend *blend, int dataset, int64_t n) {
  int64_t periods = n >> BITS;
  uint64_t rest = (uint64_t)n & 0xffffffffu, low = blend->begin[dataset], high = blend->begin[dataset + 1];
  return periods * (int64_t)(high - low) +
         (int64_t)(points_below(rest, high, blend->shift) - points_below(rest, low, blend->shift));
}

void blend_pick(const Blend *blend, int64_t i, int *dataset, int64_t *index) {
  CHECK(i >= 0);
  uint32_t point = reverse_bits((uint32_t)i) ^ blend->shift;
  int low = 0, high = blend->count; // begin[low] <= point < begin[high]
  while (high - low > 1) {
    int middle = low + (high - low) / 2;
    if (blend->begin[middle] <= point) low = middle;
    else high = middle;
  }
  *dataset = low;
  *index = blend->count == 1 ? i : blend_count(blend, low, i);
}
