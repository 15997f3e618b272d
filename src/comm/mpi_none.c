// A build without MPI: the error when MPI is asked for.
#ifndef PLAIT_MPI
#include "base/error.h"
#include "plait/comm.h"

int plait_world_mpi_create(PlaitWorld **world, PlaitError *error) {
  *world = NULL;
  return error_set(error, PLAIT_BAD_INPUT,
                   "this plait was built without MPI; install one (on Debian libopenmpi-dev) and build again, with "
                   "-DPLAIT_MPI=ON to be sure");
}
#endif
