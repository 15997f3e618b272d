// Devices of a cluster that are not all alike (`islands:` of a cluster file). Rank r of a mesh is device r.
#pragma once
#include "machine/facts.h"
#include "sharding/mesh.h"

// The kind with the highest rate of products in a dtype.
const DeviceFacts *devices_fastest(const Cluster *cluster, Dtype dtype);
// Bytes that a run can have on the smallest device among the first `ranks`, of those at a pipeline coordinate (mesh
// NULL: at any).
double devices_room(const Cluster *cluster, int ranks, const Mesh *mesh, int coordinate);
// Of a CPU: ranks have any number of its cores, and those that wait help others.
int devices_share_cores(const Cluster *cluster);
// The number of devices on which this number of ranks can compute at the same time.
double devices_at_once(const Cluster *cluster, int ranks);
// FLOP/s of products of the first `ranks` devices together, by the data sheet; 0: one of them has no rate.
double devices_rate(const Cluster *cluster, int ranks, Dtype dtype);
// "12 ranks of A100 and 4 of H100".
void devices_text(const Cluster *cluster, int ranks, char *text, size_t size);
