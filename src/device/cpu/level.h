// All kernels of one SIMD level; a level_*.c defines LEVEL_BYTES (vector size) and LEVEL (suffix) and includes this.
#include "device/cpu/target.h"
#include "base/fault.h"

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

#include "device/cpu/random.h"
#include "device/cpu/state_loops.h"

#define WIDTH_F64 (LEVEL_BYTES / 8)
#define TYPED(name) JOIN(name, _f64)
#define REAL double
#define INTEGER int64_t
#define UNSIGNED uint64_t
#define BITS 64
#define DTYPE_ELEMENT DTYPE_F64
#include "device/cpu/kernels.h"
#undef TYPED
#undef REAL
#undef INTEGER
#undef UNSIGNED
#undef BITS
#undef DTYPE_ELEMENT

#define TYPED(name) JOIN(name, _f32)
#define REAL float
#define INTEGER int32_t
#define UNSIGNED uint32_t
#define BITS 32
#define DTYPE_ELEMENT DTYPE_F32
#include "device/cpu/kernels.h"

#define no_workspace_f32 NULL
#define no_workspace_f64 NULL
// Kernels work in one dtype; calls that mix dtypes go to the reference.
#define ENTRY(op, kernel, workspace)                                                                                   \
  static void checked_##kernel##_f32(const KernelCall *call) {                                                         \
    (cpu_one_dtype(call, op, DTYPE_F32) ? kernel##_f32 : op_def(op)->reference)(call);                                 \
  }                                                                                                                    \
  static void checked_##kernel##_f64(const KernelCall *call) {                                                         \
    (cpu_one_dtype(call, op, DTYPE_F64) ? kernel##_f64 : op_def(op)->reference)(call);                                 \
  }
#include "device/cpu/entries.def"
#undef ENTRY

const KernelEntry JOIN(cpu_table_, LEVEL)[] = {
#define ENTRY(op, kernel, workspace)                                                                                   \
  {op, DTYPE_F32, checked_##kernel##_f32, workspace##_f32}, {op, DTYPE_F64, checked_##kernel##_f64, workspace##_f64},
#include "device/cpu/entries.def"
#undef ENTRY
    {OP_COUNT, DTYPE_COUNT, NULL, NULL},
};

#if LEVEL_BYTES > 16 && defined(__clang__)
#pragma clang attribute pop
#endif
