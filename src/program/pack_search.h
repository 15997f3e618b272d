// The bounded search of pack.c.
#pragma once
#include "program/pack.h"

// Looks for a packing that ends below `end`, at best at `bound`, with at most about `effort` items looked at. Returns
// the lowest end found, and its offsets, or `end`, and leaves the offsets as they are.
int64_t pack_search(const PackProblem *problem, int64_t bound, int64_t end, int64_t effort, int64_t *offset);
