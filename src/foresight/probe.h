// Measuring this machine: what kernels of small models take on it, and collectives between its ranks, as a cluster
// file that predictions read.
#pragma once
#include "machine/cluster.h"
#include "recipe/recipe.h"
#include "runtime/launch.h"

typedef struct ProbeOptions {
  double seconds;             // about so long; at least one pass over all shapes
  bool quick;                 // fewer shapes
  const char *recipe;         // NULL; or the path of a recipe: its model's own shapes too
  int keys;
  char **key;                 // that override the recipe's ("batch.micro=4")
  const Launch *launch; // NULL or without a world: ranks are threads; else they are processes, each of which calls
  FILE *out;                  // progress, a line that is written again and again; NULL: none
} ProbeOptions;

// Where ranks are processes all of them get a cluster, and only rank 0's has the kernels of one rank alone.
// The caller frees the cluster. PLAIT_NO_MEMORY, PLAIT_FAILED; PLAIT_INTERRUPTED after a signal.
int probe(const ProbeOptions *options, Cluster **out, Error *error);

// The measurements that are kept of this machine (machine/cluster_machine.h). Where there is nothing, or it is damaged,
// measures, which takes a minute and is said on stderr. The caller frees the cluster.
int probe_kept(Cluster **out, Error *error);
// Measures, and keeps the result in place of what is kept. PLAIT_BAD_INPUT: no folder is known for it.
int probe_keep(const ProbeOptions *options, Cluster **out, Error *error);
