// launch.jsonl in the folder of a run: a line for each round of workers, and one at the end.
#pragma once
#include <stdint.h>

typedef struct JournalRound {
  int round;
  const char *cause;     // why it began: "start", or the sentence of the failure before it
  int restarts;          // used of --max-restarts, with this round
  const char *members;   // JSON array of objects {"host", "supervisor" (pid), "ranks" [first, last]}
  double seconds;        // from the cause to the first step of the round; below 0: it has done none
  int64_t first_step;
} JournalRound;

// Appends a line to FOLDER/launch.jsonl; the folder may not exist yet. What cannot be written is left out: the run
// matters more. folder NULL: nothing.
void journal_round(const char *folder, const JournalRound *round);
// The failure that has ended a job.
typedef struct JournalFailure {
  int rank;               // that failed
  const char *how, *words; // how its process has ended, and what it said itself ("": nothing)
} JournalFailure;
// Nothing where another machine has written the end of the job. failure NULL: none has ended it.
void journal_end(const char *folder, int rounds, int restarts, int status, const JournalFailure *failure);
