// all_reduce by chains of groups of ranks has the bits of the direct one (tests/comm/chains.h).
#include "base/error.h"
#include "chains.h"
#include "comm/comm.h"
#include <stdio.h>

int main(void) {
  Error error = {0};
  PlaitWorld *world;
  PlaitComm *comm;
  char text[512] = "";
  CHECK(!plait_world_launched_create(&world, &error), "%s", error.message);
  CHECK(!plait_comm_world(world, plait_world_rank(world), &comm, &error), "%s", error.message);
  int code = chains_check(world, comm, text, sizeof text);
  if (code) printf("rank %d: %s\n", plait_world_rank(world), text);
  if (code > 0) plait_world_abort(world, text); // the others must not wait for it
  plait_comm_destroy(comm);
  plait_world_destroy(world);
  return code != 0;
}
