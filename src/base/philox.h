// Philox4x32-10 counter-based random numbers (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// Randomness is addressed, not consumed: key = (seed, step, stable name), counter = the element's global index.
#pragma once
#include <stdint.h>

typedef struct PhiloxKey { uint32_t k[2]; } PhiloxKey;

// A stable 64-bit hash of a name (FNV-1a); the same on every machine.
uint64_t philox_name(const char *name);

// Key from the run's seed, the step (0 for init) and a name's hash.
PhiloxKey philox_key(uint64_t seed, uint64_t step, uint64_t name);

static inline void philox4x32(PhiloxKey key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t out[4]) {
  uint32_t k0 = key.k[0], k1 = key.k[1];
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

// Uniform in [0, 1) from 32 bits.
static inline double philox_uniform(uint32_t bits) { return bits * 0x1p-32; }

// Uniform in (0, 1] from 64 bits, high word first: what a logarithm may be taken of.
static inline double philox_uniform_open(uint32_t high, uint32_t low) {
  return (high + (low + 0.5) * 0x1p-32) * 0x1p-32;
}

// Standard normal at a 64-bit element index (Box-Muller on 2 × 32 bits); the same double on every layout.
double philox_normal(PhiloxKey key, uint64_t index);
