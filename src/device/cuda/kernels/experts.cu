// Rows of tokens that go to some experts only, and plain products of each expert's rows.
#include "device/cuda/kernels/expert_tiles.h"

KERNEL_MARK(experts)

// Where rows lie (op/expert_rows.h): index (tokens, experts), -1 where the mask is 0, and begins (experts + 1). A block
// an expert; a thread has neighbouring tokens.
KERNEL(expert_index_f64, ExpertArguments) {
  SHARED(int64_t, count, BLOCK_THREADS);
  SHARED(double, scratch, WARP);
  const int64_t each = (a.tokens + THREADS - 1) / THREADS, first = THREAD * each,
                end = first + each < a.tokens ? first + each : a.tokens;
  double before = 0; // rows of earlier experts
  int64_t mine = 0;
  for (int64_t i = THREAD; i < a.tokens * a.experts; i += THREADS) before += i % a.experts < BLOCK && a.mask[i];
  for (int64_t t = first; t < end; t++) mine += a.mask[t * a.experts + BLOCK] != 0;
  count[THREAD] = mine;
  int64_t row = (int64_t)block_sum_f64(before, scratch), all = row;
  BARRIER();
  for (int k = 0; k < THREADS; k++) {
    all += count[k];
    if (k < FAULT(kernel_rows_of_a_thread_overlap, THREAD, THREAD - 1)) row += count[k];
  }
  if (THREAD == 0) a.begins[BLOCK] = row;
  if (THREAD == 0 && BLOCK == a.experts - 1) a.begins[a.experts] = all;
  for (int64_t t = first; t < end; t++)
    a.index[t * a.experts + BLOCK] = a.mask[t * a.experts + BLOCK] ? (int32_t)row++ : -1;
}

// The part of those in the order of the group's ranks that a token belongs to, as row_part (op/expert_rows.h).
INLINE int64_t part_of_sample(const PartArguments *a, int64_t sample) {
  if (a->each) return sample / a->each;
  int64_t rank = 0, first;
  while (a->rank_begins[rank + 1] <= a->first) rank++;
  first = rank - rank % (a->batch * a->ranks);
  while (a->rank_begins[rank + 1] <= a->first + sample) rank++;
  return (rank - first) / a->ranks;
}
INLINE int64_t part_of_token(const PartArguments *a, int64_t token) {
  int64_t position = token % a->positions, positions = a->positions, zigzag = 0;
  if (a->zigzag > 1) {
    const int64_t chunk = positions / (2 * a->zigzag), number = position / chunk, second = number >= a->zigzag;
    zigzag = second ? 2 * a->zigzag - 1 - number : number;
    position = second * chunk + position % chunk;
    positions = 2 * chunk;
  }
  return (part_of_sample(a, token / a->positions) * a->zigzag + zigzag) * a->seq + position / (positions / a->seq);
}

// Where rows of a part lie rank after rank. A block a part; a thread has neighbouring rows of all, by expert and token.
KERNEL(part_index_f64, PartArguments) {
  SHARED(int64_t, count, BLOCK_THREADS);
  SHARED(double, scratch, WARP);
  const int64_t all = a.tokens * a.experts, each = (all + THREADS - 1) / THREADS, first = THREAD * each,
                end = first + each < all ? first + each : all;
  double before = 0; // rows of earlier parts
  int64_t mine = 0;
  for (int64_t i = first; i < end; i++) {
    const int64_t token = i % a.tokens;
    if (!a.mask[token * a.experts + i / a.tokens]) continue;
    const int64_t part = part_of_token(&a, token);
    before += part < BLOCK;
    mine += part == BLOCK;
  }
  count[THREAD] = mine;
  int64_t row = (int64_t)block_sum_f64(before, scratch);
  BARRIER();
  for (int k = 0; k < FAULT(kernel_rows_of_a_part_overlap, THREAD, THREAD - 1); k++) row += count[k];
  for (int64_t i = first; i < end; i++) {
    const int64_t token = i % a.tokens, at = token * a.experts + i / a.tokens;
    if (a.mask[at] && part_of_token(&a, token) == BLOCK) a.there[at] = (int32_t)row++;
  }
}

// How many rows go to each rank, and then how many come from each. A block a number.
KERNEL(count_rows_f64, RowCountArguments) {
  SHARED(double, scratch, WARP);
  double rows = 0;
  if (BLOCK < a.ranks) {
    const int64_t each = a.experts / a.ranks, first = BLOCK * each;
    for (int64_t i = THREAD; i < a.tokens * each; i += THREADS) rows += a.mask[i / each * a.experts + first + i % each];
  } else {
    for (int64_t t = THREAD; t < FAULT(kernel_last_token_has_no_row, a.part.tokens, a.part.tokens - 1); t += THREADS)
      if (part_of_token(&a.part, t) == BLOCK - a.ranks)
        for (int64_t x = 0; x < a.part.experts; x++) rows += a.part.mask[t * a.part.experts + x];
  }
  rows = block_sum_f64(rows, scratch);
  if (THREAD == 0) a.counts[BLOCK] = rows;
}

#define OF_ELEMENTS "device/cuda/kernels/expert_rows.h"
#define OF_REALS "device/cuda/kernels/experts.h"
#include "device/cuda/kernels/each_real.h"
