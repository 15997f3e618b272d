// The functions of one SIMD level; included once by each of reduce_avx2.c and reduce_avx512.c.
#include "base/half.h"
#include "comm/reduce_level.h"

// A step stays in the first cache. The next elements are asked for while it is summed: hardware prefetchers stop at the
// end of every page, and know nothing of the writes.
enum { STEP = 256, SHORT_STEP = 64, AHEAD = 2048 }; // elements, bytes

#ifdef __clang__
#define IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define IVDEP _Pragma("GCC ivdep")
#endif

#define SAME(x) (x)
#define LOOP(condition, body) IVDEP for (size_t k = 0; k < condition; k++) { body; }

// Two ranks need no accumulator in memory. x may be a, y may be b: an iteration touches its own element only.
#define PAIR(name, type, wide, load, store, finish)                                                                    \
  static void name(const type *a, const type *b, type *x, type *y, size_t n, wide divisor) {                           \
    size_t i = 0;                                                                                                      \
    for (; i + SHORT_STEP <= n; i += SHORT_STEP, a += SHORT_STEP, b += SHORT_STEP, x += SHORT_STEP, y += SHORT_STEP) { \
      for (size_t at = 0; at < SHORT_STEP * sizeof *a; at += 64) {                                                     \
        __builtin_prefetch((const char *)a + AHEAD + at, 1);                                                           \
        __builtin_prefetch((const char *)b + AHEAD + at, 1);                                                           \
      }                                                                                                                \
      LOOP(SHORT_STEP, wide s = load(a[k]) + load(b[k]); x[k] = y[k] = store(finish))                                  \
    }                                                                                                                  \
    LOOP(n - i, wide s = load(a[k]) + load(b[k]); x[k] = y[k] = store(finish))                                         \
  }

#define SUMS(name, type, wide, load, store)                                                                            \
  PAIR(name##_pair, type, wide, load, store, s)                                                                        \
  PAIR(name##_pair_mean, type, wide, load, store, s / divisor)                                                         \
  static void name##_many(const void *const *in, int ranks, void *const *out, int noutputs, size_t count, int mean) {  \
    wide s[STEP], divisor = (wide)ranks;                                                                               \
    for (size_t i = 0, n; i < count; i += n) {                                                                         \
      n = count - i < STEP ? count - i : STEP;                                                                         \
      const type *first = (const type *)in[0] + i;                                                                     \
      LOOP(n, s[k] = load(first[k]))                                                                                   \
      for (int p = 1; p < ranks; p++) {                                                                                \
        const type *next = (const type *)in[p] + i;                                                                    \
        LOOP(n, s[k] += load(next[k]))                                                                                 \
      }                                                                                                                \
      if (mean) LOOP(n, s[k] /= divisor)                                                                               \
      for (int p = 0; p < noutputs; p++) {                                                                             \
        type *to = (type *)out[p] + i;                                                                                 \
        LOOP(n, to[k] = store(s[k]))                                                                                   \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  static void name(const void *const *in, int ranks, void *const *out, int noutputs, size_t count, int mean) {         \
    if (ranks != 2 || noutputs < 1) name##_many(in, ranks, out, noutputs, count, mean);                                \
    else if (mean) name##_pair_mean(in[0], in[1], out[0], out[noutputs - 1], count, 2);                                \
    else name##_pair(in[0], in[1], out[0], out[noutputs - 1], count, 2);                                               \
  }

SUMS(fp64, double, double, SAME, SAME)
SUMS(fp32, float, float, SAME, SAME)
SUMS(bf16, uint16_t, float, bf16_to_float, bf16_from_float)
SUMS(fp16, uint16_t, float, half_to_float, half_from_float)

const ReduceSums SUMS_OF_LEVEL = {
    .sum = {[PLAIT_FP64] = fp64, [PLAIT_FP32] = fp32, [PLAIT_BF16] = bf16, [PLAIT_FP16] = fp16}};
