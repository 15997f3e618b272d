// Unsplit storage, a part of pass zero: each tensor lies whole on one data rank, for optimizers that need whole
// matrices (Shampoo, Muon).
#pragma once
#include "compile/parallel.h"

// The axes of which one rank is to own a parameter that MICRO sees placed as `seen`: those over which ZeRO would cut
// it. 0: none.
uint32_t owner_axes(const Parallel *parallel, const Placement *seen);
// For each Variable that is a parameter, with its storage as MICRO sees it, its owner's index on owner_axes. By size:
// the largest first, to the rank that has the fewest elements so far on the pipeline rank where it lives, so that ranks
// of one stage differ by at most their largest tensor. The same for every graph with the same parameters. malloc'ed.
int *unsplit_owners(const Graph *g, const Parallel *parallel);
