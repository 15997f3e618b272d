// The judge of context parallelism.
#pragma once
#include "parallel/parallel.h"

// Can `ranks` ranks exchange positions for the heads that tp leaves? Unknown without the model: 1.
int parallel_exchange_fits(const Step *step, const StepModel *model, int ranks);

// Can attention cross cp as the options say? PLAIT_OK, or PLAIT_INFEASIBLE and the problem.
int parallel_check_context(const Step *step, const StepModel *model, ParallelProblem *problem);
