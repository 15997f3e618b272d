// Where groups of ranks lie on a cluster.
#include "machine/machine.h"
#include "base/fault.h"
#include <stdlib.h>
#include <string.h>

// Devices in a unit of level l: one device at level 0, a node at level 1.
static int64_t unit_size(const Cluster *c, int level) {
  int64_t n = 1;
  for (int i = 0; i < level; i++) n *= c->level[i].count;
  return n;
}

int machine_level(const Cluster *c, int a, int b) {
  int level = -1;
  for (int l = 0; l < c->levels; l++)
    if (a / unit_size(c, l) != b / unit_size(c, l)) level = l;
  return level;
}

// How many units of level l there are among the ranks of one unit of level l + 1: of that which has the most. `member`
// ascends.
static int span_of(const Cluster *c, int level, const int *member, int n) {
  int64_t unit = unit_size(c, level), above = unit_size(c, level + 1);
  int most = 1, here = 1;
  for (int i = 1; i < n; i++) {
    if (member[i] / above != member[i - 1] / above) here = 1;
    else if (member[i] / unit != member[i - 1] / unit) here++;
    if (here > most) most = here;
  }
  return most;
}

// Devices that go through one port of a level: on a bus all of the unit above.
static int64_t devices_of_port(const Cluster *c, int level) {
  const LevelFacts *l = &c->level[level];
  if (l->kind == LEVEL_BUS) return unit_size(c, level + 1);
  int64_t devices = unit_size(c, level);
  return l->ports > 1 ? (devices / l->ports > 1 ? devices / l->ports : 1) : devices;
}

// Groups that have a rank among the first devices of the member's port, of which `leader` (ranks) says the group.
static int sharing_of(const Cluster *c, int level, int member, const int *leader, int ranks) {
  int64_t devices = devices_of_port(c, level), first = member / devices * devices;
  int groups = 0;
  for (int64_t r = first; r < first + devices && r < ranks; r++) {
    int seen = leader[r] < 0;
    for (int64_t q = first; q < r && !seen; q++) seen = leader[q] == leader[r];
    groups += !seen;
  }
  return FAULT(groups_have_links_alone, groups > 1 ? groups : 1, 1);
}

static GroupOnLinks links_of(const Cluster *c, const int *member, int n, const int *leader, int ranks) {
  GroupOnLinks group = {.ranks = n};
  for (int l = 0; l < c->levels; l++) {
    group.span[l] = span_of(c, l, member, n);
    group.sharing[l] = group.span[l] > 1 ? sharing_of(c, l, member[0], leader, ranks) : 1;
  }
  return group;
}

static int reaches_farther(const Cluster *c, const GroupOnLinks *a, const GroupOnLinks *b) {
  for (int l = c->levels - 1; l >= 0; l--)
    if (a->span[l] != b->span[l]) return a->span[l] > b->span[l];
  return 0;
}

// All groups of a mesh over the same axes.
typedef struct Groups {
  int size;
  int *offset; // (size) all groups are the first one, moved: how far their members lie from their lowest
  int *leader; // (ranks) the lowest rank of the group that a rank is in; -1: none
  int *member; // (size) room for one group
} Groups;

static Groups groups_make(const Mesh *mesh, uint32_t axes, const StageSet *coordinates) {
  size_t ranks = (size_t)mesh->ranks;
  Groups g = {0, xcalloc(ranks, sizeof(int)), xcalloc(ranks, sizeof(int)), xcalloc(ranks, sizeof(int))};
  g.size = mesh_group(mesh, 0, axes, coordinates, g.offset);
  memset(g.leader, -1, sizeof *g.leader * ranks);
  for (int r = 0; r < mesh->ranks; r++) { // r: rank with coordinate 0 on all of the axes
    if (mesh_index(mesh, r, axes)) continue;
    for (int i = 0; i < g.size; i++) g.leader[r + g.offset[i]] = r;
  }
  return g;
}

static void groups_free(Groups *g) {
  free(g->offset);
  free(g->leader);
  free(g->member);
}

static GroupOnLinks group_at(const Cluster *c, const Mesh *mesh, Groups *g, int leader) {
  for (int i = 0; i < g->size; i++) g->member[i] = leader + g->offset[i];
  return links_of(c, g->member, g->size, g->leader, mesh->ranks);
}

GroupOnLinks machine_group(const Cluster *c, const Mesh *mesh, uint32_t axes, const StageSet *coordinates,
                           int coordinate) {
  Groups g = groups_make(mesh, axes, coordinates);
  int pp = mesh_pipeline(mesh), crosses = pp >= 0 && axes >> pp & 1;
  GroupOnLinks worst = {.ranks = 0};
  for (int r = 0; r < mesh->ranks; r++) {
    if (mesh_index(mesh, r, axes) || (!crosses && mesh_pipeline_coordinate(mesh, r) != coordinate)) continue;
    GroupOnLinks group = group_at(c, mesh, &g, r);
    if (!worst.ranks || reaches_farther(c, &group, &worst)) worst = group;
  }
  groups_free(&g);
  return worst;
}

GroupOnLinks machine_group_of(const Cluster *c, const Mesh *mesh, uint32_t axes, const StageSet *coordinates,
                              int rank) {
  Groups g = groups_make(mesh, axes, coordinates);
  GroupOnLinks group = {.ranks = 1};
  if (g.leader[rank] >= 0) group = group_at(c, mesh, &g, g.leader[rank]);
  groups_free(&g);
  return group;
}

// The counterpart of a rank on another pipeline coordinate.
static int counterpart(const Mesh *mesh, int rank, int from, int to) {
  int stride = 1; // between ranks that differ by one on the pipeline axis
  for (int a = mesh->naxis - 1; a > mesh_pipeline(mesh); a--) stride *= mesh->axis[a].size;
  return rank + (to - from) * stride;
}

int machine_port(const Cluster *c, const Mesh *mesh, int level, int coordinate, int rank) {
  int each = mesh->ranks / mesh->axis[mesh_pipeline(mesh)].size, first = rank, shared = 0, before = 0;
  for (int r = 0; first < 0 && r < mesh->ranks; r++)
    if (mesh_pipeline_coordinate(mesh, r) == coordinate) first = r;
  int64_t devices = devices_of_port(c, level), begin = first / devices * devices;
  if (devices <= 1 || (each >= devices && each % devices == 0)) return -1; // they have whole ports
  for (int64_t r = begin; r < begin + devices && r < mesh->ranks; r++) {
    int own = mesh_pipeline_coordinate(mesh, (int)r) == coordinate;
    shared |= !own;
    before += own && r < first;
  }
  return shared ? (int)begin + before : -1;
}

MessagesOnLinks machine_messages(const Cluster *c, const Mesh *mesh, int from, int to, int rank) {
  MessagesOnLinks m = {.level = -1, .sharing = 1};
  int *ranks = xcalloc((size_t)mesh->ranks, sizeof *ranks);
  for (int r = 0; r < mesh->ranks; r++) {
    if (mesh_pipeline_coordinate(mesh, r) != from || (rank >= 0 && r != rank)) continue;
    int level = machine_level(c, r, counterpart(mesh, r, from, to));
    if (level > m.level) m.level = level;
  }
  for (int r = 0; r < mesh->ranks && m.level >= 0; r++) { // the port that most of them leave by
    if (mesh_pipeline_coordinate(mesh, r) != from) continue;
    int64_t devices = devices_of_port(c, m.level);
    if (rank >= 0 && r / devices != rank / devices) continue;
    int here = ++ranks[r / devices];
    if (here > m.sharing) m.sharing = here;
  }
  free(ranks);
  return m;
}
