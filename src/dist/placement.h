// Placement: for every tensor dim an ordered list of mesh axes that shard it, plus a set of axes over which the value is
// still a partial sum. Placements are data, arena-allocated and never changed once a tensor points at them.
#pragma once
#include "dist/mesh.h"
#include "graph/graph.h"
#include "op/op.h"

typedef struct AxisList { int8_t n; int8_t axis[MAX_AXES_PER_DIM]; } AxisList;

struct Placement {
  int rank;
  AxisList dim[MAX_RANK];
  uint32_t partial; // set of axes: the tensor's value is the sum over them
};

int placement_equal(const Placement *a, const Placement *b);
uint32_t placement_axes(const Placement *p); // all axes that shard a dim
int axis_list_equal(const AxisList *a, const AxisList *b);
int axis_list_shards(const Mesh *mesh, const AxisList *list);
// Length of a shard of a dim of `size`: nested ceil(size / axis), the same on every rank.
int64_t axis_list_local(const Mesh *mesh, const AxisList *list, int64_t size);
// Where a rank's shard lies: IndexMap with offset, memory length and valid length.
IndexMap axis_list_map(const Mesh *mesh, const AxisList *list, int64_t size, int rank);

// Local shape of a tensor under a placement.
void placement_local(const Mesh *mesh, const Placement *p, const Shape *shape, int64_t *local);
// 1 when this rank is the first of those that hold the same shard (all axes that do not shard it at coordinate 0);
// along "pp" the first of `coordinates` (bits; 0: all).
int placement_primary(const Mesh *mesh, const Placement *p, int rank, uint64_t coordinates);

// "batch:dp kv_heads:tp partial:dp"; nothing for a replicated tensor.
void placement_text(const Mesh *mesh, const Placement *p, const Shape *shape, char *text, size_t size);
// As PlacementPrinter of graph/graph.h; context is the Mesh. Dims by number.
void placement_printer(const void *mesh, const Placement *p, char *text, size_t size);
