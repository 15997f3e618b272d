// Hashes that are made up of other numbers, in their order.
#pragma once
#include <stdint.h>

static inline uint64_t hash_mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ b) * 0x9e3779b97f4a7c15;
  return (x ^ x >> 29) * 0xbf58476d1ce4e5b9 + (x >> 32) + 1;
}
