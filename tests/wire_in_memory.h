// Worlds of processes in one process: each rank is a thread that talks to the others by a wire in memory, as processes
// do by one of MPI or UCX. For tests of what goes over a wire.
#pragma once
#include "plait/comm.h"

typedef void (*HubFunction)(PlaitComm *comm, int rank, void *context);
// Runs a function, which must not fail, on every rank of such a world. machine: ranks of each machine; 0: there is one.
void hub_run(int ranks, int machine, HubFunction function, void *context);
