// Runs one function on every rank of a fresh local world, each in a thread of its own.
#pragma once
#include "plait/comm.h"
#include <sched.h>
#include <time.h>

typedef struct Ranks {
  int n;
  PlaitWorld *world;
  void *context;
  int codes[64];          // what each rank returned
  char messages[64][512]; // plait_comm_error, or what fail() left
} Ranks;

typedef int (*RankFunction)(Ranks *ranks, PlaitComm *comm, int rank);

// Returns the number of ranks that returned anything but 0 (the first one's message is printed unless quiet).
int ranks_run(Ranks *ranks, int n, RankFunction function, void *context, int quiet);

// Can a failed world be followed by another? Not where ranks are processes (tests/process/ranks_process.c).
int ranks_can_fail(void);

// For a rank: leaves a message and returns 1. Only the main thread asserts.
int ranks_fail(Ranks *ranks, int rank, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define EXPECT(condition)                                                                                              \
  do { if (!(condition)) return ranks_fail(ranks, rank, "%s:%d: %s", __FILE__, __LINE__, #condition); } while (0)
// Waits for a condition. A minute in vain is a failure.
#define AWAIT(condition)                                                                                               \
  do {                                                                                                                 \
    for (time_t end = time(NULL) + 60; !(condition); sched_yield())                                                    \
      if (time(NULL) > end) return ranks_fail(ranks, rank, "%s:%d: in vain for %s", __FILE__, __LINE__, #condition);   \
  } while (0)
