// Ends a run in which nothing moves any more, and says which rank is to blame and what it was doing.
#pragma once
#include "plait/comm.h"
#include "train/recipe.h"

typedef enum Activity {
#define ACTIVITY(name, key, doing) ACTIVITY_##name,
#include "train/activities.def"
#undef ACTIVITY
  ACTIVITY_COUNT
} Activity;

typedef struct Watchdog Watchdog;

// Watches the ranks [first, first + count) of this process, which begin in ACTIVITY_START; where ranks are processes their
// watchdogs hear of each other. Limits are the recipe's. NULL where all are 0. A limit that is passed prints a sentence and
// ends this process, and with it the job, with status 1.
Watchdog *watchdog_create(const Recipe *recipe, PlaitWorld *world, int first, int count);
void watchdog_destroy(Watchdog *watchdog); // NULL is fine

// A rank begins an activity, of this step; each call begins its time anew. From any thread; NULL is fine.
void watchdog_enter(Watchdog *watchdog, int rank, Activity activity, int64_t step);
