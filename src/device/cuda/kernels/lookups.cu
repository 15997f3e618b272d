// Embeddings, rotary positions, and the scalars of a step's end.
#include "device/cuda/kernels/kernel.h"
#include "op/attributes.h"

KERNEL_MARK(lookups)

// Angle per position of pair i, as rope_frequency (op/formula.h).
INLINE double frequency_of(const RopeArguments *a, int64_t pair) {
  const double f = pow(a->theta, -2.0 * (double)pair / (double)a->width);
  if (a->scaling == 2) return f / a->factor;
  if (a->scaling != 1) return f;
  const double waves = a->original * f / 6.283185307179586476925;
  if (waves < a->low) return f / a->factor;
  if (waves > a->high) return f;
  const double smooth = (waves - a->low) / (a->high - a->low);
  return (1 - smooth) * f / a->factor + smooth * f;
}

// Scalars: one thread of a warp works.
#define SCALAR(x) array_double(x, 0)
INLINE double at_least_one(double x) { return x > 1 ? x : 1; }

KERNEL(gradient_seed_f64, ScalarArguments) {
  if (THREAD) return;
  array_put_double(a.y[0], 0, (a.x[1].data ? SCALAR(a.x[1]) : 1) / at_least_one(SCALAR(a.x[0])));
}

KERNEL(mean_loss_f64, ScalarArguments) {
  if (THREAD) return;
  array_put_double(a.y[0], 0, SCALAR(a.x[0]) / at_least_one(SCALAR(a.x[1])));
}

// value: the greatest norm, or 0
KERNEL(clip_f64, ScalarArguments) {
  if (THREAD) return;
  const double scale = a.x[1].data ? SCALAR(a.x[1]) : 1, norm = sqrt(SCALAR(a.x[0])) / scale;
  const int trial = a.x[2].data && isnan(SCALAR(a.x[2])), skip = !isfinite(norm) || trial;
  array_put_double(a.y[0], 0, norm);
  array_put_double(a.y[1], 0, skip ? 0 : (a.value > 0 && norm > a.value ? a.value / norm : 1) / scale);
  array_put_double(a.y[2], 0, skip);
}

// step, skip
KERNEL(advance_f64, ScalarArguments) {
  if (THREAD == 0) array_put_double(a.y[0], 0, SCALAR(a.x[0]) + (SCALAR(a.x[1]) == 0));
}

// scale, good, skip; n: the interval, 0: the scale stays
KERNEL(loss_scale_f64, ScalarArguments) {
  if (THREAD) return;
  double scale = SCALAR(a.x[0]), good = SCALAR(a.x[1]) + 1;
  if (!a.n) good = 0;
  else if (SCALAR(a.x[2]) != 0) scale = scale / 2 > LOSS_SCALE_LEAST ? scale / 2 : LOSS_SCALE_LEAST, good = 0;
  else if (good >= (double)a.n + FAULT(kernel_loss_scale_grows_late, 0, 1))
    scale = scale * 2 < LOSS_SCALE_MOST ? scale * 2 : LOSS_SCALE_MOST, good = 0;
  array_put_double(a.y[0], 0, scale);
  array_put_double(a.y[1], 0, good);
}

// versions, steps, skip in END
KERNEL(version_turn_f64, ScalarArguments) {
  if (THREAD) return;
  double versions = SCALAR(a.x[0]), steps = SCALAR(a.x[1]), turn;
  if (a.x[2].data) {
    const int skip = SCALAR(a.x[2]) != 0;
    steps++;
    turn = skip ? TURN_STAYS : TURN_NEXT;
    if (!skip) versions = steps;
  } else {
    turn = !steps ? TURN_STARTS : versions < steps ? TURN_NEXT : TURN_STAYS;
    versions = steps;
  }
  array_put_double(a.y[0], 0, versions);
  array_put_double(a.y[1], 0, steps);
  array_put_double(a.y[2], 0, turn);
}

KERNEL(count_targets_f64, ScalarArguments) {
  SHARED(double, scratch, WARP);
  double count = 0;
  for (int64_t i = THREAD; i < a.n; i += THREADS) count += array_integer(a.x[0], i) >= 0;
  count = block_sum_f64(count, scratch);
  if (THREAD == 0) array_put_double(a.y[0], 0, count);
}

// Tokens in the order of their words, those of one word in their own order: a counting sort over segments of tokens.
// 1. ranks: for each token, how many earlier tokens of its segment have its word (-1: the word is another rank's). The
//    last of these stores their number in counts.
// 2. counts: of each word, how many tokens earlier segments have; and how many all have, of words and of blocks of them.
// 3. begins: where each word's tokens begin.
// 4. order: each token goes to its place.
INLINE int32_t row_of_token(const EmbeddingGradArguments *a, int64_t token) {
  return token < a->tokens ? (int32_t)map_local(&a->map, array_integer(a->ids, token)) : -1;
}

// A thread a token. A block's threads belong to one segment.
KERNEL(embedding_ranks_f64, EmbeddingGradArguments) {
  SHARED(int32_t, rows, BLOCK_THREADS);
  const int64_t blocks = (a.each + THREADS - 1) / THREADS, segment = BLOCK / blocks, from = segment * a.each,
                end = from + a.each < a.tokens ? from + a.each : a.tokens,
                token = from + BLOCK % blocks * THREADS + THREAD;
  const int32_t row = token < end ? row_of_token(&a, token) : -1;
  int32_t earlier = 0, later = 0;
  for (int64_t tile = from; tile < end; tile += THREADS) {
    rows[THREAD] = tile + THREAD < end ? row_of_token(&a, tile + THREAD) : -1;
    BARRIER();
    for (int k = 0; k < THREADS; k++) {
      const int same = rows[k] == row;
      earlier += same && tile + k < token;
      later += same && tile + k > token;
    }
    BARRIER();
  }
  if (token >= end) return;
  a.rank[token] = row < 0 ? -1 : earlier;
  if (row >= 0 && !later) a.counts[segment * a.rows + row] = earlier + 1;
}

// A thread a word.
KERNEL(embedding_counts_f64, EmbeddingGradArguments) {
  SHARED(double, scratch, WARP);
  const int64_t word = BLOCK * THREADS + THREAD;
  int32_t all = 0;
  for (int64_t s = 0; s < a.segments && word < a.rows; s++) {
    const int32_t count = a.counts[s * a.rows + word];
    a.counts[s * a.rows + word] = all;
    all += count;
  }
  if (word < a.rows) a.begins[word] = all;
  const double sum = block_sum_f64(all, scratch);
  if (THREAD == 0) a.blocks[BLOCK] = (int32_t)sum;
}

// A thread a word.
KERNEL(embedding_begins_f64, EmbeddingGradArguments) {
  SHARED(int32_t, counts, BLOCK_THREADS);
  SHARED(double, scratch, WARP);
  const int64_t word = BLOCK * THREADS + THREAD;
  const int32_t mine = word < a.rows ? a.begins[word] : 0;
  double before = 0;
  for (int64_t b = THREAD; b < BLOCK; b += THREADS) before += a.blocks[b];
  int32_t begin = (int32_t)block_sum_f64(before, scratch);
  counts[THREAD] = mine;
  BARRIER();
  for (int t = 0; t < THREAD; t++) begin += counts[t];
  if (word < a.rows) a.begins[word] = begin;
  if (word == a.rows - 1) a.begins[a.rows] = begin + mine;
}

// A thread a token.
KERNEL(embedding_order_f64, EmbeddingGradArguments) {
  const int64_t token = BLOCK * THREADS + THREAD;
  if (token >= a.tokens || a.rank[token] < 0) return;
  const int32_t row = row_of_token(&a, token);
  const int32_t earlier = a.counts[token / a.each * a.rows + row];
  a.token[a.begins[row] + FAULT(kernel_segments_begin_together, earlier, 0) + a.rank[token]] = (int32_t)token;
}

#define OF_ELEMENTS "device/cuda/kernels/lookups.h"
#include "device/cuda/kernels/each_real.h"
