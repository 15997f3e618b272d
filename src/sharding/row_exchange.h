// Rows of a compact tensor (ir/graph.h) that go to the ranks of their experts, or back: which axes do, and how the
// ranks of these divide the tokens.
#pragma once
#include "op/attributes.h"
#include "sharding/placement.h"

// before, after: placements of the exchange itself. Further steps come before the way to experts, and after the way
// back.
typedef struct RowExchange { uint32_t axes; RowParts parts; Placement before, after; } RowExchange;

// 1: there is one to do from one placement to another. All axes that cut batch or sequence on one side and experts on
// the other move in one call. 0: there is none. -1: there is, but it cannot be one call: the axes must come last in
// the list of the experts, in the mesh's order, and those that cut the batch before those that cut the sequence.
int row_exchange(const Mesh *mesh, const Placement *from, const Placement *to, RowExchange *e);
