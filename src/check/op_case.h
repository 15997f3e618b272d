// The table of cases of ops: every op with odd shapes, attributes and random operands. Tests of the reference kernels
// and of the fast kernels, and plait check-device run over the same rows.
#pragma once
#include "op/op.h"

enum { CASE_INPUTS = 12, CASE_OUTPUTS = 6 };

// One row, filled for one dtype. Maps of operands are those of a single rank.
typedef struct OpCase {
  const char *name; // "layer_norm no bias"
  Op op;
  Graph *graph;
  int node;    // of the graph
  int storage; // works on Variables' storage: any dim may be padded (else only vocab and position)
  int ninput, noutput;
  // 64-byte aligned memory. Outputs hold NaN before a call, but those of in-place updates (accumulate, adamw, matmul
  // with accumulate …) are their inputs' memory: to compare two kernels, get the case twice.
  Operand input[CASE_INPUTS], output[CASE_OUTPUTS];
  CallParameters parameters;
  int copied; // the graph is another case's
} OpCase;

int op_cases_count(void);
const char *op_case_name(int i);
int op_case_may_be(int i, Op op); // 0: the case is of another op, which is cheaper to ask than op_case_get
int op_cases_with_large(void); // rows from op_cases_count() on are larger, for fast kernels
// Fills row i; `dtype` is that of its floating-point operands (statistics are fp32 or fp64, scalars fp64; with bf16,
// vectors and accumulators are fp32). The numbers are
// the same for every dtype, but for rounding. op_case_free after.
void op_case_get(int i, Dtype dtype, OpCase *c);
void op_case_seeded(int i, Dtype dtype, uint64_t seed,
                    OpCase *c); // the same with other numbers; op_case_get has seed 1
// The same case with operands of its own, which share memory with each other as those of `from` do. The graph stays
// that of `from`, which must live longer. op_case_free after.
void op_case_copy(const OpCase *from, OpCase *to);
OpCase op_case_named(const char *name); // the row of that name, in fp64; there must be one. op_case_free after
void op_case_free(OpCase *c);
// Makes its call one that lacks the accumulator; 0: the case has none.
int op_case_empty(OpCase *c);
// The call of the case, without workspace and team (set them if wanted). Points into c.
KernelCall op_case_call(const OpCase *c);
void op_case_run(const OpCase *c); // runs that call by the reference kernel
