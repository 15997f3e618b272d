// The judge of 2-D, 2.5-D and 3-D tensors: how tp's ranks are laid out.
#pragma once
#include "parallel/parallel.h"

extern const char *const parallel_tensor_names[LAYOUT_TENSORS];
int parallel_tp_ranks(const StepParallel *options);
// "2 × 3 ranks (rows × columns)"
const char *parallel_grid_text(const StepParallel *options, char text[80]);

// Do the model's sizes divide by these options' rows and columns?
typedef int (*SizesFit)(const StepParallel *options, const void *context);

// Can tp's ranks be laid out as the options say? PLAIT_OK, or PLAIT_INFEASIBLE and the problem.
int parallel_check_grid(const StepParallel *options, SizesFit fits, const void *context, ParallelProblem *problem);

// Products can run in SUMMA's steps, or are not to: rows and columns are as many.
int parallel_summa_fits(const StepParallel *options);

// "2 or 8": the sizes of tp next to its own that fit, with rows and depth as they are.
const char *parallel_nearest_tp(const StepParallel *options, SizesFit fits, const void *context,
                                ParallelProblem *problem, char text[64]);
