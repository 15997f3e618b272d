// The table of op test cases: every op with odd shapes, attributes and random operands. Tests of the reference kernels
// and of the fast kernels run over the same rows.
#pragma once
#include "op/op.h"

enum { CASE_INPUTS = 12, CASE_OUTPUTS = 4 };

// One row, filled for one dtype. Its node is the only one of its graph; maps of operands are those of one rank.
typedef struct OpCase {
  const char *name; // "layer_norm no bias"
  Op op;
  Graph *graph;
  int node;
  int ninput, noutput;
  Operand input[CASE_INPUTS], output[CASE_OUTPUTS]; // 64-byte aligned memory; outputs hold NaN before a call. The outputs
                                                    // of in-place updates (accumulate, adamw …) are their inputs' memory
  CallParameters parameters;
} OpCase;

int op_cases_count(void);
// Fills row i; `dtype` is that of its floating-point operands (statistics and scalars keep theirs). op_case_free after.
void op_case_get(int i, Dtype dtype, OpCase *c);
void op_case_free(OpCase *c);
// The call of the case, without workspace and team (set them if wanted). Points into c.
KernelCall op_case_call(const OpCase *c);
