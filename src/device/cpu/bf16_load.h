// A vector of bf16 numbers, widened.
typedef uint16_t TYPED(HalfUnaligned) __attribute__((vector_size(LEVEL_BYTES / 2), may_alias, aligned(2)));
INLINE V TYPED(load)(const uint16_t *p) {
#if LEVEL_BYTES == 64
  return (V)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16);
#elif LEVEL_BYTES == 32
  return (V)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16);
#else
  return (V)(__builtin_convertvector(*(const TYPED(HalfUnaligned) *)p, MATH(Bits)) << 16);
#endif
}
