// Prints what carries the messages of net from each rank to the others, as UCX says it. See net_comm.sh.
#include "base/error.h"
#include "comm/launcher.h"
#include "comm/net.h"
#include <stdio.h>

int main(void) {
  Error error = {0};
  PlaitWorld *world;
  PlaitComm *comm;
  char text[256];
  CHECK(!world_launched_create(WORLD_NET, 0, NET_WIRE_AUTO, &world, &error), "%s", error.message);
  CHECK(!plait_comm_world(world, plait_world_rank(world), &comm, &error));
  CHECK(!plait_barrier(comm, NULL, NULL));
  for (int r = 0; r < plait_world_size(world); r++) {
    net_carriers(world, r, text, sizeof text);
    if (r != plait_world_rank(world)) printf("%s\n", text);
  }
  plait_comm_destroy(comm);
  plait_world_destroy(world);
  return 0;
}
