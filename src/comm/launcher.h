// What the environment says of the launcher that started this process, without asking anybody.
#pragma once
#include "base/error.h"
#include "plait/comm.h"
#include <stdbool.h>

typedef struct Launcher {
  const char *variable; // that says so; NULL: started by hand
  int tasks, rank;      // tasks 0: there is a launcher that does not say how many; rank -1: not said
  int local;            // tasks on this machine; 0: not said
  int mpi;              // an MPI finds its ranks by this launcher
} Launcher;

Launcher launcher_find(void);
// PLAIT_BAD_INPUT where two launchers disagree, or one says what cannot be: RANK without WORLD_SIZE, rank 4 of 4.
int launcher_check(Error *error);
// All ranks of an MPI launcher have found the same error, and have no world. Others than rank 0 lose their sentence,
// and wait for a second: the launcher kills the job, rank 0 included, at the first exit with a failure.
void launcher_rank_0_says(const Launcher *launcher, Error *error);

// Of a rank that srun has started: says that it has fewer cores than the batch script asks for. Slurm 22.05 and later
// give them only where srun itself is told --cpus-per-task. cores: that this process may use. false: it has them.
bool launcher_lacks_cores(int cores, char *text, size_t size);

// How the ranks of this process's launcher make a world.
typedef enum WorldKind { WORLD_AUTO, WORLD_MPI, WORLD_NET } WorldKind;
// How a rank of net reaches the others: run.wire.
typedef enum NetWireChoice {
  NET_WIRE_AUTO,    // shared memory by UCX within a machine where there is UCX, sockets else
  NET_WIRE_SOCKETS, // Unix sockets within a machine, TCP between machines
  NET_WIRE_UCX,     // UCX for all
  // For tests and to measure; PLAIT_WIRE knows them, run.wire does not:
  NET_WIRE_TCP,     // TCP for all
  NET_WIRE_MIXED,   // as AUTO, but TCP between a rank of an odd number and one of an even number
} NetWireChoice;

// As plait_world_launched_create. AUTO: MPI's where an MPI knows the ranks, else net's. silence, wire: see NetOptions;
// 0: the usual.
int world_launched_create(WorldKind kind, double silence, NetWireChoice wire, PlaitWorld **world, Error *error);

// The MPI that this build has, as it calls itself; NULL: none.
const char *launcher_mpi_version(char line[static 1 << 14]);
