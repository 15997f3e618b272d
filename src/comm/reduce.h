// Reduction of blocks of elements over ranks, one rank after the other, in a wide accumulator.
#pragma once
#include "plait/comm.h"

enum { REDUCE_BLOCK = 2048 }; // elements: accumulator and inputs stay in the first cache

typedef struct ReduceScratch {
  _Alignas(64) unsigned char wide[REDUCE_BLOCK * 8], narrow[REDUCE_BLOCK * 2];
} ReduceScratch;

// All pointers are to `count` <= REDUCE_BLOCK elements; `b`, the second rank's, may be NULL. The inputs are only read.
void reduce_first(ReduceScratch *scratch, PlaitDtype dtype, PlaitOp op, const void *a, const void *b, size_t count);
void reduce_next(ReduceScratch *scratch, PlaitDtype dtype, PlaitOp op, const void *x, size_t count);
// Rounds once, for a mean after dividing by `ranks`; returns (count) of dtype inside the scratch.
const void *reduce_result(ReduceScratch *scratch, PlaitDtype dtype, PlaitOp op, int ranks, size_t count);
