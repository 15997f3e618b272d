// RUN/ended.json: why training in a run folder has failed, for whoever looks at it later. And what a run folder says of
// its run as a whole.
#pragma once
#include "base/error.h"
#include <stdint.h>

// Leaves the sentence of a failure in the folder. A failure to write it is ignored: the error itself matters more.
void ending_write(const char *folder, int rank, const Error *error); // by this rank
void ending_clear(const char *folder); // before a run begins to write

typedef enum EndingState { RUN_RUNNING, RUN_DONE, RUN_STOPPED, RUN_FAILED, RUN_STATES } EndingState;

typedef struct Ending {
  EndingState state;
  int64_t step, steps; // done, and wanted; steps 0: not known
  double loss;         // of the last step that has one; NAN: none
  char sentence[1024]; // of the failure, or what has stopped the run; "" where running or done
} Ending;

// Reads recipe.yaml, metrics.jsonl, lock, ended.json and launch.jsonl of a run folder. A run whose process has ended
// without a word (SIGKILL, a machine that is gone) has failed. PLAIT_BAD_INPUT where the folder is none of a run.
int ending_read(const char *folder, Ending *ending, Error *error);
const char *ending_state_name(EndingState state); // "running"
