// Where no plan of a search fits: what is nearest, in a sentence.
#pragma once
#include "machine/facts.h"
#include "runtime/job.h"

typedef struct Nearest {
  char largest[32];     // what takes the most memory on the rank that needs the most: "activations"
  double largest_bytes;
  double bytes;         // that the rank needs in all
  int ranks;            // the fewest of such a device, doubling, that would do; 0: none
} Nearest;

// Fills in all but `ranks`.
void nearest_read(const Job *job, Nearest *nearest);
// The cluster with more of its outermost units, so that it has this many devices or more; borrows the cluster. The next
// number of ranks to try after `ranks`, which is twice as many; 0: no more are tried, as they are beyond a few times
// what the cluster has, or nobody knows what devices there would be.
Cluster nearest_enlarged(const Cluster *cluster, int64_t devices);
int nearest_more_ranks(const Cluster *cluster, int ranks);

// ranks: that were asked for. plan: "mesh.dp=8 parallel.zero=3". looked_at_all: nothing was left out for want of time.
// given: what is fixed, for the end of the sentence: "the keys that are given". precision: for which a device must have
// a rate of products.
typedef struct NothingFits {
  int ranks, looked_at_all;
  const char *plan, *given;
  double room;
  const Cluster *cluster;
  Dtype precision;
} NothingFits;
// PLAIT_INFEASIBLE. The sentence names the nearest plan, what overflows and by how much, and the smallest machine that
// would do: the number of ranks of this device, the memory for this number of ranks, and a shipped cluster whose device
// has it.
int nearest_say(const Nearest *nearest, const NothingFits *where, Error *error);
