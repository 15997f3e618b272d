// ATTENTION and ATTENTION_GRAD over a ring of ranks: functions that expand them (OpDef).
#pragma once
#include "op/op.h"

// `axes`: the one axis that cuts queries and keys alike; ranks: how many are on it.
void attention_ring_lower(Graph *g, const Node *node, uint32_t axes, int ranks, const int *input, int *output);
void attention_grad_ring_lower(Graph *g, const Node *node, uint32_t axes, int ranks, const int *input, int *output);
