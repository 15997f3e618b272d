// Owners, a part of pass zero: unsplit storage, in which each tensor lies whole on one data rank, and the ranks that
// make what an update needs whole (Muon's orthogonal matrices).
#pragma once
#include "parallel/parallel.h"

// The axes of which one rank is to own a parameter that MICRO sees placed as `seen`: those over which ZeRO would cut
// it. 0: none.
uint32_t owner_axes(const Parallel *parallel, const Placement *seen);
// For each Variable that is a parameter, with its storage as MICRO sees it, its owner's index on owner_axes. By size:
// the largest first, to the rank that has the fewest elements so far on the pipeline rank where it lives, so that ranks
// of one stage differ by at most their largest tensor. The same for every graph with the same parameters. malloc'ed.
int *unsplit_owners(const Graph *g, const Parallel *parallel);

// For each Variable: where the op of its update that needs it whole runs (ROLE_WHOLE_MATRIX), one rank of all axes that
// cut its matrices or repeat them; NULL: where it is stored. An axis that cuts only what the op takes in parts
// (experts) stays. The longest first, by FLOPs, to the rank that has the fewest so far; where storage has an owner, to
// one of its ranks. Storage must be known. Writes Node.round of these ops and of the nodes before and after them:
// matrices that their owners make side by side, as many as there are owners or as fit into some memory. malloc'ed.
const Placement **matrix_owners(Graph *g, const Parallel *parallel);
