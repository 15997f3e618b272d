// How a run was started: by hand (its ranks are threads), or once per rank by mpirun or srun (they are processes).
#pragma once
#include "base/error.h"
#include "plait/comm.h"
#include "train/recipe.h"

typedef struct Launch {
  PlaitWorld *world; // NULL: one process, ranks are threads
  PlaitComm *comm;   // of all processes
  int rank, ranks;   // 0 of 1 where world is NULL
} Launch;

// Joins the world that a launcher has made, if there is one. PLAIT_BAD_INPUT where its tasks are no MPI world to us.
int launch_begin(Launch *launch, Error *error);
// What run.comm makes of it: afterwards there is a world exactly where the recipe's ranks are processes, as many as the
// mesh has.
int launch_choose(Launch *launch, const Recipe *recipe, Error *error);
// Leaves MPI. When the world has failed this does not return: see plait_world_destroy. NULL and zeroed are fine.
void launch_end(Launch *launch);

// Makes every rank return the same outcome: the code of the lowest rank that failed. Its sentence goes to rank 0; the
// others' is empty, so that only one is printed. Every rank calls it. Returns `code` where there is no world.
int launch_agree(const Launch *launch, int code, Error *error);
// Rank 0's text (malloc'ed, may be NULL) replaces the others'; every rank calls it.
int launch_tell(const Launch *launch, char **text, Error *error);

// Threads of one rank: run.threads (auto: the cores of this process, which may be bound) shared out over the ranks of this
// machine that have them in common. Every rank calls it.
int launch_threads(const Launch *launch, const Recipe *recipe, int *threads, Error *error);
