// The head of every file of one SIMD level: includes, the instructions that functions after it may use, small macros.
// LEVEL_BYTES: vector size; LEVEL: suffix; LEVEL_BF16 (bf16 kernels only): 0 no bf16 instructions, 1 AVX512_BF16, 2 and
// AMX.
#include "device/cpu/cpu.h"
#include "op/cache.h"
#include "op/formula.h"
#include "op/orthogonalize.h"
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// Functions from here on are compiled for the level; which of them run is decided at run time.
#define AVX512 "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"
#if LEVEL_BF16 == 2 && defined(__clang__)
#pragma clang attribute push(__attribute__((target(AVX512 ",avx512bf16,amx-tile,amx-bf16"))), apply_to = function)
#elif LEVEL_BF16 == 2
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,avx512bf16,amx-tile,amx-bf16,prefer-vector-width=512")
#elif LEVEL_BF16 == 1 && defined(__clang__)
#pragma clang attribute push(__attribute__((target(AVX512 ",avx512bf16"))), apply_to = function)
#elif LEVEL_BF16 == 1
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,avx512bf16,prefer-vector-width=512")
#elif LEVEL_BYTES == 64 && defined(__clang__)
#pragma clang attribute push(__attribute__((target(AVX512))), apply_to = function)
#elif LEVEL_BYTES == 64
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#elif LEVEL_BYTES == 32 && defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#elif LEVEL_BYTES == 32
#pragma GCC target("avx2,fma")
#endif

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_TWICE _Pragma("clang loop unroll_count(2)")
#define IVDEP _Pragma("clang loop vectorize(assume_safety)") // iterations touch only their own elements
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_TWICE _Pragma("GCC unroll 2")
#define IVDEP _Pragma("GCC ivdep")
#endif
#define INLINE static inline __attribute__((always_inline))
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

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
