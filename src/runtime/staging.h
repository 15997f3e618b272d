// A copy of a rank's Variables as they are between two steps, in the host's memory, for a thread that writes them to
// files while the next step runs. Storage of these Variables is written only in END, or by nodes that update in
// backward: the copy is made during BEGIN and MICRO, and the executor waits for it before the first such node.
//
// The rank:     staging_begin, at once the next step; staging_end when the copy has been made.
// The thread:   staging_copy, then it reads staging_tensors for as long as no other copy begins.
#pragma once
#include "runtime/executor.h"
#include "runtime/state_tensors.h"

typedef struct Staging Staging;

// Bytes of the copy that a rank of the Program makes: the pieces that it writes to a checkpoint (CHECKPOINT_KINDS).
int64_t staging_bytes(const Program *program, int rank);

// Takes the memory and all its pages: PLAIT_NO_MEMORY says so here, not in the middle of a run. The State and the
// executor of training are borrowed.
int staging_create(State *state, Executor *executor, Staging **out, Error *error);
void staging_destroy(Staging *staging); // not while a copy is being made; NULL is fine

// Between two steps. From here on the executor waits before the first instruction that writes what is to be copied.
void staging_begin(Staging *staging);
// By one other thread, once for each staging_begin.
int staging_copy(Staging *staging, Error *error);
// Between two steps: waits until the copy has been made, and lets the executor look no longer.
void staging_end(Staging *staging);
// In place of staging_copy, where the thread could not be started.
void staging_abandon(Staging *staging);
// The copy, as pieces in the host's memory; borrowed. Pieces that this rank does not write have no data.
const CheckpointTensor *staging_tensors(const Staging *staging, int *count);
