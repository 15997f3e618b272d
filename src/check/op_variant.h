// Variants of the cases of op_case.h, and how results of fast kernels are compared with those of the reference.
#pragma once
#include "check/op_case.h"
#include <stddef.h>

// EMPTY: the call lacks its accumulator; of a shard; of no rows at all. SPARE_ROWS: compact operands have more rows
// than their masks let through.
typedef enum Variant {
  WHOLE, SHARDED, EMPTY, EMPTY_SHARDED, EMPTY_NO_ROWS, SPARE_ROWS, IN_PLACE, SUM_IN_PLACE, VARIANTS
} Variant;
extern const char *const op_variant_name[VARIANTS]; // " sharded", after a case's name

// A copy of the case as that variant of it, op_case_free after. 0: it has none.
int op_case_variant(const OpCase *whole, Variant variant, OpCase *c);
// The dtype for which a kernel is chosen: of the first floating-point operand.
Dtype op_case_dtype(const OpCase *c);
// How far outputs are from those of the reference: the largest share of its bound that an error has. At most 1: equal
// to rounding. Above it `text` names the first number that differs. fast, slow: the same case.
double op_case_error(const OpCase *fast, const OpCase *slow, char *text, size_t size);
int op_case_other_bits(const OpCase *a, const OpCase *b); // the first output that has others; -1: none
