// Rows: how many of a tensor's first dim are there in a call.
//
// The batch is a dim with a bound: memory and Programs are made for so many rows, and in each call a rank has as many
// as the microbatch's share of its data ranks (base/shares.h). They lie at the front of its memory. Kernels get
// operands of just these rows, collectives and messages move no others, and nobody reads what lies behind.
#pragma once
#include "program/program.h"

// The data ranks whose rows a tensor on one rank has: one, or, where the batch was gathered, several neighbours. count
// 0: its first dim is not the batch.
typedef struct Rows { int first, count; } Rows;

Rows rows_of(const Program *p, const Tensor *tensor, int rank);
// As many as there are in a microbatch (-1: in all of a step, of what BEGIN reads).
int64_t rows_valid(const Program *p, Rows rows, int microbatch);
// Makes an operand one of these rows.
void rows_set(const Program *p, Rows rows, int microbatch, Operand *x);
// Of the elements of a tensor on one rank, those that there are.
int64_t rows_elements(const Program *p, const Tensor *tensor, int rank, int microbatch);
