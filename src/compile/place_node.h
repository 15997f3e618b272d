// Places one node: which mesh axes shard each factor of its rule, and so its required and produced placements. Shared
// by place (MICRO), zero (BEGIN, END) and partition (lowered nodes).
#pragma once
#include "sharding/layout.h"

// Reads the placements of the node's inputs (and of outputs that are bound to placed Variables or fixed by their role)
// and writes node->want, node->give and the placement of every output that has none. A placement that an output has
// already is kept, and may differ from `give`. layout: says how the batch of MICRO's nodes is cut before anybody else
// proposes (layout_first_axes); NULL outside of MICRO, and of nodes whose operands are placed for each other already.
void place_node(Graph *g, int node, const Mesh *mesh, const Layout *layout);

// Places the outputs of a node that a lowering has appended and whose operands lie as blocks of a ring do: one axis
// cuts several of its factors (queries and keys), or blocks are shifted along it. It is computed as its operands lie,
// block by block, and complete. 0: it is not such a node.
int place_block(Graph *g, int node);

// A copy in the graph's arena.
const Placement *placement_new(Graph *g, const Placement *p);

// Copies every placement that the graph points at into its own arena, so that the graph it was made from may go.
void placements_adopt(Graph *g);
