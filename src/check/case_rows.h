// The rows of the table of op test cases (op_case.h).
#pragma once
#include "op/op.h"

// An operand in a few letters: what it holds, then dims as letter and size.
//   f  floats
//   +  positive floats
//   S  statistics (fp32 or fp64)
//   R  positive statistics
//   M  statistics of which half are -infinity
//   D  a positive fp64 scalar
//   Z  the fp64 scalar 0
//   O  the fp64 scalar 1
//   v  floats of a vector or an accumulator, which stay fp32 where others are bf16
//   h  floats of the upper half of split weights, always bf16
//   l  the lower half, of uint16
//   i  ids in [-1, n), as in "i37 b2 s5"
//   j  such ids, of which a run of 32 and two of three others are -1
//   u  ids in [0, n)
//   w  rows of a cache of n, each at most once, and every fourth -1; n is not a multiple of 5
//   p  positions
//   t  text documents
//   m  a mask of u8, in "m2 b2 s5 x3" of 2 experts a token, but of every seventh token, which lost one
//   c  compact floats, in "c2 b2 s5 x3 e4" of the mask that is input 2
//   k  a mask of u8; the number says how many tenths are 1, anywhere
//   q  codes of moments, of u8
//   z  scales of their blocks, powers of 2 of fp32
//   -  absent
typedef struct Row {
  const char *name;
  Op op;
  const char *input[12];
  const void *attr;
  size_t attr_size;
  int backward; // the case is the node that the op's gradient appends
  int storage, update;
} Row;

#define ATTR(type, ...) .attr = &(const type){__VA_ARGS__}, .attr_size = sizeof(type)
#define NONE .attr = NULL

// (case_rows_count) for the reference kernels and finite differences, too; (case_large_rows_count) beyond the tiles of
// fast kernels.
extern const Row case_rows[], case_large_rows[];
extern const int case_rows_count, case_large_rows_count;
