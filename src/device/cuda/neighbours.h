// Neighbouring launches of one kernel become one, where they do not need each other's results: a step has an update for
// each parameter, and most of these are vectors, for which a launch takes longer than the work.
//
// They wait in the queue's list, and are put into its stream before anything else is. Each keeps its blocks and its
// arguments, so that all bits are the same.
#pragma once
#include "device/cuda/launch.h"

// 1: the launch, with the operands that were named for it, waits; its arguments are copied. 0: nothing becomes one with
// launches of this kernel, or what waits must come first.
int neighbours_take(Launch *l, CudaKernel kernel, int64_t blocks, int threads, const void *arguments);
// Whether launches of an op may wait: all of its launches go by neighbours_take, or flush.
int neighbours_wait(Op op);
