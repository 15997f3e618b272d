// Redistribution on one mesh: the collectives that turn one placement into another. Used by partition (as nodes);
// where meshes differ, boxes are copied instead (src/checkpoint).
#pragma once
#include "sharding/placement.h"

enum { MAX_REDISTRIBUTE_STEPS = 32 };

typedef struct RedistributeStep {
  Op op;         // a collective, or the slice that a rank keeps
  uint32_t axes; // set of mesh axes of the group
  int dim;       // scattered, gathered or sliced dim; -1 where none is
  int dim2;      // of ALL_TO_ALL: the dim that is gathered while `dim` is scattered
  int root;      // of REDUCE_TO, BROADCAST, GATHER_TO and SCATTER_FROM, in the group: the owner
  Placement to;  // placement after the step
} RedistributeStep;

// Whether no rank has both: they have owners, which on the axes of both are different ranks.
int placements_apart(const Mesh *mesh, const Placement *a, const Placement *b);

// Steps from → to, in order: sums first (scattered where the target is sharded by the same axis, reduced to the
// target's owner), then from the old owner scatters and a broadcast, what the new owner keeps of what all have, moves
// from dim to dim, gathers (to the new owner alone over its axes), slices. Nothing is ever resharded into partial, nor
// goes from one owner to another: PLAIT_INFEASIBLE, unless one of the owners owns it on more axes and is among the
// other's ranks.
// An axis that moves from the end of one dim's list to the end of another's is one all_to_all where both dims divide;
// elsewhere it is gathered and sliced again.
int redistribute_steps(const Mesh *mesh, const Shape *shape, const Placement *from, const Placement *to,
                       RedistributeStep *steps, Error *error);
