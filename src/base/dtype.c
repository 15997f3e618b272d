// Names, sizes and conversions of element types.
#include "base/dtype.h"
#include <math.h>

static const struct { const char *name, *file; size_t bytes; int is_float; } table[] = {
#define DTYPE(id, name, file, bytes, is_float) {name, file, bytes, is_float},
#include "base/dtypes.def"
#undef DTYPE
};

const char *dtype_name(Dtype d) { return table[d].name; }
const char *dtype_file_name(Dtype d) { return table[d].file; }
size_t dtype_size(Dtype d) { return table[d].bytes; }
int dtype_is_float(Dtype d) { return table[d].is_float; }

int dtype_from_name(const char *name) {
  for (int d = 0; d < DTYPE_COUNT; d++)
    if (!strcmp(name, table[d].name)) return d;
  return -1;
}

int dtype_from_file_name(const char *name) {
  for (int d = 0; d < DTYPE_COUNT; d++)
    if (!strcmp(name, table[d].file)) return d;
  return -1;
}

float f16_to_float(uint16_t h) {
  int sign = h >> 15, exponent = h >> 10 & 31, fraction = h & 1023;
  float f = exponent == 31 ? (fraction ? NAN : INFINITY)
            : exponent     ? ldexpf((float)(fraction + 1024), exponent - 25)
                           : ldexpf((float)fraction, -24);
  return sign ? -f : f;
}

uint16_t f16_from_float(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
  float a = fabsf(f);
  if (isnan(f)) return sign | 0x7e00;
  if (a >= 65520.0f) return sign | 0x7c00;
  if (a < 6.103515625e-05f)
    return (uint16_t)(sign | (uint16_t)nearbyintf(ldexpf(a, 24))); // subnormal, or rounds up to 2^-14
  int exponent;
  float m = frexpf(a, &exponent);                        // a = m * 2^exponent, m in [0.5, 1)
  int fraction = (int)nearbyintf(ldexpf(m, 11)) - 1024; // 0 … 1024; 1024 carries into the exponent below
  return (uint16_t)(sign | (((exponent + 14) << 10) + fraction));
}

double dtype_load(const void *data, Dtype dtype, int64_t i) {
  switch (dtype) {
  case DTYPE_F64: return ((const double *)data)[i];
  case DTYPE_F32: return ((const float *)data)[i];
  case DTYPE_BF16: return bf16_to_float(((const uint16_t *)data)[i]);
  case DTYPE_F16: return f16_to_float(((const uint16_t *)data)[i]);
  case DTYPE_I64: return (double)((const int64_t *)data)[i];
  case DTYPE_I32: return ((const int32_t *)data)[i];
  case DTYPE_U16: return ((const uint16_t *)data)[i];
  case DTYPE_U8: return ((const uint8_t *)data)[i];
  case DTYPE_COUNT: break;
  }
  return 0;
}

void dtype_store(void *data, Dtype dtype, int64_t i, double value) {
  switch (dtype) {
  case DTYPE_F64: ((double *)data)[i] = value; break;
  case DTYPE_F32: ((float *)data)[i] = (float)value; break;
  case DTYPE_BF16: ((uint16_t *)data)[i] = bf16_from_float((float)value); break;
  case DTYPE_F16: ((uint16_t *)data)[i] = f16_from_float((float)value); break;
  case DTYPE_I64: ((int64_t *)data)[i] = (int64_t)value; break;
  case DTYPE_I32: ((int32_t *)data)[i] = (int32_t)value; break;
  case DTYPE_U16: ((uint16_t *)data)[i] = (uint16_t)value; break;
  case DTYPE_U8: ((uint8_t *)data)[i] = (uint8_t)value; break;
  case DTYPE_COUNT: break;
  }
}
