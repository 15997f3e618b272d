// Transposition of narrow blocks, for packing. Included once a level.

#if LEVEL_BYTES == 64
#define PS(operation) _mm512_##operation##_ps
typedef __m512 FourRows;
#elif LEVEL_BYTES == 32
#define PS(operation) _mm256_##operation##_ps
typedef __m256 FourRows;
#elif defined(__SSE__)
#define PS(operation) _mm_##operation##_ps
typedef __m128 FourRows;
#endif

#ifdef PS
INLINE __m128 four_of(const char *from) { return _mm_loadu_ps((const float *)(const void *)from); }
// A vector whose quarters (of 32 bytes: halves) are four elements each of rows that lie `row` bytes apart.
INLINE FourRows rows_to_quarters(const char *from, int64_t row) {
#if LEVEL_BYTES == 64
  __m512 x = _mm512_castps128_ps512(four_of(from));
  x = _mm512_insertf32x4(x, four_of(from + row), 1);
  x = _mm512_insertf32x4(x, four_of(from + 2 * row), 2);
  return _mm512_insertf32x4(x, four_of(from + 3 * row), 3);
#elif LEVEL_BYTES == 32
  return _mm256_insertf128_ps(_mm256_castps128_ps256(four_of(from)), four_of(from + row), 1);
#else
  return four_of(from);
#endif
}
#endif

// to (4, width of a vector) = fromᵀ, of numbers of 32 bits, whose rows lie from_row bytes apart. Every fourth row of
// `from` goes into one vector, so that what is left are transpositions of 4 × 4 within its quarters.
typedef float FourVector __attribute__((vector_size(LEVEL_BYTES)));
INLINE void transpose_four(FourVector to[4], const void *from, int64_t from_row) {
#ifdef PS
  FourRows r[4];
  UNROLL for (int i = 0; i < 4; i++) r[i] = rows_to_quarters((const char *)from + i * from_row, 4 * from_row);
  FourRows a = PS(unpacklo)(r[0], r[1]), b = PS(unpackhi)(r[0], r[1]), c = PS(unpacklo)(r[2], r[3]),
           d = PS(unpackhi)(r[2], r[3]);
  to[0] = (FourVector)PS(shuffle)(a, c, 0x44);
  to[1] = (FourVector)PS(shuffle)(a, c, 0xee);
  to[2] = (FourVector)PS(shuffle)(b, d, 0x44);
  to[3] = (FourVector)PS(shuffle)(b, d, 0xee);
#undef PS
#else
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < LEVEL_BYTES / 4; j++) {
      float x;
      memcpy(&x, (const char *)from + j * from_row + i * (int)sizeof x, sizeof x);
      to[i][j] = x;
    }
#endif
}
// The same into memory, rows to_row apart.
INLINE void transpose_rows_f32(float *to, int64_t to_row, const float *from, int64_t from_row) {
  FourVector t[4];
  transpose_four(t, from, from_row * (int64_t)sizeof *from);
  UNROLL for (int i = 0; i < 4; i++) memcpy(to + i * to_row, &t[i], sizeof t[i]);
}
INLINE void transpose_rows_f64(double *to, int64_t to_row, const double *from, int64_t from_row) {
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < LEVEL_BYTES / 8; j++) to[i * to_row + j] = from[j * from_row + i];
}
