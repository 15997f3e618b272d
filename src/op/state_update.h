// Optimizers' ops on moments that are codes: STATE_UPDATE and STATE_SCALES (state_update.c).
#pragma once
#include "op/optimizer.h"
#include "op/state_code.h"

enum { STATE_MOST = OPTIMIZER_OPERANDS };

// The inputs (bits) of an op that are moments of an optimizer, which it updates in place, and those of them that are
// means of squares, and so never negative.
uint32_t op_moments(Op op, uint32_t *squares);

// A moment that is codes among the operands of the op in StateAttr.
typedef struct StateMoment { int input, output; Encoding encoding; } StateMoment;
typedef struct StateMoments { int count; StateMoment moment[OPTIMIZER_STATES]; } StateMoments;
StateMoments state_moments(const StateAttr *attr, const int *present, const Dtype *dtype); // (attr->ninput) each
StateMoments state_moments_of_call(const KernelCall *call);
// The optimizer's call within it, on operands of the caller's: (STATE_MOST) each, to be filled.
KernelCall state_inner_call(const KernelCall *call, const Operand *input, Operand *output);

// Turns a node with moments that are codes (Variable.encoding; `encoding` is that of those of either sign) into a
// STATE_UPDATE that computes in `dtype`, and makes the Variables of their scales (OF_SCALES of a moment).
void op_encode_states(Graph *g, int node, Encoding encoding, Dtype dtype);
