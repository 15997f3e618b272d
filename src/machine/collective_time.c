// Seconds of collectives: bandwidth of a group at each level, then the formula of each algorithm.
#include "machine/collective_time.h"
#include "base/fault.h"
#include "machine/measured_time.h"
#include <math.h>
#include <string.h>

static const char *const kinds[COLLECTIVE_KINDS] = {
#define COLLECTIVE(id, name, meaning) name,
#include "machine/collectives.def"
};
static const char *const algorithms[COLLECTIVE_ALGORITHMS] = {"none", "ring",     "tree",    "hierarchical",
                                                   "nvls", "pairwise", "measured"};

const char *collective_kind_name(CollectiveKind kind) { return kinds[kind]; }
const char *collective_algorithm_name(CollectiveAlgorithm algorithm) { return algorithms[algorithm]; }
int collective_kind_by_name(const char *name) {
  for (int i = 0; i < COLLECTIVE_KINDS; i++)
    if (!strcmp(kinds[i], name)) return i;
  return -1;
}

// At least 1: a level that a group does not use may be left at 0.
static double span_of(const GroupOnLinks *g, int level) { return g->span[level] > 1 ? g->span[level] : 1; }
static double sharing_of(const GroupOnLinks *g, int level) {
  return FAULT(sharing_ignored, g->sharing[level] > 1 ? g->sharing[level] : 1, 1);
}

// Ranks of the group in one unit of a level: at level 0 one, the device's.
static double ranks_in(const GroupOnLinks *g, int level) {
  double ranks = 1;
  for (int l = 0; l < level; l++) ranks *= span_of(g, l);
  return ranks;
}

static double devices_in(const Cluster *c, int level) {
  double devices = 1;
  for (int l = 0; l < level; l++) devices *= fmax(1, c->level[l].count);
  return devices;
}

static int outermost(const Cluster *c, const GroupOnLinks *g) {
  int top = 0;
  for (int l = 0; l < c->levels; l++)
    if (g->span[l] > 1) top = l;
  return top;
}

// bytes/s of one port for a library of collectives.
static double port_bandwidth(const Cluster *c, int level) {
  ConstantId share = level == 0 ? CONSTANT_LINK_SHARE : CONSTANT_NETWORK_SHARE;
  return c->level[level].bandwidth * constant(c->constants, share);
}

// Of a unit's ports those that `ranks` of its devices reach.
static double ports_reached(const Cluster *c, int level, double ranks) {
  double ports = fmax(1, c->level[level].ports);
  return fmin(ports, ranks * fmax(1, floor(ports / devices_in(c, level))));
}

double group_bandwidth(const Cluster *c, int level, const GroupOnLinks *g) {
  const LevelFacts *f = &c->level[level];
  double ports = fmax(1, f->ports), span = span_of(g, level), reached = ports_reached(c, level, ranks_in(g, level));
  double out = reached * port_bandwidth(c, level) / sharing_of(g, level);
  switch (f->kind) {
  case LEVEL_BUS: // one link for all units of the group on it
    return port_bandwidth(c, level) / span / sharing_of(g, level);
  case LEVEL_RING: // two ways round, if the ring closes: a group on a part of it comes back over the other way
    return span > 1 && span < f->count ? out / 2 : out;
  case LEVEL_MESH: { // a link, or some, to every other unit of the group
    double links = fmax(1, floor(ports / fmax(1, f->count - 1)));
    return span > 1 ? (span - 1) * links * out / ports : out;
  }
  default: return out / fmax(1, f->oversubscription);
  }
}

// A level's links carry bytes of the group if it spans the level, or a level further out: what leaves a pod leaves its
// node first. Not so level 0: a device's way to the network is not its way to its neighbours.
static int carries(const Cluster *c, const GroupOnLinks *g, int level) {
  return g->span[level] > 1 || (level > 0 && level < outermost(c, g));
}

static double base_of(const Cluster *c, int beyond) {
  return c->base[beyond] < 0 ? constant(c->constants, CONSTANT_COLLECTIVE_BASE) : c->base[beyond];
}

// Hops of one turn around a ring that visits unit after unit: of n - 1, as many at level l as the group has units of
// that level, less those of the next.
static double ring_latency(const Cluster *c, const GroupOnLinks *g) {
  double units = 1, latency = 0;
  for (int l = c->levels - 1; l >= 0; l--) {
    latency += units * (span_of(g, l) - 1) * c->level[l].latency;
    units *= span_of(g, l);
  }
  return latency;
}

// From a leaf of a binary tree to its root; each level has its own tree.
static double tree_latency(const Cluster *c, const GroupOnLinks *g) {
  double latency = 0;
  for (int l = 0; l < c->levels; l++) latency += ceil(log2(span_of(g, l))) * c->level[l].latency;
  return latency;
}

// The longest of `bytes` over the links of each level.
static void bound(CollectiveTime *t, const Cluster *c, const GroupOnLinks *g, double bytes) {
  for (int l = 0; l < c->levels; l++) {
    double seconds = carries(c, g, l) ? bytes / group_bandwidth(c, l, g) : 0;
    if (seconds > t->transfer) t->transfer = seconds, t->level = l;
  }
}

// Bytes that leave a unit of level l for one further out, through its own ports and those of the units in it.
static double way_out(const Cluster *c, const GroupOnLinks *g, int level) {
  double out = group_bandwidth(c, level, g);
  return level > 1 ? fmin(out, span_of(g, level - 1) * way_out(c, g, level - 1)) : out;
}

// Seconds of switches that add, for the bytes of an all_reduce.
static double nvls_transfer(const Cluster *c, const GroupOnLinks *g, int level, double bytes) {
  double plain = constant(c->constants, level == 0 ? CONSTANT_LINK_SHARE : CONSTANT_NETWORK_SHARE);
  return bytes / (group_bandwidth(c, level, g) / plain * constant(c->constants, CONSTANT_NVLS_SHARE));
}

// reduce_scatter inside, all_reduce across, all_gather inside, by rings: level after level, never two at once. `nvls`:
// switches that add take the place of the rings of their level.
static void hierarchical(CollectiveTime *t, const Cluster *c, const GroupOnLinks *g, double bytes, int turns,
                         int nvls) {
  double longest = 0;
  int top = outermost(c, g);
  for (int l = 0; l < c->levels; l++) {
    double span = span_of(g, l), seconds = 0;
    int adds = nvls && c->level[l].reduces && span > 1;
    if (adds) seconds = nvls_transfer(c, g, l, bytes);
    else if (carries(c, g, l)) seconds = turns * bytes * (span - 1) / span / way_out(c, g, l);
    if (span > 1 && l < top) t->base += turns * base_of(c, l > 0);
    t->transfer += seconds;
    t->latency += adds ? constant(c->constants, CONSTANT_NVLS_LATENCY) : turns * (span - 1) * c->level[l].latency;
    if (seconds > longest) longest = seconds, t->level = l;
  }
}

// Every rank sends a part to every other. Messages that leave a unit of level l go through its ports there.
static void pairwise(CollectiveTime *t, const Cluster *c, const GroupOnLinks *g, double bytes) {
  double n = g->ranks;
  for (int l = 0; l < c->levels; l++) {
    double inside = ranks_in(g, l), others = l == 0 ? span_of(g, 0) - inside : n - inside;
    const LevelFacts *f = &c->level[l];
    double way = f->kind == LEVEL_RING ? fmax(1, span_of(g, l) / 4) : 1; // links that a message passes, in the mean
    double seconds = carries(c, g, l) ? way * bytes / n * inside * others / group_bandwidth(c, l, g) : 0;
    if (seconds > t->transfer) t->transfer = seconds, t->level = l;
    t->latency += (ranks_in(g, l + 1) - inside) * f->latency;
  }
}

// A rank's own way out of its unit of a level.
static double rank_bandwidth(const Cluster *c, int level, double sharing) {
  const LevelFacts *f = &c->level[level];
  double ports = f->kind == LEVEL_BUS ? 1 : ports_reached(c, level, 1);
  if (f->kind == LEVEL_RING) ports = fmax(1, ports / 2);
  if (f->kind == LEVEL_MESH) ports = fmax(1, floor(ports / fmax(1, f->count - 1)));
  return ports * port_bandwidth(c, level) / fmax(1, f->oversubscription) / fmax(1, sharing);
}

// Around a ring of the ranks: one message crosses a unit's border while the others stay inside. On a bus all meet.
static void shift(CollectiveTime *t, const Cluster *c, const GroupOnLinks *g, double bytes) {
  for (int l = 0; l < c->levels; l++) {
    if (!carries(c, g, l)) continue;
    double meet = c->level[l].kind == LEVEL_BUS ? span_of(g, l) : 1;
    double seconds = bytes / rank_bandwidth(c, l, meet * sharing_of(g, l));
    if (seconds > t->transfer) t->transfer = seconds, t->level = l;
  }
  t->latency = c->level[outermost(c, g)].latency;
}

// Turns around the ring, or up and down the tree: 2 for an all_reduce.
static int turns_of(CollectiveKind kind) { return kind == COLLECTIVE_ALL_REDUCE ? 2 : 1; }

// Not all kinds have all algorithms, and not all switches add.
static int has(const Cluster *c, const GroupOnLinks *g, CollectiveKind kind, CollectiveAlgorithm a) {
  int parts = kind <= COLLECTIVE_ALL_GATHER, root = kind == COLLECTIVE_BROADCAST || kind == COLLECTIVE_REDUCE;
  switch (a) {
  case COLLECTIVE_BY_RING: return parts || root || kind == COLLECTIVE_SHIFT;
  case COLLECTIVE_BY_TREE: return root || kind == COLLECTIVE_ALL_REDUCE;
  case COLLECTIVE_BY_HIERARCHICAL: return parts;
  case COLLECTIVE_BY_NVLS: {
    int adds = 0;
    for (int l = 0; l < c->levels; l++) adds |= c->level[l].reduces && g->span[l] > 1;
    return adds && kind == COLLECTIVE_ALL_REDUCE;
  }
  case COLLECTIVE_BY_PAIRWISE: return kind == COLLECTIVE_ALL_TO_ALL;
  default: return 0;
  }
}

CollectiveTime collective_by(const Cluster *c, CollectiveKind kind, CollectiveAlgorithm algorithm,
                             const GroupOnLinks *g, double bytes) {
  CollectiveTime t = {.algorithm = algorithm, .level = outermost(c, g)};
  double n = g->ranks, turns = turns_of(kind);
  t.base = base_of(c, t.level > 0);
  if (!has(c, g, kind, algorithm)) return t.seconds = INFINITY, t;
  int root = kind == COLLECTIVE_BROADCAST || kind == COLLECTIVE_REDUCE;
  if (algorithm == COLLECTIVE_BY_HIERARCHICAL || algorithm == COLLECTIVE_BY_NVLS) {
    hierarchical(&t, c, g, bytes, turns_of(kind), algorithm == COLLECTIVE_BY_NVLS);
  } else if (algorithm == COLLECTIVE_BY_PAIRWISE) {
    pairwise(&t, c, g, bytes);
  } else if (kind == COLLECTIVE_SHIFT) {
    shift(&t, c, g, bytes);
  } else if (algorithm == COLLECTIVE_BY_TREE) { // two trees with half each: a rank sends all bytes up and down
    bound(&t, c, g, turns * bytes / constant(c->constants, CONSTANT_TREE_SHARE));
    t.latency = turns * tree_latency(c, g);
  } else {
    double times = FAULT(ring_all_reduce_once, turns, 1);
    bound(&t, c, g, root ? bytes : times * (n - 1) / n * bytes);
    t.latency = turns * ring_latency(c, g);
  }
  t.seconds = t.base + t.latency + t.transfer;
  return t;
}

// Nodes: units of the innermost level's whole that the group reaches.
static int nodes_of(const Cluster *c, const GroupOnLinks *g) {
  double nodes = 1;
  for (int l = 1; l < c->levels; l++) nodes *= span_of(g, l);
  return (int)nodes;
}

CollectiveTime collective_seconds(const Cluster *c, CollectiveKind kind, const GroupOnLinks *g, double bytes) {
  if (g->ranks <= 1 || c->levels == 0) return (CollectiveTime){.algorithm = COLLECTIVE_BY_NONE};
  // Groups that share a port have it in turn: each waits as long as if it moved the bytes of all.
  double most = 1;
  for (int l = 0; l < c->levels; l++)
    if (carries(c, g, l)) most = fmax(most, sharing_of(g, l));
  double seconds;
  if (measured_seconds(c, kinds[kind], g->ranks, nodes_of(c, g), bytes * most, &seconds))
    return (CollectiveTime){
        .seconds = seconds, .algorithm = COLLECTIVE_BY_MEASURED, .level = outermost(c, g), .transfer = seconds};
  CollectiveTime best = {.seconds = INFINITY};
  for (int a = COLLECTIVE_BY_RING; a <= COLLECTIVE_BY_PAIRWISE; a++) {
    CollectiveTime t = collective_by(c, kind, a, g, bytes);
    if (t.seconds < best.seconds) best = t;
  }
  return best;
}

double transfer_seconds(const Cluster *c, int level, int sharing, double bytes) {
  if (c->levels == 0) return 0;
  double slowest = 0;
  for (int l = level > 0 ? 1 : 0; l <= level && l < c->levels; l++)
    slowest = fmax(slowest, bytes / rank_bandwidth(c, l, sharing));
  return base_of(c, level > 0) + c->level[level].latency + slowest;
}
