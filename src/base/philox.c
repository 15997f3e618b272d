// Keys and normals for Philox.
#include "base/philox.h"
#include "base/hash.h"
#include <math.h>

uint64_t philox_name(const char *name) { return hash_text(name); }

// SplitMix64's finaliser: every input bit reaches every output bit.
static uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

PhiloxKey philox_key(uint64_t seed, uint64_t step, uint64_t name) {
  uint64_t h = mix(mix(mix(seed) ^ step) ^ name);
  return (PhiloxKey){{(uint32_t)h, (uint32_t)(h >> 32)}};
}

double philox_normal(PhiloxKey key, uint64_t index) {
  uint32_t r[4];
  uint64_t pair = index / 2;
  philox4x32(key, (uint32_t)pair, (uint32_t)(pair >> 32), 0, 0, r);
  double u = philox_uniform_open(r[0], r[1]), v = (r[2] + r[3] * 0x1p-32) * 0x1p-32;
  double radius = sqrt(-2 * log(u)), angle = 6.283185307179586476925 * v;
  return index % 2 ? radius * sin(angle) : radius * cos(angle);
}
