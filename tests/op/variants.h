// Variants of the cases of cases.h, and how results of fast kernels are compared with those of the reference.
#pragma once
#include "cases.h"

// EMPTY: the call lacks its accumulator; of a shard; of no rows at all.
typedef enum Variant { WHOLE, SHARDED, EMPTY, EMPTY_SHARDED, EMPTY_NO_ROWS, IN_PLACE, SUM_IN_PLACE, VARIANTS } Variant;
extern const char *const op_variant_name[VARIANTS]; // " sharded", after a case's name

// A copy of the case as that variant of it, op_case_free after. 0: it has none.
int op_case_variant(const OpCase *whole, Variant variant, OpCase *c);
// The dtype for which a kernel is chosen: of the first floating-point operand.
Dtype op_case_dtype(const OpCase *c);
// Fails the test of cmocka, naming `where`, unless outputs are equal to rounding. fast, slow: the same case.
void op_case_compare(const OpCase *fast, const OpCase *slow, const char *where);
void op_case_same_bits(const OpCase *a, const OpCase *b, const char *where);
