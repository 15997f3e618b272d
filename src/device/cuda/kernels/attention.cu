// Attention and its gradient: correct, and not fast.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(attention)

// Whether the query at row s sees key t of sample b.
INLINE int sees(const AttentionArguments *a, int64_t b, int64_t s, int64_t t) {
  if (a->documents[b * a->s + s] != a->key_documents[b * a->t + t]) return 0;
  return !a->causal || map_global(&a->keys, t) <= FAULT(kernel_mask_is_one_off, 0, 1) + map_global(&a->queries, s);
}

// By which a probability is multiplied: 0 or 1 / (1 - p) with dropout.
INLINE double mask_of(const AttentionArguments *a, int64_t b, int64_t g, int64_t r, int64_t s, int64_t t) {
  if (a->mask.probability == 0) return 1;
  const int64_t position = map_global(&a->keys, t);
  const uint32_t head = (uint32_t)(map_global(&a->groups, g) * a->all_heads + map_global(&a->heads, r));
  const Four drawn = philox_at(a->mask.key, mask_sample(&a->mask, b), head, (uint32_t)map_global(&a->queries, s),
                               (uint32_t)(position / 4));
  const int lane = (int)(position % 4);
  const uint32_t mine = lane == 0 ? drawn.r[0] : lane == 1 ? drawn.r[1] : lane == 2 ? drawn.r[2] : drawn.r[3];
  return is_kept(&a->mask, mine) ? a->mask.factor : 0;
}

#define OF_REALS "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/each_real.h"

KERNEL(document_starts_f64, StartsArguments) {
  SHARED(int32_t, last, BLOCK_THREADS);
  const int64_t each = (a.t + THREADS - 1) / THREADS, from = THREAD * each, end = from + each < a.t ? from + each : a.t;
  const int32_t *const documents = a.documents + BLOCK * a.t;
  int32_t start = 0; // of the run that a thread's part ends with, where it begins in it
  for (int64_t t = from; t < end; t++)
    if (t && documents[t] != documents[t - 1]) start = (int32_t)t;
  last[THREAD] = start;
  BARRIER();
  start = 0;
  for (int i = 0; i < THREAD; i++) start = last[i] > start ? last[i] : start;
  for (int64_t t = from; t < end; t++) {
    if (t && documents[t] != documents[t - 1]) start = (int32_t)t;
    a.starts[BLOCK * a.t + t] = FAULT(kernel_document_begins_late, start, start + 1);
  }
}

KERNEL(draw_heads_f64, AttentionTrialArguments) {
  const int64_t n = a.rows * a.heads * a.width;
  for (int64_t i = BLOCK * THREADS + THREAD; i < n; i += BLOCKS * THREADS) {
    uint64_t bits = (a.seed + (uint64_t)i) * 0x9E3779B97F4A7C15u; // splitmix64
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    const double drawn = (double)(int64_t)(bits >> 11 | 1) / 4503599627370496.0 - 1;
    const double factor = i / a.width % a.heads % 4 ? a.factor : a.factor * a.outliers;
    array_put_double(a.x, i, factor * (a.sign == 0 ? drawn : a.sign * fabs(drawn)));
  }
}

KERNEL(compare_rows_f64, AttentionTrialArguments) {
  SHARED(double, scratch, WARP);
  double off = 0, all = 0, worst = 0;
  for (int64_t row = BLOCK * THREADS + THREAD; row < a.rows; row += BLOCKS * THREADS) {
    double far = 0, most = 0;
    for (int64_t i = row * a.width; i < (row + 1) * a.width; i++) {
      const double y = array_double(a.expected, i), d = fabs(array_double(a.x, i) - y);
      off += d * d, all += y * y;
      far = d <= far ? far : d < (double)INFINITY ? d : (double)INFINITY; // d may be a NaN
      most = fabs(y) > most ? fabs(y) : most;
    }
    most = a.bound * (most > a.least ? most : a.least);
    const double share = far <= 0 ? 0 : far / most;
    worst = share > worst ? share : worst;
  }
  off = block_sum_f64(off, scratch);
  all = block_sum_f64(all, scratch);
  worst = block_max_f64(worst, scratch);
  if (THREAD) return;
  a.found[3 * BLOCK] = off, a.found[3 * BLOCK + 1] = all, a.found[3 * BLOCK + 2] = worst;
}
