// Element types. One list (dtypes.def) gives the enum, the names and the sizes.
#pragma once
#include "base/fault.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum Dtype {
#define DTYPE(id, name, file, bytes, is_float) DTYPE_##id,
#include "base/dtypes.def"
#undef DTYPE
  DTYPE_COUNT
} Dtype;

const char *dtype_name(Dtype dtype);        // "fp32"
const char *dtype_file_name(Dtype dtype);   // "F32", as in safetensors
size_t dtype_size(Dtype dtype);             // bytes
int dtype_is_float(Dtype dtype);
int dtype_from_name(const char *name);      // "fp32" → DTYPE_F32, or -1
int dtype_from_file_name(const char *name); // "F32" → DTYPE_F32, or -1

// bf16 ↔ fp32, rounding to nearest even; NaN stays NaN.
static inline float bf16_to_float(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static inline uint16_t bf16_from_float(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
// An fp32 number as the bf16 nearest to it, halves away from zero, and the 16 bits that lead back: the difference of
// the bits of the two, which is at most a half only because halves go one way. A NaN becomes the quiet NaN of its upper
// half, so that its bf16 is one too; everything else comes back to the bit.
static inline uint16_t bf16_split(float f, uint16_t *low) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) u = (u & 0xffff0000u) | 0x00400000u;
  *low = (uint16_t)u;
  return (uint16_t)((u + FAULT(halves_go_to_even, 0x8000u, 0x7fffu + (u >> 16 & 1))) >> 16);
}
static inline float bf16_join(uint16_t high, uint16_t low) {
  uint32_t u = ((uint32_t)high << 16) + low - (((uint32_t)low & 0x8000u) << 1);
  float f;
  memcpy(&f, &u, 4);
  return f;
}
float f16_to_float(uint16_t h);
uint16_t f16_from_float(float f);

// Element i of an array of any dtype as a double, and back (rounds to the dtype). For reference code, not for speed.
double dtype_load(const void *data, Dtype dtype, int64_t i);
void dtype_store(void *data, Dtype dtype, int64_t i, double value);
