// Parts of MATMUL for ops that apply a function to a product.
#pragma once
#include "op/op.h"

// The rule of a product with as many outputs as the node has; not linear: nothing of it may be a partial sum.
void matmul_rule(const Graph *g, const Node *node, int is_linear, char *text, size_t size);
// attr: a MatmulAttr, or what begins with one.
void matmul_work(const Operand *input, const Operand *output, const void *attr, OpWork *work);
