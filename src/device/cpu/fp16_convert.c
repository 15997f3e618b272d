// fp16 ↔ fp32 for arrays: by F16C where the processor has it, else by integer arithmetic.
#include "device/cpu/fp16.h"
#include "base/half.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

static void widen_portable(float *to, const uint16_t *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = half_to_float(from[i]);
}
static void narrow_portable(uint16_t *to, const float *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = half_from_float(from[i]);
}
const HalfConversion fp16_portable = {widen_portable, narrow_portable};

#if defined(__x86_64__)
__attribute__((target("avx2,f16c"))) static void widen_f16c(float *to, const uint16_t *from, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
  for (; i < n; i++) to[i] = half_to_float(from[i]);
}
__attribute__((target("avx2,f16c"))) static void narrow_f16c(uint16_t *to, const float *from, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128((__m128i *)(void *)(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  for (; i < n; i++) to[i] = half_from_float(from[i]);
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
