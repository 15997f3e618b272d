// Expert parallelism: over which ranks parallel.ep folds the experts, and its judge.
#pragma once
#include "parallel/parallel.h"

// The ranks of each axis that have different experts: all of tp; of cp all or one; of dp a divisor.
typedef struct ExpertFold { int tp, cp, dp; } ExpertFold;

// The fold over the innermost `ranks` ranks of dp · cp · tp, and 1; 0: there is none (ranks 0 or 1), or it would cut an
// axis that cannot be cut.
int parallel_expert_fold(const StepParallel *options, int ranks, ExpertFold *fold);
// The rows of the Layout, of which expert_ffn is not cut over axes that experts are folded over.
LayoutTable parallel_expert_rows(const StepParallel *options);

int parallel_check_experts(const Step *step, const StepModel *model, ParallelProblem *problem);
