// Hashes that are the same on every machine.
#pragma once
#include <stdint.h>

// Of a text: FNV-1a.
static inline uint64_t hash_text(const char *text) {
  uint64_t h = 14695981039346656037u;
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
  return h;
}

// Of two numbers, in their order.
static inline uint64_t hash_mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ b) * 0x9e3779b97f4a7c15;
  return (x ^ x >> 29) * 0xbf58476d1ce4e5b9 + (x >> 32) + 1;
}
