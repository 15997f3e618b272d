// Why a round has ended: who failed first, and how.
#pragma once
#include "elastic/workers.h"
#include <stdint.h>

enum { FAILURE_HOW = 1024, FAILURE_SENTENCE = 2100 };

typedef struct Failure {
  int happened;
  int rank;             // of the worker that failed
  pid_t pid;
  int status;           // of waitpid
  int exit_status;      // what a shell calls it: its status, or 128 + the signal
  int weight;           // 3: a signal killed it, 2: it says why, 1: it ended with a status
  Error said;           // why, as it says itself; code 0: it does not, or a signal killed it meanwhile
  char how[FAILURE_HOW]; // "rank 1 on node7 (pid 4711) was killed by SIGKILL in training step 12; its last …"
} Failure;

// The whole sentence: how the worker ended, and its own words: "rank 0 on node7 (pid 47) ended with status 1: …".
void failure_print(const char *how, const char *words, char *text, size_t size);
// The same of a Failure.
void failure_describe(const Failure *failure, char *text, size_t size);
// Whether it says that a restart would end in the same way.
bool failure_lasts(const Failure *failure);

// What follows the sentence of a failure that lasts, where a restart would be left.
extern const char failure_is_left[];

// How many processes of this machine's control group the system has killed for memory; -1: it does not count them.
int64_t failure_memory_kills(void);

// Looks at the workers that have ended. Of several, one that a signal killed is the first; then one that says why.
// `memory_kills`: before the round. 0: there is none, or it is not clear yet which (`all`: all have ended).
int failure_find(const Workers *workers, int64_t memory_kills, bool all, Failure *failure);
