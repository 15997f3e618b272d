// Reduction of blocks of elements over ranks: one loop per element type and operation, so that each can be vectorised.
#include "comm/reduce.h"
#include "base/half.h"
#include "comm/kind.h"
#include "comm/reduce_level.h"

enum { BLOCK = 2048 }; // elements: accumulator and inputs stay in the first cache

typedef struct Scratch {
  _Alignas(64) unsigned char wide[BLOCK * 8], narrow[BLOCK * 2];
} Scratch;

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

static const void *narrow(Scratch *scratch, PlaitDtype dtype, size_t n) {
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

static void first(Scratch *scratch, PlaitDtype dtype, PlaitOp op, const void *a, const void *b, size_t count) {
  if (b) loops[dtype][op].pair(scratch->wide, a, b, count);
  else widen(scratch->wide, a, dtype, count);
}

static const void *result(Scratch *scratch, PlaitDtype dtype, PlaitOp op, int ranks, size_t count) {
  if (op == PLAIT_MEAN && dtype == PLAIT_FP64) {
    double *d = (double *)(void *)scratch->wide;
    for (size_t i = 0; i < count; i++) d[i] /= ranks;
  } else if (op == PLAIT_MEAN) {
    float *f = (float *)(void *)scratch->wide, divisor = (float)ranks;
    for (size_t i = 0; i < count; i++) f[i] /= divisor;
  }
  return narrow(scratch, dtype, count);
}

// All dtypes and operations, with what every CPU has.
static void run_portable(PlaitDtype dtype, PlaitOp op, const void *const *inputs, int ranks, void *const *outputs,
                         int noutputs, size_t count) {
  Scratch scratch;
  size_t size = dtype_size((Dtype)dtype);
  for (size_t i = 0, n; i < count; i += n) {
    n = count - i < BLOCK ? count - i : BLOCK;
#define INPUT(p) ((const char *)inputs[p] + i * size)
    first(&scratch, dtype, op, INPUT(0), ranks > 1 ? INPUT(1) : NULL, n);
    for (int p = 2; p < ranks; p++) loops[dtype][op].next(scratch.wide, INPUT(p), n);
#undef INPUT
    const void *block = result(&scratch, dtype, op, ranks, n);
    for (int p = 0; p < noutputs; p++) memcpy((char *)outputs[p] + i * size, block, n * size);
  }
}

static ReduceSum sum_of(PlaitDtype dtype) {
  const ReduceSums *sums = NULL;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    sums = &reduce_sums_avx512;
  else if (__builtin_cpu_supports("avx2")) sums = &reduce_sums_avx2;
#endif
  return sums ? sums->sum[dtype] : NULL;
}

void reduce_run(PlaitDtype dtype, PlaitOp op, const void *const *inputs, int ranks, void *const *outputs, int noutputs,
                size_t count) {
  ReduceSum sum = op == PLAIT_SUM || op == PLAIT_MEAN ? sum_of(dtype) : NULL;
  if (sum) sum(inputs, ranks, outputs, noutputs, count, op == PLAIT_MEAN);
  else run_portable(dtype, op, inputs, ranks, outputs, noutputs, count);
}

void reduce_part(PlaitDtype dtype, PlaitOp op, const void *const *inputs, int n, int continues, int ranks, void *output,
                 size_t count) {
  Scratch scratch;
  size_t size = dtype_size((Dtype)dtype), wide = comm_wide_size(dtype);
  ReduceSum sum = wide == size && (op == PLAIT_SUM || (op == PLAIT_MEAN && !ranks)) ? sum_of(dtype) : NULL;
  if (sum) {
    sum(inputs, n, &output, 1, count, 0);
    return;
  }
  for (size_t i = 0, block; i < count; i += block) {
    block = count - i < BLOCK ? count - i : BLOCK;
    if (continues) memcpy(scratch.wide, (const char *)inputs[0] + i * wide, block * wide);
    else widen(scratch.wide, (const char *)inputs[0] + i * size, dtype, block);
    for (int p = 1; p < n; p++) loops[dtype][op].next(scratch.wide, (const char *)inputs[p] + i * size, block);
    if (ranks) memcpy((char *)output + i * size, result(&scratch, dtype, op, ranks, block), block * size);
    else memcpy((char *)output + i * wide, scratch.wide, block * wide);
  }
}
