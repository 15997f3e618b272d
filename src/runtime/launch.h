// How a run was started: by hand (its ranks are threads), or once per rank by a launcher (they are processes).
#pragma once
#include "base/error.h"
#include "comm/launcher.h"
#include "plait/comm.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct Launch {
  PlaitWorld *world; // NULL: one process, ranks are threads
  PlaitComm *comm;   // of all processes
  int rank, ranks;   // 0 of 1 where world is NULL
  PlaitComm *all;    // also of the idle ranks; NULL: there are none
  bool idle;         // this rank has no place in the mesh
  int outcome;       // of the command, for the idle ranks; launch_end tells them
} Launch;

typedef enum LaunchComm { LAUNCH_AUTO, LAUNCH_LOCAL, LAUNCH_MPI, LAUNCH_NET } LaunchComm; // run.comm
// What is known of the run before its recipe is read together; zeroed: nothing.
typedef struct LaunchWish {
  LaunchComm comm;
  double silence; // run.silence; 0: the usual
  NetWireChoice wire; // run.wire
} LaunchWish;

// Joins the world that a launcher has made, if there is one. PLAIT_BAD_INPUT where its tasks are no world to us.
int launch_begin(Launch *launch, LaunchWish wish, Error *error);
// Ranks where these are processes; 0: one process, whose ranks may be threads.
static inline int launch_processes(const Launch *launch) { return launch->ranks > 1 ? launch->ranks : 0; }
enum { LAUNCH_MOST_THREADS = 1024 }; // ranks that one process carries as threads

// What run.comm makes of it for so many ranks: afterwards there is a world exactly where ranks are processes, as many
// as there are ranks. `mesh` is for messages: "pp 2 × dp 1 × cp 1 × tp 2".
int launch_choose(Launch *launch, LaunchComm comm, int64_t ranks, const char *mesh, Error *error);
// Only the first `ranks` take part from here on: they are all that `comm` has. The others are idle: all that they may
// call is launch_wait, and launch_end. Collective.
int launch_use(Launch *launch, int ranks, Error *error);
// An idle rank waits until the others have come to launch_end. Returns their outcome, PLAIT_INTERRUPTED after a signal
// to any rank; another rank has the sentence.
int launch_wait(Launch *launch, Error *error);

// Leaves the world. Where it is MPI's and has failed this does not return: see plait_world_destroy. NULL and zeroed are
// fine.
void launch_end(Launch *launch);

// Makes every rank return the same outcome: the code of the lowest rank that failed. Its sentence goes to rank 0; the
// others' is empty, so that only one is printed. Every rank calls it. Returns `code` where there is no world.
int launch_agree(const Launch *launch, int code, Error *error);
// Rank 0's text (malloc'ed, may be NULL) replaces the others'; every rank calls it.
int launch_tell(const Launch *launch, char **text, Error *error);

// Threads of one rank, at least 1: `given` (0: the cores of this process, which may be bound) divided among the ranks
// of this machine that have them in common, of `ranks` in all. Every rank calls it.
int launch_threads(const Launch *launch, int given, int64_t ranks, int *threads, Error *error);
