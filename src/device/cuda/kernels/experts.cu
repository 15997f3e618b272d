// Rows of tokens that go to some experts only, and products of each expert's rows: correct, and not fast.
#include "device/cuda/kernels/kernel.h"

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

#define OF_ELEMENTS "device/cuda/kernels/expert_rows.h"
#define OF_REALS "device/cuda/kernels/experts.h"
#include "device/cuda/kernels/each_real.h"
