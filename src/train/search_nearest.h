// Where no plan of a search fits: what is nearest, in a sentence.
#pragma once
#include "runtime/job.h"

typedef struct Nearest {
  char largest[32];     // what takes the most memory on the rank that needs the most: "activations"
  double largest_bytes;
  double bytes;         // that the rank needs in all
  int ranks;            // the fewest of the cluster, doubling, that would do; 0: none
} Nearest;

// Fills in all but `ranks`.
void nearest_read(const Job *job, Nearest *nearest);
// ranks: that were asked for. plan: "mesh.dp=8 parallel.zero=3". looked_at_all: nothing was left out for want of time.
// given: what is fixed, for the end of the sentence: "the keys that are given".
typedef struct NothingFits { int ranks, looked_at_all; const char *plan, *given; double room; } NothingFits;
int nearest_say(const Nearest *nearest, const NothingFits *where, Error *error); // PLAIT_INFEASIBLE
