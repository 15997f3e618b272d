// What ranks send each other in a collective: bytes of elements, without headers. The one place that says so: plans
// (program/traffic.h) and the simulator (machine/collective_time.h) ask it, and tests hold the wires to it
// (tests/comm/test_volume.c, tests/parity/test_bytes.c).
#pragma once
#include "comm/ranges.h"

typedef enum CommCarrier {
  COMM_BY_PROCESSES, // as process_*.c do it
  // As NCCL does it, over a ring in the order of the ranks; parts that go from rank to rank (gather, scatter,
  // all_to_all) go straight.
  COMM_BY_RING
} CommCarrier;

// A collective. elements: as comm_total of the call: of all buffers, where they have parts of one part. All ranks give
// and receive as much: of a call with counts (all_gather_v, all_to_all_v) it is what one rank sends one other.
typedef struct CommShape {
  CommCarrier by;
  CommKind kind;
  PlaitDtype dtype;
  Patterned ranks;
  int root;        // as CommCall.root: of a shift how far it goes
  double elements;
} CommShape;

double comm_volume(const CommShape *shape, int from, int to); // bytes from one rank to another

typedef struct CommVolume { double sent, received; } CommVolume;
CommVolume comm_volume_of(const CommShape *shape, int rank); // with all others
double comm_volume_mean(const CommShape *shape); // that a rank sends, on the average; without a loop over ranks
