// Which parameters of a graph may be cut over tp, for the search of a plan. Parameters that are alike are cut alike:
// those of one shape, read by the same op, whose other operands come from the same ops and whose results are read by
// the same. In a transformer these are the matrices of one kind in all blocks. Other placements follow by the rules of
// the ops (plait_graph_shard), so a few words place a whole model.
#pragma once
#include "api/graph_build.h"

typedef struct CutKind { int dims, members; int64_t size[MAX_RANK]; } CutKind; // parameters that are cut alike

typedef struct Cuts {
  Vec(CutKind) kind;
  Vec(int) kind_of; // by Variable of the graph; -1: it is not cut
} Cuts;

// Parameters with two dims and more that have no placement of the user's.
void cuts_create(const PlaitGraph *graph, Cuts *cuts);
void cuts_free(Cuts *cuts);

// Does `ranks` divide this dim of the kind?
int cuts_divide(const Cuts *cuts, int kind, int dim, int ranks);
// The placements of parameters that follow from a choice of a dim for each kind (-1: whole). Writes to placement, which
// has room for all Variables, and returns how many; names are the graph's.
int cuts_placements(const Cuts *cuts, const PlaitGraph *graph, const signed char *dim, PlaitPlacement *placement);
