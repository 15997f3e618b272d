// Error codes, and the struct in which a call leaves one sentence for the person who can act on it.
#pragma once

// A function that can fail returns one of these (0 or positive is success) and leaves a message in its PlaitError.
enum {
  PLAIT_OK = 0,
  PLAIT_FAILED = -1,      // the machine or another process let us down (exit status 1)
  PLAIT_BAD_INPUT = -2,   // a recipe, config, corpus, checkpoint, argument or command line is wrong (exit status 2)
  PLAIT_NO_MEMORY = -3,   // exit status 1
  PLAIT_INTERRUPTED = -4, // asked to stop by a signal
  PLAIT_INFEASIBLE = -5,  // a parallel configuration that cannot be; the planner goes on, a command exits with 2
};

// Zero-initialise it before the first call: while code is not 0, a later error does not overwrite it.
typedef struct PlaitError {
  int code;           // PLAIT_OK while empty
  char message[1024]; // one sentence, without a newline
} PlaitError;
