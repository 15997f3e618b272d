// Seconds of collectives and transfers: α–β formulas over the levels of a cluster that a group of ranks spans.
#pragma once
#include "plan/facts.h"

typedef enum CollectiveKind {
  COLLECTIVE_ALL_REDUCE,
  COLLECTIVE_REDUCE_SCATTER,
  COLLECTIVE_ALL_GATHER,
  COLLECTIVE_ALL_TO_ALL,
  COLLECTIVE_BROADCAST, // and scatter, from one rank
  COLLECTIVE_REDUCE,    // and gather, to one rank
  COLLECTIVE_SHIFT,     // every rank sends to one and receives from one
  COLLECTIVE_KINDS
} CollectiveKind;
const char *collective_kind_name(CollectiveKind kind); // "all_reduce"
int collective_kind_by_name(const char *name);         // or -1

// Where the ranks of a group lie, and who else is on their links at the same time (plan/machine.h makes it).
typedef struct GroupOnLinks {
  int ranks;
  int span[MAX_LEVELS];     // of level l: how many of its units the group reaches inside of one unit of level l + 1;
                            // 1: it stays within one. The product is `ranks` where the group is a box
  int sharing[MAX_LEVELS];  // groups of the same axes that go through one port's link of level l at once (1: only this
                            // one)
} GroupOnLinks;

typedef enum CollectiveAlgorithm {
  ALGORITHM_NONE, // one rank
  ALGORITHM_RING, ALGORITHM_TREE, ALGORITHM_HIERARCHICAL, ALGORITHM_PAIRWISE, ALGORITHM_MEASURED
} CollectiveAlgorithm;
const char *collective_algorithm_name(CollectiveAlgorithm algorithm);

typedef struct CollectiveTime {
  double seconds;
  CollectiveAlgorithm algorithm;
  int level;              // the one whose link takes longest: that which bounds it
  double base, latency, transfer; // parts of the seconds
} CollectiveTime;

// bytes: of the whole tensor: what every rank has before an all_reduce, after an all_gather, before a reduce_scatter,
// and what a rank sends to all others and itself in an all_to_all; what the root sends to each in a broadcast; what
// each rank sends in a shift. The cheapest algorithm.
CollectiveTime collective_seconds(const Cluster *cluster, CollectiveKind kind, const GroupOnLinks *group, double bytes);

// A message between two ranks whose outermost level in common is `level`, while `sharing` messages go through the link.
double transfer_seconds(const Cluster *cluster, int level, int sharing, double bytes);
