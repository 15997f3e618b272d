// Monitors: a lock and a condition that threads wait for. One Abort can wake the threads of all monitors.
#pragma once
#include "base/error.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

// What a thread may do while it waits: a short piece of work that waits for nothing. 0: there is none now.
typedef struct Idle {
  int (*work)(void *argument); // NULL: nothing
  void *argument;
} Idle;

// A thread that may wait.
typedef struct Waiter {
  Idle idle;              // what it does meanwhile
  _Atomic int64_t *alive; // CLOCK_MONOTONIC in ns, set now and then to show that it is not frozen; NULL: nobody looks
} Waiter;
void waiter_sign(const Waiter *waiter); // monitor_wait does it

typedef struct Monitor {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  atomic_uint version; // how often its threads were notified: a spinning waiter reads this without the lock
  struct Abort *abort;
  struct Monitor *next, **link; // in the list of the Abort
} Monitor;

typedef struct Abort {
  pthread_mutex_t lock; // taken before the lock of a monitor, never while one is held
  Monitor *monitors;
  atomic_int code; // 0 until aborted; the error stays as it is from then on
  int spin;        // how often a waiter looks before it sleeps; 0 where cores are fewer than ranks
  Error error;     // its ranks are the world's
} Abort;

void abort_init(Abort *abort, int ranks);
void abort_destroy(Abort *abort);
// Keeps the first error and wakes all threads; returns the code of the first. Hold no monitor.
int abort_all(Abort *abort, const Error *error);
static inline int abort_code(Abort *abort) { return atomic_load_explicit(&abort->code, memory_order_acquire); }

void monitor_init(Monitor *monitor, Abort *abort); // neither with a monitor held
void monitor_destroy(Monitor *monitor);
static inline void monitor_lock(Monitor *monitor) { pthread_mutex_lock(&monitor->lock); }
static inline void monitor_unlock(Monitor *monitor) { pthread_mutex_unlock(&monitor->lock); }
// With the lock held: lets go of it until it is notified (or for no reason: call it in a loop) and takes it again. When
// the wait is not a short one the waiter does its work meanwhile, and shows that it is alive; NULL: it only sleeps.
void monitor_wait(Monitor *monitor, const Waiter *waiter);
// With the lock held: everyone who waits looks again.
void monitor_notify_all(Monitor *monitor);
