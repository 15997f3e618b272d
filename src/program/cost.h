// The cost of the kernels of a step on one rank, counted from its Program: for estimates of time.
#pragma once
#include "program/program.h"

// The cost of a call of the node on the first rank, on a microbatch (-1: in BEGIN and END); compact tensors as if all
// experts had as many rows.
OpWork program_work(const Program *p, const Node *n, int microbatch);
// Bytes of its operands in this call: inputs, then outputs; 0 of those that are absent.
void program_operand_bytes(const Program *p, const Node *n, int microbatch, double *bytes);

// Of kernels, collectives left out: FLOPs (those of products and attention; others hardly count), bytes of operands
// that are read and written, and calls. Of reference kernels none of these, but their FLOPs or elements, whatever is
// more: they are plain loops in double.
typedef struct ProgramCost { double flops, bytes, calls, reference; } ProgramCost;
// Pairs of elements that the forward pass of a microbatch compares on a rank (OpDef.pairs: queries and the keys that
// they see): on the rank with the most, and on average over the ranks that share a sequence.
typedef struct ProgramPairs { double most, mean; } ProgramPairs;
ProgramPairs program_pairs(const Program *p);
// Tensors that owners make whole in END (ROLE_WHOLE_MATRIX): their number, and FLOPs of the rank that has the least and
// the most of them.
typedef struct ProgramOwned { int count; double least, most; } ProgramOwned;
ProgramOwned program_owned(const Program *p);
ProgramCost program_cost(const Program *p);
