// The facts by which the algorithms of a placed node are judged, for `plait explain --algorithms` and tests of costs.
#pragma once
#include "parallel/parallel.h"

// The sizes of the node's factors on one rank, were it not for the axes of context parallelism; `inner`:
// parallel.ulysses.
AlgorithmCall algorithm_call_of(const Graph *g, const Node *node, const Mesh *mesh, int inner);
