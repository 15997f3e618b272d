// Philox4x32-10 (base/philox.h) at many counters at a time. Inlined into functions of each level, whose vectors it
// uses.
#pragma once
#include "base/philox.h"

enum { PHILOX_BATCH = 16 };

// c: (4, PHILOX_BATCH) counters, word by word; they become the random words.
static inline __attribute__((always_inline)) void philox_rounds(PhiloxKey key, uint32_t c[4][PHILOX_BATCH]) {
  uint32_t k0 = key.k[0], k1 = key.k[1];
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < PHILOX_BATCH; i++) {
      uint64_t p0 = (uint64_t)0xD2511F53u * c[0][i], p1 = (uint64_t)0xCD9E8D57u * c[2][i];
      c[0][i] = (uint32_t)(p1 >> 32) ^ c[1][i] ^ k0;
      c[2][i] = (uint32_t)(p0 >> 32) ^ c[3][i] ^ k1;
      c[1][i] = (uint32_t)p1;
      c[3][i] = (uint32_t)p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}
