// Conversions between element types, of many elements at a time.
#include "base/convert.h"
#include "base/half.h"

#define CONVERT(name, to_type, from_type, ...)                                                                         \
  static void name(void *to, const void *from, int64_t n) {                                                            \
    to_type *restrict t = to;                                                                                          \
    const from_type *restrict f = from;                                                                                \
    for (int64_t i = 0; i < n; i++) t[i] = __VA_ARGS__;                                                                \
  }
CONVERT(f32_of_bf16, float, uint16_t, bf16_to_float(f[i]))
CONVERT(f32_of_f16, float, uint16_t, half_to_float(f[i]))
CONVERT(f32_of_f64, float, double, (float)f[i])
CONVERT(f64_of_f32, double, float, f[i])
CONVERT(f64_of_bf16, double, uint16_t, bf16_to_float(f[i]))
CONVERT(bf16_of_f32, uint16_t, float, bf16_from_float(f[i]))
CONVERT(bf16_of_f16, uint16_t, uint16_t, bf16_from_float(half_to_float(f[i])))
CONVERT(f16_of_f32, uint16_t, float, half_from_float(f[i]))
CONVERT(f16_of_bf16, uint16_t, uint16_t, half_from_float(bf16_to_float(f[i])))
#undef CONVERT

void dtype_convert(void *to, Dtype to_dtype, const void *from, Dtype from_dtype, int64_t n) {
  static void (*const by[DTYPE_COUNT][DTYPE_COUNT])(void *, const void *, int64_t) = {
      [DTYPE_F64] = {[DTYPE_F32] = f64_of_f32, [DTYPE_BF16] = f64_of_bf16},
      [DTYPE_F32] = {[DTYPE_BF16] = f32_of_bf16, [DTYPE_F16] = f32_of_f16, [DTYPE_F64] = f32_of_f64},
      [DTYPE_BF16] = {[DTYPE_F32] = bf16_of_f32, [DTYPE_F16] = bf16_of_f16},
      [DTYPE_F16] = {[DTYPE_F32] = f16_of_f32, [DTYPE_BF16] = f16_of_bf16}};
  if (to_dtype == from_dtype) memcpy(to, from, (size_t)n * dtype_size(to_dtype));
  else if (by[to_dtype][from_dtype]) by[to_dtype][from_dtype](to, from, n);
  else
    for (int64_t i = 0; i < n; i++) dtype_store(to, to_dtype, i, dtype_load(from, from_dtype, i));
}
