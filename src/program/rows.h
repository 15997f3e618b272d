// Rows: how long the first dim of a tensor is in a call.
//
// The batch is a dim with a bound: memory and Programs are made for this bound, and in each call a rank has as many as
// the microbatch's share of its data ranks (base/shares.h). They lie at the front of its memory. Kernels get operands
// of just these rows, collectives and messages move no others, and nobody reads the rest.
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
// The elements of a tensor that a rank has in a microbatch; of a compact one, where all experts have as many.
int64_t rows_elements(const Program *p, const Tensor *tensor, int rank, int microbatch);

// Makes the operand of a compact tensor one of `rows` rows: (rows, 1, 1, …).
void rows_pack(Operand *x, int64_t rows);
// The rows of a compact tensor on a rank, where all experts have as many.
int64_t rows_balanced(const Program *p, const Tensor *tensor, int rank, int microbatch);
// Gives the compact ones among the operands of a node (inputs, then outputs) as many, on the first rank. For costs.
void rows_balance(const Program *p, const Node *n, int microbatch, Operand *operand);

// Microbatches by their sizes, and the first one of a step apart from others, since it stores where they add: those of
// one kind are alike on every rank. For sums over all microbatches of a step.
// Even shares have few kinds; of weighed ones those beyond the most count as the last kind, which only estimates
// notice.
enum { ROWS_MOST_KINDS = 64 };
typedef struct RowsKinds {
  int count;
  struct { int microbatch, times; } kind[ROWS_MOST_KINDS]; // the first of that size, and how many there are
} RowsKinds;
RowsKinds rows_kinds(const Program *p);
int rows_kind(const Program *p, const RowsKinds *kinds, int microbatch); // of a microbatch; `count`: a new one
