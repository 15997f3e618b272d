// The parts of plait explain that lie in separate files.
#pragma once
#include "parallel/parallel.h"
#include "ir/graph.h"
#include "sharding/mesh.h"

// Draws which ranks hold which part of every Variable whose name matches (names_match): its storage and its Copies.
// Returns how many Variables there are. The graph is that which zero leaves.
int explain_shards(const Graph *g, const Mesh *mesh, const char *names, FILE *out);

// Prints what the algorithms of every op that has some would cost, by the graph that place leaves, and which are taken.
// Returns how many it has printed.
int explain_algorithms(const Graph *g, const Mesh *mesh, const StepParallel *asked, FILE *out);

// Writes a page that steps through the Programs of a recipe (operands: its path, then key=value). beside (NULL:
// nothing): settings "key=value …" to show beside it, after those of the operands, or another recipe with its settings.
int explain_play(int count, char **operands, const char *path, const char *beside, Error *error);
