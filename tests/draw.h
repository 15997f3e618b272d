// Random numbers of tests, the same in every run.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define DRAW_SEED 88172645463325252u

// Marsaglia's xorshift: a number below n. *state: DRAW_SEED at first.
static inline size_t draw_below(uint64_t *state, size_t n) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return (size_t)(*state % n);
}
