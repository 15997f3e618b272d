// Reduction of blocks of elements over ranks: one loop per element type and operation, so that each can be vectorised.
#include "comm/reduce.h"
#include "base/dtype.h"

// fp16 ↔ fp32 without branches or calls (base/dtype.h has the readable ones; a test compares all values).
static inline float half_to_float(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
  float f;
  memcpy(&f, &magnitude, 4);
  f *= 0x1p112f; // the exponents' biases differ by 112; subnormals come out right too
  uint32_t bits;
  memcpy(&bits, &f, 4);
  bits |= sign | (magnitude >= 0x0f800000 ? 0x7f800000u : 0); // infinity and NaN keep the largest exponent
  memcpy(&f, &bits, 4);
  return f;
}
// All ones where a < b, both below 2^31: a mask, because compilers keep a branch around floating-point work.
static inline uint32_t below(uint32_t a, uint32_t b) { return (uint32_t)((int32_t)(a - b) >> 31); }
static inline uint16_t half_from_float(float f) {
  uint32_t bits, sign, subnormal;
  memcpy(&bits, &f, 4);
  sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  float magnitude;
  memcpy(&magnitude, &bits, 4);
  magnitude += 0.5f; // below 2^-14: the addition itself rounds to a multiple of 2^-24
  memcpy(&subnormal, &magnitude, 4);
  subnormal -= 0x3f000000;
  uint32_t normal = (bits + 0xfff + (bits >> 13 & 1) - 0x38000000u) >> 13;
  uint32_t small = below(bits, 0x38800000), finite = below(bits, 0x477ff000), nan = below(0x7f800000, bits);
  uint32_t value = (subnormal & small) | (normal & ~small);
  return (uint16_t)(sign | (value & finite) | ((0x7c00 | (nan & 0x0200)) & ~finite));
}

#define SAME(x) (x)
#define SUM_FLOAT(type, a, x) ((a) + (x))
#define SUM_INTEGER(type, a, x) ((type)((uint64_t)(a) + (uint64_t)(x))) // wraps around
#define MAX_FLOAT(type, a, x) ((x) > (a) || (x) != (x) ? (x) : (a))     // a NaN stays
#define MIN_FLOAT(type, a, x) ((x) < (a) || (x) != (x) ? (x) : (a))
#define MAX_INTEGER(type, a, x) ((x) > (a) ? (x) : (a))
#define MIN_INTEGER(type, a, x) ((x) < (a) ? (x) : (a))

typedef struct Loops {
  void (*pair)(void *restrict acc, const void *restrict a, const void *restrict b, size_t n); // acc = a op b
  void (*next)(void *restrict acc, const void *restrict x, size_t n);                         // acc = acc op x
} Loops;

#define LOOPS(name, type, wide, load, combine)                                                                         \
  static void name##_pair(void *restrict acc_, const void *restrict a_, const void *restrict b_, size_t n) {           \
    wide *restrict acc = acc_;                                                                                         \
    const type *restrict a = a_, *restrict b = b_;                                                                     \
    for (size_t i = 0; i < n; i++) {                                                                                   \
      wide x = load(a[i]), y = load(b[i]);                                                                             \
      acc[i] = combine(wide, x, y);                                                                                    \
    }                                                                                                                  \
  }                                                                                                                    \
  static void name##_next(void *restrict acc_, const void *restrict x_, size_t n) {                                    \
    wide *restrict acc = acc_;                                                                                         \
    const type *restrict in = x_;                                                                                      \
    for (size_t i = 0; i < n; i++) {                                                                                   \
      wide x = acc[i], y = load(in[i]);                                                                                \
      acc[i] = combine(wide, x, y);                                                                                    \
    }                                                                                                                  \
  }
#define FLOAT_LOOPS(name, type, wide, load)                                                                            \
  LOOPS(name##_sum, type, wide, load, SUM_FLOAT)                                                                       \
  LOOPS(name##_max, type, wide, load, MAX_FLOAT)                                                                       \
  LOOPS(name##_min, type, wide, load, MIN_FLOAT)
#define INTEGER_LOOPS(name, type)                                                                                      \
  LOOPS(name##_sum, type, type, SAME, SUM_INTEGER)                                                                     \
  LOOPS(name##_max, type, type, SAME, MAX_INTEGER)                                                                     \
  LOOPS(name##_min, type, type, SAME, MIN_INTEGER)

FLOAT_LOOPS(fp64, double, double, SAME)
FLOAT_LOOPS(fp32, float, float, SAME)
FLOAT_LOOPS(bf16, uint16_t, float, bf16_to_float)
FLOAT_LOOPS(fp16, uint16_t, float, half_to_float)
INTEGER_LOOPS(int64, int64_t)
INTEGER_LOOPS(int32, int32_t)
INTEGER_LOOPS(uint16, uint16_t)
INTEGER_LOOPS(uint8, uint8_t)

#define ROW(name)                                                                                                      \
  {{name##_sum_pair, name##_sum_next}, {name##_max_pair, name##_max_next},                                             \
   {name##_min_pair, name##_min_next}, {name##_sum_pair, name##_sum_next}} // a mean starts as a sum
static const Loops loops[PLAIT_DTYPE_COUNT][PLAIT_OP_COUNT] = {
    ROW(fp64), ROW(fp32), ROW(bf16), ROW(fp16), ROW(int64), ROW(int32), ROW(uint16), ROW(uint8),
};

static void widen(void *restrict acc, const void *restrict in, PlaitDtype dtype, size_t n) {
  float *f = acc;
  const uint16_t *h = in;
  if (dtype == PLAIT_BF16)
    for (size_t i = 0; i < n; i++) f[i] = bf16_to_float(h[i]);
  else if (dtype == PLAIT_FP16)
    for (size_t i = 0; i < n; i++) f[i] = half_to_float(h[i]);
  else
    memcpy(acc, in, n * dtype_size((Dtype)dtype));
}

static const void *narrow(ReduceScratch *scratch, PlaitDtype dtype, size_t n) {
  const float *restrict f = (const float *)(const void *)scratch->wide;
  uint16_t *restrict h = (uint16_t *)(void *)scratch->narrow;
  if (dtype == PLAIT_BF16)
    for (size_t i = 0; i < n; i++) h[i] = bf16_from_float(f[i]);
  else if (dtype == PLAIT_FP16)
    for (size_t i = 0; i < n; i++) h[i] = half_from_float(f[i]);
  else
    return scratch->wide;
  return h;
}

void reduce_first(ReduceScratch *scratch, PlaitDtype dtype, PlaitOp op, const void *a, const void *b, size_t count) {
  if (b)
    loops[dtype][op].pair(scratch->wide, a, b, count);
  else
    widen(scratch->wide, a, dtype, count);
}

void reduce_next(ReduceScratch *scratch, PlaitDtype dtype, PlaitOp op, const void *x, size_t count) {
  loops[dtype][op].next(scratch->wide, x, count);
}

const void *reduce_result(ReduceScratch *scratch, PlaitDtype dtype, PlaitOp op, int ranks, size_t count) {
  if (op == PLAIT_MEAN && dtype == PLAIT_FP64) {
    double *d = (double *)(void *)scratch->wide;
    for (size_t i = 0; i < count; i++) d[i] /= ranks;
  } else if (op == PLAIT_MEAN) {
    float *f = (float *)(void *)scratch->wide, divisor = (float)ranks;
    for (size_t i = 0; i < count; i++) f[i] /= divisor;
  }
  return narrow(scratch, dtype, count);
}
