// The greatest common divisor.
#pragma once
#include <stdint.h>

static inline int64_t greatest_common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b, b = rest;
  }
  return a;
}
