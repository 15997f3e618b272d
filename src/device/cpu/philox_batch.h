// Philox4x32-10 (base/philox.h) at PHILOX_BATCH counters at a time, in the vectors of a level (LEVEL_BYTES).
#pragma once
#include "base/philox.h"

enum { PHILOX_BATCH = 16 };

// Counters (c01 + i step01, c2 + i step2, c3 + i step3), i < PHILOX_BATCH, where c01 is the first two words, the first
// one low. out: (PHILOX_BATCH, 4) random words.
#if LEVEL_BYTES >= 32

// Each word of a counter has 64 bits of a vector, so that a product with a constant is one instruction. The upper
// halves of the words may contain anything: products read the lower halves only. Two groups of counters at a
// time: they do not depend on each other, so one computes while the other's multiplications are in flight.
#if LEVEL_BYTES == 64
typedef __m512i PhiloxVector;
#define PHILOX(name) _mm512_##name
#define PHILOX_SPLAT(x) _mm512_set1_epi64((long long)(x))
#define PHILOX_XOR(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0x96)
#define PHILOX_LOW(low, high) _mm512_mask_blend_epi32(0xaaaa, low, high)
#define PHILOX_STORE(p, v) _mm512_storeu_si512((void *)(p), v)
#define PHILOX_ORDER _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7)
#else
typedef __m256i PhiloxVector;
#define PHILOX(name) _mm256_##name
#define PHILOX_SPLAT(x) _mm256_set1_epi64x((long long)(x))
#define PHILOX_XOR(a, b, c) _mm256_xor_si256(a, _mm256_xor_si256(b, c))
#define PHILOX_LOW(low, high) _mm256_blend_epi32(low, high, 0xaa)
#define PHILOX_STORE(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define PHILOX_ORDER _mm256_setr_epi64x(0, 2, 1, 3)
#endif

INLINE void philox_inline(PhiloxKey key, uint64_t c01, uint32_t step01, uint32_t c2, uint32_t step2, uint32_t c3,
                          uint32_t step3, uint32_t out[4 * PHILOX_BATCH]) {
  enum { LANES = LEVEL_BYTES / 8, GROUPS = 2 };
  const PhiloxVector m0 = PHILOX_SPLAT(0xD2511F53u), m1 = PHILOX_SPLAT(0xCD9E8D57u);
  for (int from = 0; from < PHILOX_BATCH; from += GROUPS * LANES) {
    PhiloxVector a[GROUPS], b[GROUPS], c[GROUPS], d[GROUPS];
    UNROLL for (int g = 0; g < GROUPS; g++) {
      PhiloxVector i = PHILOX(add_epi64)(PHILOX_ORDER, PHILOX_SPLAT(from + g * LANES));
      a[g] = PHILOX(add_epi64)(PHILOX_SPLAT(c01), PHILOX(mul_epu32)(i, PHILOX_SPLAT(step01)));
      b[g] = PHILOX(srli_epi64)(a[g], 32);
      c[g] = PHILOX(add_epi64)(PHILOX_SPLAT(c2), PHILOX(mul_epu32)(i, PHILOX_SPLAT(step2)));
      d[g] = PHILOX(add_epi64)(PHILOX_SPLAT(c3), PHILOX(mul_epu32)(i, PHILOX_SPLAT(step3)));
    }
    uint32_t k0 = key.k[0], k1 = key.k[1];
    UNROLL for (int round = 0; round < 10; round++) {
      PhiloxVector key0 = PHILOX_SPLAT(k0), key1 = PHILOX_SPLAT(k1);
      UNROLL for (int g = 0; g < GROUPS; g++) {
        PhiloxVector p0 = PHILOX(mul_epu32)(a[g], m0), p1 = PHILOX(mul_epu32)(c[g], m1);
        a[g] = PHILOX_XOR(PHILOX(srli_epi64)(p1, 32), b[g], key0);
        c[g] = PHILOX_XOR(PHILOX(srli_epi64)(p0, 32), d[g], key1);
        b[g] = p1;
        d[g] = p0;
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    // PHILOX_ORDER puts counters where the unpacking below, which works on 16 bytes at a time, needs them.
    UNROLL for (int g = 0; g < GROUPS; g++) {
      PhiloxVector ab = PHILOX_LOW(a[g], PHILOX(slli_epi64)(b[g], 32)),
                   cd = PHILOX_LOW(c[g], PHILOX(slli_epi64)(d[g], 32));
      PHILOX_STORE(out + 4 * (from + g * LANES), PHILOX(unpacklo_epi64)(ab, cd));
      PHILOX_STORE(out + 4 * (from + g * LANES) + 2 * LANES, PHILOX(unpackhi_epi64)(ab, cd));
    }
  }
}

#else

INLINE void philox_inline(PhiloxKey key, uint64_t c01, uint32_t step01, uint32_t c2, uint32_t step2, uint32_t c3,
                          uint32_t step3, uint32_t out[4 * PHILOX_BATCH]) {
  uint32_t c[4][PHILOX_BATCH], k0 = key.k[0], k1 = key.k[1];
  for (uint32_t i = 0; i < PHILOX_BATCH; i++) {
    uint64_t first = c01 + (uint64_t)i * step01;
    c[0][i] = (uint32_t)first;
    c[1][i] = (uint32_t)(first >> 32);
    c[2][i] = c2 + i * step2;
    c[3][i] = c3 + i * step3;
  }
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
  for (int i = 0; i < PHILOX_BATCH; i++)
    for (int word = 0; word < 4; word++) out[4 * i + word] = c[word][i];
}

#endif
