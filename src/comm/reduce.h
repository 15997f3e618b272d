// Reduction of elements over ranks, one rank after the other, in a wide accumulator.
#pragma once
#include "plait/comm.h"

// Elements [0, count) of every output = op over the inputs, in their order; rounded once, for a mean after dividing by
// `ranks`. inputs: (ranks), outputs: (noutputs), of noutputs <= ranks. An output may be one of the inputs, but must not
// overlap any otherwise. Results are the same bits whichever instructions the CPU has.
void reduce_run(PlaitDtype dtype, PlaitOp op, const void *const *inputs, int ranks, void *const *outputs, int noutputs,
                size_t count);
