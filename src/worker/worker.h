// All that plait launch tells a process that it starts: one struct, which the supervisor writes to the environment of
// the worker, and which the worker reads there.
#pragma once
#include "worker/memory.h"
#include <stdbool.h>
#include <stddef.h>

enum { WORKER_RUN = 400, WORKER_JOB = 40 }; // bytes of a name, with the NUL

typedef enum WorkerVariable {
#define WORKER_VARIABLE(id, ...) WORKER_##id,
#include "worker/variables.def"
#undef WORKER_VARIABLE
  WORKER_VARIABLE_COUNT
} WorkerVariable;

// Of a process that nobody supervises: the texts are empty, the numbers -1, and memory.count is 0. Each part may be
// missing by itself: a user may set PLAIT_RANK, PLAIT_WORLD_SIZE and PLAIT_RUN_ID by hand.
typedef struct Supervised {
  int rank, ranks, local_ranks; // launcher_check says what is wrong with them
  char run[WORKER_RUN];
  char job[WORKER_JOB]; // "" also where there is no round
  int round;
  bool net;             // ranks talk by net
  int notices;          // a pipe to write to
  double lead;          // of a batch script: seconds from its signal to the end of its time; 0: it does not say
  int pages, page;      // the file of this machine's pages, and which one is this worker's
  WorkerMemory memory;
} Supervised;

const char *worker_variable(WorkerVariable variable); // its name

// From the environment of this process, which is read once: a variable that is set later is not seen.
const Supervised *worker_supervised(void);
// The same, read again; for tests.
Supervised worker_read(void);

// By a process that is about to become a worker: sets all variables, and unsets those that have nothing to say.
void worker_write(const Supervised *told);
