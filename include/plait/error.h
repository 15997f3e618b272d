// Error codes, and the struct in which a call leaves one sentence for the person who can act on it.
#pragma once

// A function that can fail returns one of these (0 or more: success) and leaves a message in its PlaitError.
// docs/library.md says for each what to do.
enum {
  PLAIT_OK = 0,
  PLAIT_FAILED = -1,      // the machine, another rank or another process failed: a disk, a thread, a rank that left
  PLAIT_BAD_INPUT = -2,   // what was passed in is wrong: a recipe, a file, a name, a shape; nothing was done
  PLAIT_NO_MEMORY = -3,   // there is less memory than is needed
  PLAIT_INTERRUPTED = -4, // a signal asked training to stop; it has saved and can be resumed
  PLAIT_INFEASIBLE = -5,  // a parallel configuration that cannot be, as 3 heads over 2 ranks; others can
  PLAIT_UNWRITABLE = -6,  // a file cannot be written, now or later: a full disk, a quota, a limit, a missing right
};

// A rank of the world that a sentence is about. All zero: it is about none.
typedef struct PlaitErrorRank {
  int known;     // 1: it is about `rank`
  int rank;      // from 0
  char host[64]; // its machine; "" where the sentence does not say it
} PlaitErrorRank;

// PlaitError error = {0}; before the first call. The first error stays: while code is not 0, a later one does not
// overwrite it. Where a function takes a PlaitError *, NULL means that you do not want the sentence.
// The fields after `message` say for programs what the sentence says for people; the wording of sentences changes.
typedef struct PlaitError {
  int code;              // PLAIT_OK while empty
  char message[1024];    // one sentence, without a newline
  PlaitErrorRank rank;   // which the sentence names as the one that it comes from
  PlaitErrorRank blamed; // which has failed first, or whose process has ended; another one than `rank`, or the same
  char key[64];          // the key of the recipe that `message` begins with; "": none, or it is not known
  int text;              // where in `message` the words about these facts begin, after the places that were put before
                         // them ("layer.0.reduce: " or "rank 0 on node7: ")
} PlaitError;
