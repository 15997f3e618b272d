// How the judges of parallel configurations say what is wrong.
#pragma once
#include "parallel/parallel.h"

// The sentence and the key that it blames: PLAIT_INFEASIBLE.
__attribute__((format(printf, 3, 4))) int parallel_refuse(ParallelProblem *problem, const char *key, const char *format,
                                                          ...);

// "24 or 32", of the values next to what was asked; 0: there is none on that side.
const char *parallel_nearest(ParallelProblem *problem, int64_t below, int64_t above, char text[64]);
