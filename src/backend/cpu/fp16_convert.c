// fp16 ↔ fp32 for arrays: by F16C where the processor has it, else by integer arithmetic.
#include "backend/cpu/fp16.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

// The exponents' biases differ by 112, so that one product brings normal and subnormal numbers to their place.
static float widen_one(uint16_t h) {
  union { uint32_t bits; float f; } x = {.bits = (uint32_t)(h & 0x7fff) << 13};
  x.f *= 0x1p112f;
  if ((h & 0x7c00) == 0x7c00) x.bits |= 0x7f800000;
  x.bits |= (uint32_t)(h & 0x8000) << 16;
  return x.f;
}

static uint16_t narrow_one(float f) {
  union { float f; uint32_t bits; } x = {.f = f};
  uint16_t sign = (uint16_t)(x.bits >> 16 & 0x8000);
  x.bits &= 0x7fffffff;
  if (x.bits > 0x7f800000) return sign | 0x7e00;
  if (x.bits >= 0x477ff000) return sign | 0x7c00;
  if (x.bits < 0x38800000) { // subnormal: an addition that leaves 24 bits behind the point rounds it
    x.f += 0.5f;
    return (uint16_t)(sign | (x.bits - 0x3f000000));
  }
  return (uint16_t)(sign | ((x.bits + 0xfff + (x.bits >> 13 & 1) - 0x38000000) >> 13));
}

static void widen_portable(float *to, const uint16_t *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = widen_one(from[i]);
}
static void narrow_portable(uint16_t *to, const float *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = narrow_one(from[i]);
}
const HalfConversion fp16_portable = {widen_portable, narrow_portable};

#if defined(__x86_64__)
__attribute__((target("avx2,f16c"))) static void widen_f16c(float *to, const uint16_t *from, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
  for (; i < n; i++) to[i] = widen_one(from[i]);
}
__attribute__((target("avx2,f16c"))) static void narrow_f16c(uint16_t *to, const float *from, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128((__m128i *)(void *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  for (; i < n; i++) to[i] = narrow_one(from[i]);
}
const HalfConversion fp16_f16c = {widen_f16c, narrow_f16c};

int fp16_has_instructions(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
#else
const HalfConversion fp16_f16c = {widen_portable, narrow_portable};
int fp16_has_instructions(void) { return 0; }
#endif
