// ranks.h over processes: each is one rank; a test of n ranks runs on the first n, tests of more than there are pass.
#include "base/error.h"
#include "ranks.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A test program's only world: MPI can be initialised once a process.
static PlaitWorld *world;
static PlaitComm *everyone;

static void leave(void) {
  plait_comm_destroy(everyone);
  plait_world_destroy(world);
}

static void join(void) {
  Error error = {0};
  if (world) return;
  CHECK(plait_world_launched_create(&world, &error) == 0, "%s", error.message);
  CHECK(plait_comm_world(world, plait_world_rank(world), &everyone, &error) == 0, "%s", error.message);
  atexit(leave);
}

int ranks_fail(Ranks *ranks, int rank, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(ranks->messages[rank], sizeof ranks->messages[rank], format, arguments);
  va_end(arguments);
  return 1;
}

int ranks_can_fail(void) { return 0; }

int ranks_run(Ranks *ranks, int n, RankFunction function, void *context, int quiet) {
  memset(ranks, 0, sizeof *ranks);
  join();
  int rank = plait_world_rank(world), list[64];
  if (n > plait_world_size(world) || rank >= n) return 0;
  Error error = {0};
  PlaitComm *comm;
  ranks->n = n;
  ranks->world = world;
  ranks->context = context;
  for (int r = 0; r < n; r++) list[r] = r;
  CHECK(plait_comm_create(everyone, list, n, &comm, &error) == 0, "%s", error.message);
  int code = function(ranks, comm, rank);
  if (code < 0) ranks_fail(ranks, rank, "%s", plait_comm_error(comm));
  if (code) printf("rank %d of %d: %s\n", rank, n, ranks->messages[rank]);
  if (code > 0) plait_world_abort(world, ranks->messages[rank]); // the others must not wait for it
  plait_comm_destroy(comm);
  return code != 0;
}
