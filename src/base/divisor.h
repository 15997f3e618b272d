// The greatest common divisor, and divisors near a number.
#pragma once
#include <stdint.h>

static inline int64_t greatest_common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b, b = rest;
  }
  return a;
}

// The divisors of n next to a number that is none: near[0] below it, at least 1, and near[1] above; 0: there is none.
static inline void nearest_divisors(int64_t n, int64_t number, int64_t near[2]) {
  near[0] = number < n ? number : n;
  near[1] = number + 1;
  while (near[0] > 1 && n % near[0]) near[0]--;
  while (near[1] < n && n % near[1]) near[1]++;
  if (near[1] > n) near[1] = 0;
}
