// Routers of experts, in double: what they choose is to be what the reference chooses. A thread a token.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(router)

// The softmax of a token's logits, whose row begins at `at`: the probability of one expert is exp(logit - most) / sum.
typedef struct Softmax { double most, sum; } Softmax;
INLINE Softmax softmax_of(const RouterArguments *a, int64_t at) {
  Softmax s = {MINUS_INFINITY, 0};
  for (int64_t i = 0; i < a->experts; i++) s.most = fmax(s.most, array_double(a->logits, at + i));
  for (int64_t i = 0; i < a->experts; i++) s.sum += exp(array_double(a->logits, at + i) - s.most);
  return s;
}
INLINE double probability(const RouterArguments *a, const Softmax *s, int64_t i) {
  return exp(array_double(a->logits, i) - s->most) / s->sum;
}
#define TOKEN (BLOCK * THREADS + THREAD)

// The `choices` experts of the largest probability + bias, of equal ones the lower.
KERNEL(route_f64, RouterArguments) {
  const int64_t at = TOKEN * a.experts;
  if (TOKEN >= a.tokens) return;
  const Softmax s = softmax_of(&a, at);
  double total = 0;
  for (int64_t i = 0; i < a.experts; i++) a.mask[at + i] = 0;
  for (int k = 0; k < a.choices; k++) {
    int64_t best = -1;
    double most = 0;
    for (int64_t i = 0; i < a.experts; i++) {
      if (FAULT(kernel_an_expert_is_chosen_twice, a.mask[at + i], 0)) continue;
      const double score = probability(&a, &s, at + i) + (a.bias.data ? array_double(a.bias, i) : 0);
      if (best < 0 || score > most) best = i, most = score;
    }
    a.mask[at + best] = 1;
    total += probability(&a, &s, at + best);
  }
  for (int64_t i = 0; i < a.experts; i++)
    array_put_double(a.weights, at + i, a.mask[at + i] ? probability(&a, &s, at + i) / (a.normalize ? total : 1) : 0);
}

KERNEL(route_grad_f64, RouterArguments) {
  const int64_t at = TOKEN * a.experts;
  if (TOKEN >= a.tokens) return;
  const Softmax s = softmax_of(&a, at);
  double sum = 0, dot = 0;
  for (int64_t i = 0; i < a.experts; i++)
    if (a.mask[at + i]) sum += probability(&a, &s, at + i);
  if (!a.normalize) sum = 1;
  for (int64_t i = 0; i < a.experts; i++)
    if (a.mask[at + i]) dot += probability(&a, &s, at + i) / sum * array_double(a.weights, at + i);
  for (int64_t i = 0; i < a.experts; i++) {
    const double p = a.normalize && !a.mask[at + i] ? 0 : probability(&a, &s, at + i) / sum;
    array_put_double(a.dlogits, at + i, p * ((a.mask[at + i] ? array_double(a.weights, at + i) : 0) - dot));
  }
}

// A block for each of the two masks and expert.
KERNEL(router_load_f64, RouterArguments) {
  SHARED(double, scratch, WARP);
  const uint8_t *mask = BLOCK >= a.experts && a.kept ? a.kept : a.mask;
  double count = 0;
  for (int64_t t = THREAD; t < a.tokens; t += THREADS) count += mask[t * a.experts + BLOCK % a.experts];
  count = block_sum_f64(count, scratch);
  if (THREAD == 0) array_put_double(a.out, BLOCK, count);
}

// Losses of a block's tokens, over the positions of a whole sequence, into partial.
KERNEL(router_z_f64, RouterArguments) {
  SHARED(double, scratch, WARP);
  const int64_t at = TOKEN * a.experts;
  double loss = 0;
  if (TOKEN < a.tokens) {
    const Softmax s = softmax_of(&a, at);
    const double logsumexp = s.most + log(s.sum), slope = array_double(a.seed, 0) * 2 * logsumexp / a.positions;
    loss = logsumexp * logsumexp / a.positions;
    for (int64_t i = 0; i < a.experts; i++)
      array_put_double(a.dlogits, at + i, slope * exp(array_double(a.logits, at + i) - logsumexp));
  }
  loss = block_sum_f64(loss, scratch);
  if (THREAD == 0) a.partial[BLOCK] = loss;
}

// Sums over positions of choices and of probabilities, into out (b, experts, 2). A block a sequence and expert.
KERNEL(router_sums_f64, RouterArguments) {
  SHARED(double, scratch, WARP);
  const uint32_t experts = (uint32_t)a.experts, expert = (uint32_t)BLOCK % experts;
  const int64_t first = (uint32_t)BLOCK / experts * a.length * experts;
  double sum = 0;
  for (int t = THREAD; t < (int)a.length; t += THREADS) sum += a.mask[first + t * (int64_t)experts + expert];
  sum = block_sum_f64(sum, scratch);
  if (THREAD == 0) array_put_double(a.out, 2 * BLOCK, sum);
  sum = 0;
  for (int t = THREAD; t < (int)a.length; t += THREADS) {
    const int64_t at = first + t * (int64_t)experts;
    const Softmax s = softmax_of(&a, at);
    sum += probability(&a, &s, at + expert);
  }
  sum = block_sum_f64(sum, scratch);
  if (THREAD == 0) array_put_double(a.out, 2 * BLOCK + 1, sum);
}

// From sums (b, experts, 2): the loss of each sequence into partial (b), by the first thread of those that it has, and
// dlogits. A block has tokens of one sequence.
KERNEL(router_balance_f64, RouterArguments) {
  const int64_t blocks = (a.length + THREADS - 1) / THREADS, b = BLOCK / blocks, from = BLOCK % blocks * THREADS + THREAD;
  const double scale = (double)a.experts / (a.positions * a.positions), seed = array_double(a.seed, 0);
  const int64_t sums = b * a.experts * 2;
  if (from == 0) {
    double loss = 0;
    for (int64_t i = 0; i < a.experts; i++)
      loss += array_double(a.sums, sums + 2 * i) * array_double(a.sums, sums + 2 * i + 1);
    a.partial[b] = scale * loss;
  }
  if (from >= a.length) return;
  const int64_t at = (b * a.length + from) * a.experts;
  const Softmax s = softmax_of(&a, at);
  double mean = 0;
  for (int64_t i = 0; i < a.experts; i++) mean += array_double(a.sums, sums + 2 * i) * probability(&a, &s, at + i);
  for (int64_t i = 0; i < a.experts; i++)
    array_put_double(a.dlogits, at + i, seed * scale * probability(&a, &s, at + i) *
                                            (array_double(a.sums, sums + 2 * i) - FAULT(kernel_balance_gradient, mean, 0)));
}

// bias x[0] (n), load x[1] (2, n), skip x[2] → y[0]; value: the rate. One block. Sums of whole numbers are exact.
KERNEL(router_bias_f64, ScalarArguments) {
  SHARED(double, scratch, WARP);
  const int skip = array_double(a.x[2], 0) != 0;
  double sum = 0;
  for (int64_t i = THREAD; i < a.n; i += THREADS) sum += array_double(a.x[1], i);
  sum = block_sum_f64(sum, scratch);
  for (int64_t i = THREAD; i < a.n; i += THREADS) {
    const double less = sum - array_double(a.x[1], i) * (double)a.n;
    const int sign = (less > 0) - FAULT(kernel_busy_experts_keep_their_bias, (less < 0), 0);
    array_put_double(a.y[0], i, array_double(a.x[0], i) + (skip ? 0 : a.value * sign));
  }
}

// Choices of a sequence's expert in positions `from` to `to`: those of earlier threads, and in *all of the whole block.
// A thread has neighbouring positions, from *mine on to the returned end.
INLINE int64_t choices_before(const CapacityArguments *a, int64_t *count, int64_t from, int64_t to, int64_t *mine,
                              int64_t *end, int64_t *all) {
  const int64_t each = (to - from + THREADS - 1) / THREADS, first = BLOCK / a->experts * a->positions;
  int64_t n = 0, before = 0;
  *mine = from + THREAD * each;
  *end = *mine + each < to ? *mine + each : to;
  for (int64_t s = *mine; s < *end; s++) n += a->mask[(first + s) * a->experts + BLOCK % a->experts];
  BARRIER();
  count[THREAD] = n;
  BARRIER();
  *all = 0;
  for (int k = 0; k < THREADS; k++) {
    *all += count[k];
    if (k < THREAD) before += count[k];
  }
  return before;
}
#define RUN_END(a, r) ((r) + 1 < (int)(a).map.runs ? (a).map.local[1] : (a).map.valid)

// A block a sequence and expert.
KERNEL(capacity_f64, CapacityArguments) {
  SHARED(int64_t, count, BLOCK_THREADS);
  const int64_t b = BLOCK / a.experts, expert = BLOCK % a.experts;
  for (int r = 0; r < (int)a.map.runs; r++) {
    int64_t s, end, all, before = choices_before(&a, count, a.map.local[r], RUN_END(a, r), &s, &end, &all);
    for (int64_t place = 0; place < a.place[r] && a.counts.data; place++)
      before += array_integer(a.counts, (b * a.places + place) * a.experts + expert);
    for (; s < end; s++) {
      const int64_t at = (b * a.positions + s) * a.experts + expert;
      const uint8_t chosen = a.mask[at];
      a.kept[at] = (uint8_t)(chosen && before < a.most + FAULT(kernel_capacity_of_one_more, 0, 1));
      before += chosen;
    }
  }
}

KERNEL(capacity_counts_f64, CapacityArguments) {
  SHARED(int64_t, count, BLOCK_THREADS);
  const int64_t out = BLOCK / a.experts * a.places * a.experts + BLOCK % a.experts;
  int64_t s, end, all[2] = {0, 0};
  for (int r = 0; r < (int)a.map.runs; r++)
    choices_before(&a, count, a.map.local[r], RUN_END(a, r), &s, &end, &all[r]);
  for (int64_t place = THREAD; place < a.places; place += THREADS) {
    double here = 0;
    for (int r = 0; r < (int)a.map.runs; r++)
      if (a.place[r] == place) here = (double)all[r];
    array_put_double(a.counts, out + place * a.experts, here);
  }
}
