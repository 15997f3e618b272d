// A build without UCX: the error when net is asked for.
#ifndef PLAIT_UCX
#include "comm/net.h"

int net_is_built(void) { return 0; }
const char *net_version(void) { return NULL; }
uint64_t net_strangers(PlaitWorld *world) { return 0; }
size_t net_address(PlaitWorld *world, void *address, size_t most) { return 0; }
void net_carriers(PlaitWorld *world, int rank, char *text, size_t size) { *text = 0; }

int net_world_create(const NetOptions *options, PlaitWorld **world, Error *error) {
  *world = NULL;
  return error_set(error, PLAIT_BAD_INPUT,
                   "run.comm: net needs UCX, without which this plait was built; install it (on Debian libucx-dev) and "
                   "build again, with -DPLAIT_UCX=ON to be sure");
}
#endif
