// Lowering of norms over a dim that is sharded, for layer_norm.c and rms_norm.c.
#pragma once
#include "op/op.h"

// Of a norm: nodes that give its outputs from x (…, e), gain (e) and bias (e) or -1; centred: it has a mean.
void norm_lower(Graph *g, const Node *like, uint32_t axes, int x, int gain, int bias, int centred, int *output);
// Of its gradient: inputs dy, x (…, e), gain (e), mean (…) or -1, rstd (…).
void norm_grad_lower(Graph *g, const Node *like, uint32_t axes, const int input[5], int *output);
// "BEFORE; complete 1 e 2 e": outputs 1 … are complete without factor e.
// Of a norm that adds first (NormAttr.sum): makes the sum, its last output. Returns what is to be normalised.
const Operand *norm_of_sum(const KernelCall *call);
int norm_grad_accumulate(Node *node);
int norm_grad_accumulated(const Node *node);
void norm_add_first(Node *node);
int norm_added_first(const Node *node);
void norm_complete_clause(char *text, size_t size, char e, int noutput, const char *before);
