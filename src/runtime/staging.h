// A copy of a rank's Variables as they are between two steps, in the host's memory, for a thread that writes them to
// files while the next step runs, or for a supervisor that outlives the rank. Storage of these Variables is written
// only in END, or by nodes that update in backward: the copy is made during BEGIN and MICRO, and the executor waits for
// it before the first such node.
//
// The rank:     staging_begin, at once the next step; staging_end when the copy has been made.
// A thread:     staging_copy, then it reads staging_tensors for as long as no other copy begins in that image.
#pragma once
#include "checkpoint/memory_image.h"
#include "runtime/executor.h"
#include "runtime/job.h"
#include "runtime/state_tensors.h"
#include "worker/memory.h"

typedef struct Staging Staging;

// Bytes of a copy that a rank of the Program makes: the pieces that it writes to a checkpoint (variable_is_saved).
int64_t staging_bytes(const Program *program, int rank);

typedef struct StagingOptions {
  int images;     // copies that there is memory for, WORKER_MEMORIES at most
  const int *fd;  // (images) memfds for them, or NULL: memory of this process
  const Job *job; // NULL, or copies also have the spare pieces of the machine whose ranks begin with `first`
  int first;      // (runtime/machine_state.h)
} StagingOptions;

// Takes the memory of all copies and all its pages: PLAIT_NO_MEMORY says so here, not in the middle of a run. The State
// and the executor of training are borrowed.
int staging_create(State *state, Executor *executor, const StagingOptions *options, Staging **out, Error *error);
void staging_destroy(Staging *staging); // not while a copy is being made; NULL is fine

// Between two steps: a copy to one of the images begins. From here on the executor waits before the first instruction
// that writes what is to be copied. One copy is under way at a time.
void staging_begin(Staging *staging, int image);
// By one other thread, once for each staging_begin: the image is then complete, with that label.
int staging_copy(Staging *staging, const MemoryImageLabel *label, Error *error);
// Between two steps: waits until the copy has been made, and lets the executor look no longer.
void staging_end(Staging *staging);
// In place of staging_copy, where the thread could not be started.
void staging_abandon(Staging *staging);
// A copy, as pieces in the host's memory; borrowed. Pieces that this rank does not write have no data.
const CheckpointTensor *staging_tensors(const Staging *staging, int image, int *count);
