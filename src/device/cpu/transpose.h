// Transposition of narrow blocks, for packing. Included once a level.

// to (4 × width of a vector, rows to_row apart) = fromᵀ, of which rows lie from_row apart. Four rows of `from` meet in
// each quarter of a vector of 64 bytes, in each half of one of 32, so that what is left are transpositions of 4 × 4.
INLINE void transpose_rows_f32(float *to, int64_t to_row, const float *from, int64_t from_row) {
#if LEVEL_BYTES == 64
  __m512 r[4];
  UNROLL for (int i = 0; i < 4; i++) {
    r[i] = _mm512_castps128_ps512(_mm_loadu_ps(from + i * from_row));
    r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(from + (i + 4) * from_row), 1);
    r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(from + (i + 8) * from_row), 2);
    r[i] = _mm512_insertf32x4(r[i], _mm_loadu_ps(from + (i + 12) * from_row), 3);
  }
  __m512 a = _mm512_unpacklo_ps(r[0], r[1]), b = _mm512_unpackhi_ps(r[0], r[1]), c = _mm512_unpacklo_ps(r[2], r[3]),
         d = _mm512_unpackhi_ps(r[2], r[3]);
  _mm512_storeu_ps(to, _mm512_shuffle_ps(a, c, 0x44));
  _mm512_storeu_ps(to + to_row, _mm512_shuffle_ps(a, c, 0xee));
  _mm512_storeu_ps(to + 2 * to_row, _mm512_shuffle_ps(b, d, 0x44));
  _mm512_storeu_ps(to + 3 * to_row, _mm512_shuffle_ps(b, d, 0xee));
#elif LEVEL_BYTES == 32
  __m256 r[4];
  UNROLL for (int i = 0; i < 4; i++)
    r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + i * from_row)),
                                _mm_loadu_ps(from + (i + 4) * from_row), 1);
  __m256 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]), c = _mm256_unpacklo_ps(r[2], r[3]),
         d = _mm256_unpackhi_ps(r[2], r[3]);
  _mm256_storeu_ps(to, _mm256_shuffle_ps(a, c, 0x44));
  _mm256_storeu_ps(to + to_row, _mm256_shuffle_ps(a, c, 0xee));
  _mm256_storeu_ps(to + 2 * to_row, _mm256_shuffle_ps(b, d, 0x44));
  _mm256_storeu_ps(to + 3 * to_row, _mm256_shuffle_ps(b, d, 0xee));
#elif defined(__SSE__)
  __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_row), c = _mm_loadu_ps(from + 2 * from_row),
         d = _mm_loadu_ps(from + 3 * from_row);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(to, a);
  _mm_storeu_ps(to + to_row, b);
  _mm_storeu_ps(to + 2 * to_row, c);
  _mm_storeu_ps(to + 3 * to_row, d);
#else
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < LEVEL_BYTES / 4; j++) to[i * to_row + j] = from[j * from_row + i];
#endif
}
INLINE void transpose_rows_f64(double *to, int64_t to_row, const double *from, int64_t from_row) {
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < LEVEL_BYTES / 8; j++) to[i * to_row + j] = from[j * from_row + i];
}
