// A monotonic clock in seconds; its zero is arbitrary.
#pragma once
#include <time.h>

static inline double clock_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
