// bf16 numbers in fp32 vectors: loads widen, stores round to nearest even. Included once a level, after the fp32 vectors.

typedef uint16_t HalfUnaligned __attribute__((vector_size(LEVEL_BYTES / 2), may_alias, aligned(2)));
typedef uint16_t HalfVector __attribute__((vector_size(LEVEL_BYTES / 2)));

INLINE V load_bf16(const uint16_t *p) {
#if LEVEL_BYTES == 64
  return (V)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16);
#elif LEVEL_BYTES == 32
  return (V)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16);
#else
  return (V)(__builtin_convertvector(*(const HalfUnaligned *)p, TYPED(Bits)) << 16);
#endif
}

INLINE void store_bf16(uint16_t *p, V v) {
#if LEVEL_BF16
  _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)_mm512_cvtneps_pbh((__m512)v));
#else
  TYPED(Bits) u = (TYPED(Bits))v, rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16, quiet = u >> 16 | 0x40;
  TYPED(Bits) is_number = (TYPED(Bits))(v == v);
  *(HalfUnaligned *)p = __builtin_convertvector((rounded & is_number) | (quiet & ~is_number), HalfVector);
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
