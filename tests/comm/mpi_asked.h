// What a program's MPI is asked to move, at MPI's profiling layer.
#pragma once
#include "plait/comm.h"

// Of a communicator of a world over MPI: it is what was counted at the wire, elements and headers, or the program ends.
void mpi_asked_check(const PlaitComm *comm, int rank);
