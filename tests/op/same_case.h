// Comparing outputs of cases in tests of kernels. cmocka.h comes before it.
#pragma once
#include "check/op_variant.h"

// Fails, naming `where`, unless outputs are equal to rounding. fast, slow: the same case.
static inline void op_case_compare(const OpCase *fast, const OpCase *slow, const char *where) {
  char text[256];
  if (op_case_error(fast, slow, text, sizeof text) > 1) fail_msg("%s %s", where, text);
}

static inline void op_case_same_bits(const OpCase *a, const OpCase *b, const char *where) {
  int k = op_case_other_bits(a, b);
  if (k >= 0) fail_msg("%s: output %d has other bits", where, k);
}
