// A rank's Variables as boxes of their global tensors: for checkpoints, gathers and exports.
#pragma once
#include "checkpoint/checkpoint.h"
#include "runtime/state.h"

// The boxes of the Variables that are asked for (variable_is_saved: a checkpoint's) and live on this rank. The array is
// malloc'ed; names are borrowed, and what the pieces hold is read and written through the State. Returns the count.
int state_tensors(State *s, VariableTest *wanted, CheckpointTensor **out);
// The same of what belongs to parameters, under the names of these: for OF_DUMP their reduced gradients.
int state_tensors_of(State *s, KnownOf of, CheckpointTensor **out);
// The same of one Variable, by its id: no box where it does not live on this rank.
int state_tensor(State *s, int variable, CheckpointTensor **out);

// The boxes of a Variable that are `rank`'s alone to send, whoever asks: they follow from its Program. malloc'ed;
// returns the count.
int program_primary_boxes(const Program *program, int variable, int rank, Box **boxes);
// Where the host may read a part of a Variable without a copy, until the next step: its first element, and in stride
// (dims) the elements between neighbours of a dim. NULL: it must be copied, or has another dtype.
const void *state_view(const State *s, int variable, const Box *part, Dtype dtype, int64_t *stride);
