// A rank's Variables as boxes of their global tensors: for checkpoints, gathers and exports.
#pragma once
#include "checkpoint/checkpoint.h"
#include "program/state.h"

// The Variables of the given kinds (bits 1 << VariableKind) whose names start with `prefix` and that live on this rank.
// `strip` leaves the prefix out of the names. The array is malloc'ed, names and data are borrowed. Returns the count.
int state_tensors(const State *s, unsigned kinds, const char *prefix, int strip, CheckpointTensor **out);

// What a checkpoint holds.
enum { CHECKPOINT_KINDS = 1 << VARIABLE_PARAMETER | 1 << VARIABLE_OPTIMIZER | 1 << VARIABLE_COUNTER };
