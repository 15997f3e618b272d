// Links between pairs of ranks, as messages between them measure them.
#pragma once
#include "base/vec.h"
#include "machine/facts.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LINK_HOST = 64 };

typedef struct LinkPair {
  int a, b;
  double small, large; // seconds that a message of few and one of many bytes takes one way
} LinkPair;

typedef struct LinkPairs {
  int ranks;
  char (*host)[LINK_HOST]; // (ranks) the machine of each
  Vec(LinkPair) pair;
  int local;               // ranks are threads of this process
  bool all;                // of all ranks; else of some: each rank with those 1, 2, 4, 8 … further
} LinkPairs;

// Which pairs to measure. The hosts are still to be filled in. link_pairs_free.
LinkPairs link_pairs_choose(int ranks);
void link_pairs_free(LinkPairs *pairs);
static inline bool link_pair_crosses(const LinkPairs *p, const LinkPair *pair) {
  return strncmp(p->host[pair->a], p->host[pair->b], LINK_HOST) != 0;
}
int link_hosts(const LinkPairs *pairs, int ranks); // machines of the first `ranks` ranks

// Latency and bandwidth of level 0 from pairs on one machine, and of level 1 from pairs on two: medians, so that one
// bad link does not stand for all. A level without pairs stays as it is. large: bytes of the large message.
void link_pairs_facts(const LinkPairs *pairs, double large, Cluster *cluster);
// Names the pairs whose large message takes half as long again as the median of their level, the slowest first, or the
// ranks whose every pair does. Returns how many lines.
int link_pairs_outliers(const LinkPairs *pairs, FILE *out);
