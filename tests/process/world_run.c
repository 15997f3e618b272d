// plait_world_run under mpirun: world_run RANKS [fail]. Prints the sum over ranks of 1 + rank, from rank 0; then tries
// a second time, which must be refused. With "fail" the last rank fails. See mpi_world_run.sh.
#include "plait/comm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add(PlaitComm *comm, void *argument, PlaitError *error) {
  int64_t x = 1 + plait_comm_rank(comm);
  if (argument && plait_comm_rank(comm) == plait_comm_size(comm) - 1) {
    snprintf(error->message, sizeof error->message, "the disk is full");
    return PLAIT_FAILED;
  }
  int code = plait_all_reduce(comm, &(PlaitBuffer){&x, &x, 1}, 1, PLAIT_INT64, PLAIT_SUM, NULL, NULL);
  if (!code && plait_comm_rank(comm) == 0) printf("%d ranks: %d\n", plait_comm_size(comm), (int)x);
  return code;
}

int main(int argc, char **argv) {
  PlaitError error = {0};
  int ranks = argc > 1 ? atoi(argv[1]) : 0;
  int code = plait_world_run(ranks, add, argc > 2 ? argv[2] : NULL, &error);
  if (code) return fprintf(stderr, "%s\n", error.message), code == PLAIT_BAD_INPUT ? 2 : 1;
  code = plait_world_run(ranks, add, NULL, &error);
  fprintf(stderr, "again: %s\n", code ? error.message : "works");
  return 0;
}
