// All kernels of one SIMD level; a level_*.c defines LEVEL_BYTES (vector size) and LEVEL (suffix) and includes this.
#include "backend/cpu/cpu.h"
#include "op/formula.h"
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Functions from here on are compiled for the level; which of them run is decided at run time.
#if LEVEL_BYTES == 64 && defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))), apply_to = function)
#elif LEVEL_BYTES == 64
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#elif LEVEL_BYTES == 32 && defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#elif LEVEL_BYTES == 32
#pragma GCC target("avx2,fma")
#endif

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define IVDEP _Pragma("clang loop vectorize(assume_safety)") // iterations touch only their own elements
#else
#define UNROLL _Pragma("GCC unroll 16")
#define IVDEP _Pragma("GCC ivdep")
#endif
#define INLINE static inline __attribute__((always_inline))
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

typedef float Float4 __attribute__((vector_size(16), aligned(4), may_alias));
// to (4 × 4, row stride to_row) = from (4 × 4)ᵀ
INLINE void transpose4_f32(float *to, int64_t to_row, const float *from, int64_t from_row) {
#if defined(__SSE__)
  __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_row), c = _mm_loadu_ps(from + 2 * from_row),
         d = _mm_loadu_ps(from + 3 * from_row);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(to, a);
  _mm_storeu_ps(to + to_row, b);
  _mm_storeu_ps(to + 2 * to_row, c);
  _mm_storeu_ps(to + 3 * to_row, d);
#else
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) to[i * to_row + j] = from[j * from_row + i];
#endif
}
INLINE void transpose4_f64(double *to, int64_t to_row, const double *from, int64_t from_row) {
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) to[i * to_row + j] = from[j * from_row + i];
}

// 1 / k!
static const double inverse_factorial[] = {1.0,
                                           1.0,
                                           1.0 / 2,
                                           1.0 / 6,
                                           1.0 / 24,
                                           1.0 / 120,
                                           1.0 / 720,
                                           1.0 / 5040,
                                           1.0 / 40320,
                                           1.0 / 362880,
                                           1.0 / 3628800,
                                           1.0 / 39916800,
                                           1.0 / 479001600,
                                           1.0 / 6227020800,
                                           1.0 / 87178291200,
                                           1.0 / 1307674368000,
                                           1.0 / 20922789888000,
                                           1.0 / 355687428096000};

#include "backend/cpu/random.h"

#define WIDTH_F64 (LEVEL_BYTES / 8)
#define TYPED(name) JOIN(name, _f64)
#define REAL double
#define INTEGER int64_t
#define UNSIGNED uint64_t
#define BITS 64
#define DTYPE_REAL DTYPE_F64
#include "backend/cpu/kernels.h"
#undef TYPED
#undef REAL
#undef INTEGER
#undef UNSIGNED
#undef BITS
#undef DTYPE_REAL

#define TYPED(name) JOIN(name, _f32)
#define REAL float
#define INTEGER int32_t
#define UNSIGNED uint32_t
#define BITS 32
#define DTYPE_REAL DTYPE_F32
#include "backend/cpu/kernels.h"

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
#include "backend/cpu/entries.def"
#undef ENTRY

const KernelEntry JOIN(cpu_table_, LEVEL)[] = {
#define ENTRY(op, kernel, workspace)                                                                                   \
  {op, DTYPE_F32, checked_##kernel##_f32, workspace##_f32}, {op, DTYPE_F64, checked_##kernel##_f64, workspace##_f64},
#include "backend/cpu/entries.def"
#undef ENTRY
    {OP_COUNT, DTYPE_COUNT, NULL, NULL},
};

#if LEVEL_BYTES > 16 && defined(__clang__)
#pragma clang attribute pop
#endif
