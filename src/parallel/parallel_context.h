// The judge of context parallelism.
#pragma once
#include "parallel/parallel.h"

// Can `ranks` ranks exchange positions for the heads that tp leaves? Unknown without the model: 1.
int parallel_exchange_fits(const ParallelOptions *options, const Workload *workload, int ranks);

// Can attention cross cp as the options say? PLAIT_OK, or PLAIT_INFEASIBLE and the problem.
int parallel_check_context(const ParallelOptions *options, const Workload *workload, ParallelProblem *problem);
