// Clocks in seconds; their zero is arbitrary.
#pragma once
#include <time.h>

static inline double clock_read(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static inline double clock_seconds(void) { return clock_read(CLOCK_MONOTONIC); } // wall time
// Core seconds of all threads of this process, and of this thread: what else runs on the machine does not count.
static inline double clock_process_seconds(void) { return clock_read(CLOCK_PROCESS_CPUTIME_ID); }
static inline double clock_thread_seconds(void) { return clock_read(CLOCK_THREAD_CPUTIME_ID); }
