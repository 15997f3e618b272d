// Reduction of elements over ranks, one rank after the other, in a wide accumulator.
#pragma once
#include "plait/comm.h"

// Elements [0, count) of every output = op over the inputs, in their order; rounded once, for a mean after dividing by
// `ranks`. inputs: (ranks), outputs: (noutputs), of noutputs <= ranks. An output may be one of the inputs, but must not
// overlap any otherwise. Results are the same bits whichever instructions the CPU has.
void reduce_run(PlaitDtype dtype, PlaitOp op, const void *const *inputs, int ranks, void *const *outputs, int noutputs,
                size_t count);

// A part of such a reduction, over some of the ranks that follow on each other: whoever runs the parts one after the
// other gets the bits of reduce_run over all. inputs: (n); where the part `continues` another one, inputs[0] is that
// one's output. output: (count) of the accumulator; of the last part, which has `ranks` not 0 (all of the reduction),
// elements. It overlaps no input, but may be one of the last part's.
void reduce_part(PlaitDtype dtype, PlaitOp op, const void *const *inputs, int n, int continues, int ranks, void *output,
                 size_t count);
