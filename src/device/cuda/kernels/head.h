// Rows of logits with sums of one dtype, a block a row: statistics, loss, and what logits become.
#define ELEMENT REAL
#define WIDEN(x) (x)
#include "device/cuda/kernels/pack.h"

// The maximum of a row's words, and their sum relative to it, in one pass: a sum is scaled where a larger word comes.
INLINE void NAME(head_sums)(const REAL *logit, int64_t words, REAL *statistics, REAL *scratch) {
  REAL most = MINUS_INFINITY, sum = 0;
  UNROLL_BY(2)
  EACH_PACK_OF_ROW(at, words) {
    NAME(Pack) p;
    REAL largest = most;
    NAME(take)(&p, logit, at, words);
    for (int i = 0; i < NAME(PACK); i++) {
      if (at + i >= words) p.e[i] = MINUS_INFINITY;
      largest = p.e[i] > largest ? p.e[i] : largest;
    }
    if (largest > most) sum *= REAL_EXP(most - largest);
    most = largest;
    for (int i = 0; i < NAME(PACK); i++) sum += p.e[i] == MINUS_INFINITY ? (REAL)0 : REAL_EXP(p.e[i] - most);
  }
  statistics[0] = BLOCK_MAX(most, scratch);
  if (most < statistics[0]) sum *= FAULT(kernel_sums_of_other_maxima, REAL_EXP(most - statistics[0]), 1);
  statistics[1] = BLOCK_SUM(sum, scratch);
}

KERNEL(NAME(head), HeadArguments) {
  SHARED(REAL, scratch, WARP);
  const int64_t row = a.first + BLOCK, target = array_integer(a.targets, row), words = a.map.valid;
  const int64_t local = target < 0 ? -1 : map_local(&a.map, target);
  REAL *logit = (REAL *)a.logits + BLOCK * a.columns;
  REAL statistics[3] = {MINUS_INFINITY, 0, local < 0 ? (REAL)0 : logit[local]};
  if (a.given[0].data) {
    for (int k = 0; k < 3; k++) statistics[k] = a.given[k].data ? ARRAY(a.given[k], row) : (REAL)0;
    BARRIER();
  } else NAME(head_sums)(logit, words, statistics, scratch);
  if (THREAD == 0) {
    for (int k = 0; k < 3; k++)
      if (a.stored[k].data) PUT(a.stored[k], BLOCK, target < 0 ? (REAL)0 : statistics[k]);
    const REAL loss = target < 0 ? (REAL)0 : statistics[0] + REAL_LOG(statistics[1]) - statistics[2];
    if (a.losses) a.losses[BLOCK] = loss;
  }
  if (a.mode == HEAD_LOSS) return;
  const REAL seed = a.seed.data ? (REAL)array_double(a.seed, 0) : (REAL)1, inverse = 1 / statistics[1];
  UNROLL_BY(2)
  EACH_PACK_OF_ROW(at, a.columns) {
    NAME(Pack) p;
    NAME(take)(&p, logit, at, a.columns);
    for (int i = 0; i < NAME(PACK); i++) {
      const int64_t v = at + i;
      if (target < 0 || v >= FAULT(kernel_padding_is_a_word, words, a.columns)) p.e[i] = 0;
      else if (a.mode != HEAD_LOGITS) p.e[i] = (REAL_EXP(p.e[i] - statistics[0]) * inverse - (v == local)) * seed;
    }
    if (a.keeps) NAME(give)(logit, &p, at, a.columns);
    if (a.dlogits.data) NAME(give_array)(a.dlogits, BLOCK * a.width + at, (BLOCK + 1) * a.width, p.e);
  }
}
#undef ELEMENT
#undef WIDEN
#undef PACKED
#undef EACH_PACK_OF_ROW

// local maximum, maximum, local sum → local sum relative to the common maximum
KERNEL(NAME(rescale), ScalarArguments) {
  for (int64_t i = BLOCK * THREADS + THREAD; i < a.n; i += BLOCKS * THREADS)
    PUT(a.y[0], i, ARRAY(a.x[2], i) * REAL_EXP(ARRAY(a.x[0], i) - ARRAY(a.x[1], i)));
}
