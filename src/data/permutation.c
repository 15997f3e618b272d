// The Feistel network that permutation() uses.
#include "data/permutation.h"
#include "base/error.h"
#include <math.h>

enum { ROUNDS = 10 };

static uint64_t round_value(PhiloxKey key, int round, uint64_t half) {
  uint32_t r[4];
  philox4x32(key, (uint32_t)half, (uint32_t)(half >> 32), (uint32_t)round, 0, r);
  return (uint64_t)r[1] << 32 | r[0];
}

int64_t permutation(PhiloxKey key, int64_t n, int64_t i) {
  CHECK(n >= 1 && n <= (int64_t)1 << 62 && i >= 0 && i < n);
  uint64_t a = (uint64_t)sqrt((double)n); // near the root is enough: any a with b = ceil(n / a) covers n, a·b < n + a
  if (a < 2) a = n > 1 ? 2 : 1;
  uint64_t b = ((uint64_t)n + a - 1) / a, x = (uint64_t)i;
  do { // one pass on average, since a·b exceeds n by less than a
    uint64_t left = x % a, right = x / a;
    for (int round = 0; round < ROUNDS; round++) { // each step adds a function of the other half: a bijection
      if (round % 2) left = (left + round_value(key, round, right) % a) % a;
      else right = (right + round_value(key, round, left) % b) % b;
    }
    x = right * a + left;
  } while (x >= (uint64_t)n);
  return (int64_t)x;
}
