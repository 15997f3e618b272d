// Sums over ranks of floating-point elements, compiled once for each SIMD level (reduce_avx2.c, reduce_avx512.c).
#pragma once
#include "plait/comm.h"

// As reduce_run, of one dtype; divides by `ranks` when `mean`.
typedef void (*ReduceSum)(const void *const *inputs, int ranks, void *const *outputs, int noutputs, size_t count,
                          int mean);
typedef struct ReduceSums { ReduceSum sum[PLAIT_DTYPE_COUNT]; } ReduceSums; // NULL: not at this level

#if defined(__x86_64__)
extern const ReduceSums reduce_sums_avx2, reduce_sums_avx512;
#endif
