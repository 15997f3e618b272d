// fp16 ↔ fp32 without branches or calls, for loops over arrays (base/dtype.h has the readable ones; tests compare all
// values).
#pragma once
#include "base/dtype.h"
#include <string.h>

static inline float half_to_float(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
  float f;
  memcpy(&f, &magnitude, 4);
  f *= 0x1p112f; // the exponents' biases differ by 112; subnormals come out right too
  uint32_t bits;
  memcpy(&bits, &f, 4);
  bits |= sign | (magnitude >= 0x0f800000 ? 0x7f800000u : 0); // infinity and NaN keep the largest exponent
  memcpy(&f, &bits, 4);
  return f;
}
// All ones where a < b, both below 2^31: a mask, because compilers keep a branch around floating-point work.
static inline uint32_t below(uint32_t a, uint32_t b) { return (uint32_t)((int32_t)(a - b) >> 31); }
static inline uint16_t half_from_float(float f) {
  uint32_t bits, sign, subnormal;
  memcpy(&bits, &f, 4);
  sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  float magnitude;
  memcpy(&magnitude, &bits, 4);
  magnitude += 0.5f; // below 2^-14: the addition itself rounds to a multiple of 2^-24
  memcpy(&subnormal, &magnitude, 4);
  subnormal -= 0x3f000000;
  uint32_t normal = (bits + 0xfff + (bits >> 13 & 1) - 0x38000000u) >> 13;
  uint32_t small = below(bits, 0x38800000), finite = below(bits, 0x477ff000), nan = below(0x7f800000, bits);
  uint32_t value = (subnormal & small) | (normal & ~small);
  return (uint16_t)(sign | (value & finite) | ((0x7c00 | (nan & 0x0200)) & ~finite));
}
