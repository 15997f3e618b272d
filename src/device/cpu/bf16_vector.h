// bf16 numbers in fp32 vectors: loads widen, stores round to nearest even. Included once a level, after the fp32
// vectors.

#include "device/cpu/bf16_load.h"
typedef uint16_t HalfVector __attribute__((vector_size(LEVEL_BYTES / 2)));

INLINE float widen_bf16(uint16_t x) { return bf16_to_float(x); }
INLINE void store_bf16(uint16_t *p, V v) {
#if LEVEL_BF16
  _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)_mm512_cvtneps_pbh((__m512)v));
#else
  MATH(Bits) u = (MATH(Bits))v, rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16, quiet = u >> 16 | 0x40;
  MATH(Bits) is_number = (MATH(Bits))(v == v);
  *(HalfUnaligned_bf16 *)p = __builtin_convertvector((rounded & is_number) | (quiet & ~is_number), HalfVector);
#endif
}

// The first n lanes; the others are 0.
INLINE V load_part_bf16(const uint16_t *p, int64_t n) {
#if LEVEL_BYTES == 64
  return (V)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p)), 16);
#else
  uint16_t x[WIDTH] = {0};
  memcpy(x, p, sizeof *x * (size_t)n);
  return load_bf16(x);
#endif
}
INLINE void store_part_bf16(uint16_t *p, V v, int64_t n) {
  uint16_t x[WIDTH];
  store_bf16(x, v);
  memcpy(p, x, sizeof *x * (size_t)n);
}

// Rows between bf16 and fp32; may not overlap.
INLINE void widen_row(float *restrict to, const uint16_t *restrict from, int64_t n) {
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH) store_f32(to + i, load_bf16(from + i));
  for (; i < n; i++) to[i] = bf16_to_float(from[i]);
}
INLINE void narrow_row(uint16_t *restrict to, const float *restrict from, int64_t n) {
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH) store_bf16(to + i, load_f32(from + i));
  if (i < n) store_part_bf16(to + i, load_part_f32(from + i, n - i), n - i);
}

INLINE float greatest_lane(V v) {
#if LEVEL_BYTES == 64
  return _mm512_reduce_max_ps((__m512)v);
#else
  union { V v; float x[WIDTH]; } u = {.v = v};
  float m = u.x[0];
  for (int i = 1; i < WIDTH; i++) m = u.x[i] > m ? u.x[i] : m;
  return m;
#endif
}

// A vector of which `left` elements exist.
INLINE V take_bf16(const uint16_t *p, int64_t left) {
  return __builtin_expect(left >= WIDTH, 1) ? load_bf16(p) : load_part_bf16(p, left);
}
INLINE void put_bf16(uint16_t *p, V v, int64_t left) {
  if (__builtin_expect(left >= WIDTH, 1)) store_bf16(p, v);
  else store_part_bf16(p, v, left);
}

// To about 2^-13, which is below the rounding of what is stored.
INLINE V sigmoid_bf16(V x) {
#if LEVEL_BYTES == 64
  return (V)_mm512_rcp14_ps(
      (__m512)(splat_f32(1) + exp_fast_f32(min_f32(splat_f32(87), -x)))); // NaN is the second operand
#else
  return sigmoid_f32(x);
#endif
}
