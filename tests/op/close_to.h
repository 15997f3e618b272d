// Comparing numbers in tests of ops. cmocka.h comes before it.
#pragma once
#include <math.h>
#include <stdint.h>

// Fails with both numbers, `what` and the index i unless they are equal or differ by at most `tolerance`.
static inline void close_to(double got, double expected, double tolerance, const char *what, int64_t i) {
  if (got != expected && !(fabs(got - expected) <= tolerance))
    fail_msg("%s [%lld]: %.17g, expected %.17g", what, (long long)i, got, expected);
}
