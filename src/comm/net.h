// The net wire: ranks are processes that find each other by a TCP address, and talk by shared memory (UCX) or Unix
// sockets on one machine, and by TCP between machines; or by UCX alone, with InfiniBand where UCX_NET_DEVICES names it,
// which nobody has tried yet. Its failures are errors: a rank that dies makes the world fail, and a smaller world can
// be made in the same process.
#pragma once
#include "base/error.h"
#include "comm/launcher.h"
#include "plait/comm.h"
#include <stdbool.h>

typedef struct NetOptions {
  int rank, ranks;
  const char *host; // of rank 0, a name or a number
  int port;         // the first that rank 0 tries to listen at
  const char *id;   // of the run: ranks of another one are not let in
  double silence;   // seconds without a pulse after which a rank counts as dead; 0: NET_SILENCE
  double patience;  // seconds that the ranks wait for each other; 0: NET_PATIENCE
  double notice;    // seconds after which a rank that waits prints for whom, once; 0: NET_NOTICE
  const char *said; // by what the number of ranks is known, for that line: "WORLD_SIZE says 4 tasks"; may be NULL
  bool several;     // the ranks are known to be on several machines: the host must not be loopback's
  NetWireChoice wire; // run.wire; AUTO: as PLAIT_WIRE says
} NetOptions;

enum { NET_SILENCE = 5, NET_PATIENCE = 120, NET_NOTICE = 5, NET_MOST_RANKS = 1 << 14 };

// Joins the world; called by all of its ranks, which wait for each other here. PLAIT_BAD_INPUT: run.wire is ucx
// in a build without it, or differs between ranks; an address that is not this machine's (neither loopback, nor a
// secret, nor PLAIT_INSECURE); PLAIT_FAILED: not all ranks came.
int net_world_create(const NetOptions *options, PlaitWorld **world, Error *error);

// For tests: connections and messages of strangers that this rank has dropped; the address of its worker of UCX, of at
// most so many bytes (with no call under way).
uint64_t net_strangers(PlaitWorld *world);
size_t net_address(PlaitWorld *world, void *address, size_t most);

const char *net_version(void); // of UCX; NULL: there is none, or it cannot be loaded
// What carries messages to a rank: "unix", "tcp", or as UCX calls it: "sysv/memory". For tests. With no call under way.
void net_carriers(PlaitWorld *world, int rank, char *text, size_t size);
