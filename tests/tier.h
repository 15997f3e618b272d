// How much of itself a test runs, and how long it waits. CMake sets both for ctest (cmake/tests.cmake).
#pragma once
#include <stdlib.h>

// 1: make test, a sample that takes seconds; 2: make check, and a test that is started by hand; 3: make nightly, all.
static inline int test_tier(void) {
  const char *tier = getenv("PLAIT_TIER");
  return tier && *tier ? atoi(tier) : 2;
}

// How many times longer than on a quiet machine and without sanitizers anything may take: PLAIT_PATIENCE, an integer.
static inline double test_patience(void) {
  const char *patience = getenv("PLAIT_PATIENCE");
  double times = patience && *patience ? atof(patience) : 1;
  return times > 1 ? times : 1;
}

// A time-out that expires only where something is wrong: the seconds that a quiet machine needs at most, here.
static inline double test_seconds(double seconds) { return seconds * test_patience(); }
