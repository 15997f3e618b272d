// Ranks on machines: which links of a cluster a group of ranks uses, and which groups are on them at the same time.
// Rank r of a mesh is device r of the cluster, counted from the inside out.
#pragma once
#include "machine/collective_time.h"
#include "sharding/mesh.h"

// The group of a collective over `axes` (bits), and along the pipeline axis over `coordinates` (NULL: all of them),
// among those that ranks of the pipeline coordinate `coordinate` belong to: the one that reaches farthest, while all
// others like it communicate as well.
GroupOnLinks machine_group(const Cluster *cluster, const Mesh *mesh, uint32_t axes, const StageSet *coordinates,
                           int coordinate);
// That of one rank.
GroupOnLinks machine_group_of(const Cluster *cluster, const Mesh *mesh, uint32_t axes, const StageSet *coordinates,
                              int rank);

// A message from each rank of one pipeline coordinate to its counterpart on another one: the outermost level that any
// of them crosses, and how many messages go through one port of it at once. rank: only its own message (-1: all).
typedef struct MessagesOnLinks { int level, sharing; } MessagesOnLinks;
MessagesOnLinks machine_messages(const Cluster *cluster, const Mesh *mesh, int from, int to, int rank);

// The port of a level by which messages of a pipeline coordinate leave a unit, where other coordinates have ranks that
// use it too: the same number for those whose messages meet there; -1: nobody else has. rank: of one (-1: its first
// one). Messages that the ranks of one coordinate send at once are in machine_messages.
int machine_port(const Cluster *cluster, const Mesh *mesh, int level, int coordinate, int rank);

// The outermost level that two devices do not share: 0 inside of the innermost. -1: they are one.
int machine_level(const Cluster *cluster, int a, int b);
