// Norms, and sums over rows and over everything.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(rows)

// Partial sums of sum_squares and of losses.
KERNEL_OF_MANY(sum_f64, sum_many_f64, sum_piece, SumArguments) {
  SHARED(double, scratch, WARP);
  double sum = 0;
  (void)block, (void)blocks;
  for (int64_t i = THREAD; i < a.n; i += THREADS) sum += a.partial[i];
  sum = block_sum_f64(sum, scratch);
  if (THREAD == 0) array_put_double(a.out, 0, sum);
}

#define OF_ELEMENTS "device/cuda/kernels/rows.h"
#define OF_REALS "device/cuda/kernels/column_sums.h"
#include "device/cuda/kernels/each_real.h"
