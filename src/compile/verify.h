// Verification between passes.
#pragma once
#include "ir/graph.h"

// Checks everything that a pass may break: ids, order, shapes by the op's rule, what is known of the graph by its form,
// regions crossed only through Variables. `after` is the pass, for the message.
int graph_verify(const Graph *g, const char *after, Error *error);
