// Seconds of collectives and transfers: α–β formulas over the levels of a cluster that a group of ranks spans. The
// constants are those of the cluster.
//
// A collective takes base + Σ hops·latency + the slowest link's bytes / bandwidth. Ring and pairwise exchange: Thakur,
// Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, 2005; double binary trees:
// Sanders, Speck and Träff, 2009, as NCCL uses them.
//
// Bytes that a unit of level l (a device at level 0, a node at level 1) sends out in a second for one group:
//   ports it reaches · bandwidth · share that NCCL gets of a link / oversubscription / sharing.
// A rank reaches the ports nearest to it: ports / devices of the unit, at least one. With 8 ports and 8 devices in a
// node, a group with one rank a node has one port, and 8 such groups at once have one each; a group alone has all 8
// only if it has 8 ranks in the node. With 4 ports for 8 devices two such groups share a port (sharing 2).
#pragma once
#include "machine/facts.h"

typedef enum CollectiveKind {
#define COLLECTIVE(id, name, meaning) COLLECTIVE_##id,
#include "machine/collectives.def"
  COLLECTIVE_KINDS
} CollectiveKind;
const char *collective_kind_name(CollectiveKind kind); // "all_reduce"
int collective_kind_by_name(const char *name);         // or -1

// Where the ranks of a group lie, and who else is on their links at the same time (machine/machine.h makes it).
typedef struct GroupOnLinks {
  int ranks;
  int span[MAX_LEVELS];     // of level l: how many of its units the group reaches inside of one unit of level l + 1;
                            // 1: it stays within one. The product is `ranks` where the group is a box
  int sharing[MAX_LEVELS];  // groups of the same axes that go through one port's link of level l at once (1: only this
                            // one; 0 is taken as 1). On a bus: groups on the bus
} GroupOnLinks;

typedef enum CollectiveAlgorithm {
  COLLECTIVE_BY_NONE, // one rank
  COLLECTIVE_BY_RING, COLLECTIVE_BY_TREE, COLLECTIVE_BY_HIERARCHICAL,
  COLLECTIVE_BY_NVLS, // hierarchical, and switches add where a level's `reduces` is set
  COLLECTIVE_BY_PAIRWISE, COLLECTIVE_BY_MEASURED,
  COLLECTIVE_ALGORITHMS
} CollectiveAlgorithm;
const char *collective_algorithm_name(CollectiveAlgorithm algorithm);

typedef struct CollectiveTime {
  double seconds;         // base + latency + transfer
  CollectiveAlgorithm algorithm;
  int level;              // the one whose link takes longest: that which bounds it
  double base, latency, transfer; // parts of the seconds; of a measured one all is transfer
} CollectiveTime;

// bytes: of the whole tensor: what every rank has before an all_reduce, after an all_gather, before a reduce_scatter,
// and what a rank sends to all others and itself in an all_to_all; what the root sends to each in a broadcast (in a
// scatter: to all); what each rank sends in a shift. The cheapest algorithm; where the cluster has measurements of this
// kind, ranks and nodes, these, interpolated between their logarithms.
CollectiveTime collective_seconds(const Cluster *cluster, CollectiveKind kind, const GroupOnLinks *group, double bytes);

// By one algorithm, whatever was measured. seconds are infinite where the kind has no such algorithm.
CollectiveTime collective_by(const Cluster *cluster, CollectiveKind kind, CollectiveAlgorithm algorithm,
                             const GroupOnLinks *group, double bytes);

// bytes/s that all ranks of the group in one unit of level l send out of it together, with nobody else but `sharing`.
double group_bandwidth(const Cluster *cluster, int level, const GroupOnLinks *group);

// A message between two ranks whose outermost level in common is `level`, while `sharing` messages go through the link.
double transfer_seconds(const Cluster *cluster, int level, int sharing, double bytes);
