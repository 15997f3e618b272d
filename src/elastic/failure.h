// Why a round has ended: who failed first, and how.
#pragma once
#include "elastic/workers.h"
#include <stdint.h>

typedef struct Failure {
  int happened;
  int rank;             // of the worker that failed
  pid_t pid;
  int status;           // of waitpid
  int exit_status;      // what a shell calls it: its status, or 128 + the signal
  int weight;           // 3: a signal killed it, 2: it says why, 1: it ended with a status
  int blames;           // what it says names another rank
  bool lasts;           // it says that a restart would end in the same way
  char sentence[2048]; // "rank 1 on node7 (pid 4711) was killed by SIGKILL in training step 12; its last collective, …"
} Failure;

// What follows the sentence of a failure that lasts, where a restart would be left.
extern const char failure_lasts[];

// How many processes of this machine's control group the system has killed for memory; -1: it does not count them.
int64_t failure_memory_kills(void);

// Looks at the workers that have ended. Of several, one that a signal killed is the first; then one that says why.
// `memory_kills`: before the round. 0: there is none, or it is not clear yet which (`all`: all have ended).
int failure_find(const Workers *workers, int64_t memory_kills, bool all, Failure *failure);
