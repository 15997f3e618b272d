// Placement: for every tensor dim an ordered list of mesh axes that shard it, plus a set of axes over which the value
// is still a partial sum, plus a set of axes of which one rank alone has it. Placements are data, arena-allocated and
// never changed once a tensor points at them.
//
// Over one axis of a list the dim may be cut in zigzag: what the axes before it leave is 2N equal chunks for its N
// ranks, and rank r has chunks r and 2N − 1 − r, one after the other in memory. Causal attention over the shards of a
// sequence is balanced that way (Dubey et al., "The Llama 3 Herd of Models", 2024). Axes after it cut the rank's memory
// in contiguous parts, so that a shard is at most two runs of global indices.
#pragma once
#include "sharding/mesh.h"
#include "ir/graph.h"
#include "op/op.h"

// zigzag: 1 + the position in `axis` of the axis over which the dim is cut in zigzag; 0: in contiguous parts over all.
typedef struct AxisList { int8_t n; int8_t axis[MAX_AXES_PER_DIM]; int8_t zigzag; } AxisList;

struct Placement {
  int rank;
  AxisList dim[MAX_RANK];
  // Storage shards that cut no dim: what `dim` leaves to a rank, one contiguous range of the whole, is cut by these
  // axes in rows. A row is an index of the first `merged` dims together; if these are all dims, each row of the last
  // dim is cut in `parts` equal rows. No axes: merged and parts are 0. See placement_flat.
  AxisList rows;
  int16_t merged;
  int parts;
  uint32_t partial; // set of axes: the tensor's value is the sum over them
  // Set of axes of whose ranks only number `owner` (mesh_index) has what the dims say; the others have none of it. 0:
  // all have.
  uint32_t owner_axes;
  int owner;
  // Blocks on their way around a ring: a rank has what the dims say of the rank `shift` places before it along the axis
  // `shift_axis` (cyclic; 0 < shift < its size). shift 0: its own, and shift_axis is 0.
  int shift_axis, shift;
  // Blocks that are broadcast: on all ranks of this set of axes lies what the dims say of the one of them that has the
  // number `fixed` (mesh_index). fixed_axes 0: its own, and fixed is 0.
  uint32_t fixed_axes;
  int fixed;
};

int placement_equal(const Placement *a, const Placement *b);
uint32_t placement_axes(const Placement *p); // all axes that shard a dim, or rows
// The rows of `like` as a dim: the shape (kv_heads 56, group 1, head_dim 128, embed 7168) with three merged dims is
// (7168, 1, 1, 7168), with four and 28 parts (200704, 1, 1, 256): rank, order and number of the elements are the same.
// Where `like` merges nothing, the shape as it is.
Shape placement_flat_shape(const Placement *like, const Shape *shape);
// A placement over the flat shape, without rows: dim 0 is cut by the lists of all merged dims, then by the placement's
// rows. It must have the rows of `like`, or none. The rank's memory is the same.
Placement placement_flat(const Placement *p, const Placement *like);
// Whether the first `merged` dims can be so merged: the ranks' parts are equal and each is one range of the whole.
int placement_merges(const Mesh *mesh, const Placement *p, const Shape *shape, int merged);
int placement_same_owner(const Placement *a, const Placement *b);
// 1 where a rank has what the dims say: everywhere, or on the owner only.
int placement_here(const Mesh *mesh, const Placement *p, int rank);
// The placement with its owner that a node's operands have, NULL where every rank has its part. That rank alone runs
// the node, and what the node gives to all ranks is a partial sum over the owner's axes. Collectives with a root are
// run by all, or where their input and their output have owners by the group of both.
const Placement *node_owner(const Graph *g, const Node *n);
int axis_list_equal(const AxisList *a, const AxisList *b);
// How many axes two lists begin with in common, cut in the same order.
int axis_list_prefix(const AxisList *a, const AxisList *b);
void axis_list_push(AxisList *list, int axis); // one more axis, which cuts in contiguous parts
void axis_list_take(AxisList *list, const AxisList *from,
                    int i);        // or axis i of another list, which cuts as it does there
int axis_list_pop(AxisList *list); // the last axis, which the list no longer has
uint32_t axis_list_axes(const AxisList *list); // as a set
int axis_list_zigzag_axis(const AxisList *list); // the axis over which it is cut in zigzag, or -1
int axis_list_shards(const Mesh *mesh, const AxisList *list);
// A divisor of the dim where shards are equal: their number, twice as many where the dim is cut in zigzag.
int axis_list_parts(const Mesh *mesh, const AxisList *list);
// Length of a shard of a dim of `size`: nested ceil(size / axis), the same on every rank.
int64_t axis_list_local(const Mesh *mesh, const AxisList *list, int64_t size);
// Where a rank's shard lies: IndexMap with offset, memory length and valid length.
IndexMap axis_list_map(const Mesh *mesh, const AxisList *list, int64_t size, int rank);

// The placement after a move by `distance` ranks along the axis (op SHIFT).
Placement placement_shifted(const Mesh *mesh, const Placement *p, int axis, int distance);
// The rank whose part a rank has: itself, but in a ring, and of a block that was broadcast.
int placement_source(const Mesh *mesh, const Placement *p, int rank);

// The same for dim d of a placed tensor; on ranks that are not its owner nothing is valid.
// The placement has no rows: of others, of placement_flat and its shape.
IndexMap placement_map(const Mesh *mesh, const Placement *p, int d, int64_t size, int rank);

// Local shape of a tensor under a placement; an owner's, where it has one.
void placement_local(const Mesh *mesh, const Placement *p, const Shape *shape, int64_t *local);
// 1 when this rank is the first of those that hold the same shard (all axes that neither shard nor own it at coordinate
// 0); along the pipeline axis the first of `coordinates` (NULL: all).
int placement_primary(const Mesh *mesh, const Placement *p, int rank, const StageSet *coordinates);

// "batch:dp kv_heads:tp partial:dp", "kv_heads:tp rows:dp", "vocab:tp owner:dp=1", "seq:cp~,tp" (cp in zigzag), "seq:cp
// shift:cp+2", "embed:tp fixed:tp=1"; nothing
// for a replicated tensor.
void placement_text(const Mesh *mesh, const Placement *p, const Shape *shape, char *text, size_t size);
// The same, as PlacementPrinter of ir/graph.h; context is the Mesh.
void placement_printer(const void *mesh, const Placement *p, const Shape *shape, char *text, size_t size);
