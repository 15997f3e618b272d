// Ends a run that makes no progress, and names the rank that is stuck and what it was doing.
#pragma once
#include "plait/comm.h"
#include "base/error.h"
#include <stdint.h>

typedef enum Activity {
#define ACTIVITY(name, ...) ACTIVITY_##name,
#include "runtime/activities.def"
#undef ACTIVITY
  ACTIVITY_COUNT
} Activity;

typedef struct Watchdog Watchdog;

typedef struct WatchdogLimits {
  double seconds[ACTIVITY_COUNT];
} WatchdogLimits; // that an activity may take; 0: no limit

// Watches the ranks [first, first + count) of this process, which begin in ACTIVITY_START; where ranks are processes
// their watchdogs send each other heartbeats. *watchdog is NULL where all limits are 0. A limit that is passed prints a
// sentence and ends this process, and with it the job, with status 1.
int watchdog_create(const WatchdogLimits *limits, PlaitWorld *world, int first, int count, Watchdog **watchdog,
                    Error *error);
void watchdog_destroy(Watchdog *watchdog); // NULL is fine

// A rank begins an activity, of this step (of an evaluation: of this batch; 0: of none); each call begins its time
// anew. From any thread; NULL is fine.
void watchdog_enter(Watchdog *watchdog, int rank, Activity activity, int64_t step);
