// The highest rate of products of a core: instructions that take all operands from registers, in a loop.
#pragma once
#include "base/clock.h"
#include "device/cpu/cpu.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef double PeakLoop(int64_t times); // FLOPs done

#if defined(__x86_64__)
// The compiler must believe that x changes: it would compute the loop once otherwise.
#define CHANGES(x) __asm__ volatile("" : "+v"(x))
#define FMA_LOOP(name, target_text, vector, set, fma, width)                                                           \
  __attribute__((target(target_text))) static double name(int64_t times) {                                             \
    enum { CHAINS = 10 };                                                                                              \
    vector t[CHAINS], x = set(1.0f), y = set(1e-9f);                                                                   \
    _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS; i++) t[i] = y;                                                \
    for (int64_t n = 0; n < times; n++) _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS; i++) {                    \
        t[i] = fma(x, y, t[i]);                                                                                        \
        CHANGES(t[i]);                                                                                                 \
      }                                                                                                                \
    return 2.0 * width * CHAINS * (double)times;                                                                       \
  }
FMA_LOOP(peak_avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, 16)
FMA_LOOP(peak_avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, 8)

#if !defined(__clang__)
// Four tiles of sums, two of each factor: 16 × 16 sums of 32 products each an instruction.
__attribute__((target("amx-tile,amx-bf16"))) static double peak_amx(int64_t times) {
  struct { uint8_t palette, start, reserved[14]; uint16_t columns[16]; uint8_t rows[16]; } shape
      __attribute__((aligned(64))) = {.palette = 1};
  for (int i = 0; i < 8; i++) shape.columns[i] = 64, shape.rows[i] = 16;
  __asm__ volatile("" : : "r"(&shape) : "memory"); // gcc takes the instruction to read 8 bytes
  _tile_loadconfig(&shape);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t n = 0; n < times; n++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 4.0 * 2 * 16 * 16 * 32 * (double)times;
}
#endif
#endif

// The peak of one core with the instructions of a level, in GF/s; 0: unknown for this level.
static double core_peak(CpuLevel level, Dtype dtype) {
  PeakLoop *loop = NULL;
#if defined(__x86_64__)
  if (level >= CPU_AVX512) loop = peak_avx512;
  else if (level == CPU_AVX2) loop = peak_avx2;
#if !defined(__clang__)
  if (dtype == DTYPE_BF16 && level == CPU_AMX) loop = peak_amx;
#endif
  if (dtype == DTYPE_BF16 && level == CPU_AVX512_BF16) loop = NULL;
#endif
  if (!loop || (dtype != DTYPE_F32 && dtype != DTYPE_BF16)) return 0;
  double best = 0;
  for (int i = 0; i < 60; i++) {
    double before = clock_seconds(), flops = loop(200000), speed = 1e-9 * flops / (clock_seconds() - before);
    if (speed > best) best = speed;
  }
  return best;
}
