// A tiny evaluator for tests: whole operands, and running a Graph's nodes in order with the reference kernels.
#pragma once
#include "op/op.h"

// A zeroed operand of the tensor's shape, not sharded; 64-byte aligned; caller frees data.
Operand operand_create(Dtype dtype, const Shape *shape);
// Allocates data for an operand whose sizes and maps are set.
void operand_allocate(Operand *x);

// One operand per tensor of the graph; data NULL where not computed. Owns the data.
typedef struct Values { const Graph *g; Operand *tensor; int count; } Values;
void values_start(Values *v, const Graph *g);
// Computes the outputs of nodes [from, to); their inputs must be there. Grows with the graph.
// The operand of a tensor, zeroed; a compact one has the rows of its mask, which must be there.
Operand values_create(const Values *v, int tensor);
void values_run(Values *v, int from, int to, const CallParameters *parameters);
void values_free(Values *v);
