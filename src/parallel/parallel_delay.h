// The judge of delayed gradients.
#pragma once
#include "parallel/parallel.h"

// Can gradients be taken at the weights of optimizer.delay steps ago? PLAIT_OK, or PLAIT_INFEASIBLE and the problem.
// Can a schedule that never drains run it?
int parallel_check_stream(const Step *step, const StepModel *model, int pp, int microbatches,
                          ParallelProblem *problem);
int parallel_check_delay(const Step *step, const StepModel *model, ParallelProblem *problem);
