// Waiting: spinning for a moment, then sleeping, or doing other work.
#include "comm/monitor.h"
#include "base/pause.h"
#include <sched.h>
#include <stdio.h>
#include <time.h>

enum {
  PATIENCE = 200000, // ns before a thread that waits looks for other work: a shorter wait is not worth what that does
                     // to the caches
  NAP = 100000,      // ns between two looks where there is none
  SIGN = 100000000,  // ns after which a thread that sleeps shows again that it is alive
  LOOKS = 500        // after a piece of work, before the next nap: as long as other waits spin
};

static int cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

void abort_init(Abort *abort, int ranks) {
  *abort = (Abort){.spin = ranks <= cores() ? 500 : 0};
  pthread_mutex_init(&abort->lock, NULL);
}

void abort_destroy(Abort *abort) { pthread_mutex_destroy(&abort->lock); }

void waiter_sign(const Waiter *waiter) {
  struct timespec t;
  if (!waiter || !waiter->alive) return;
  clock_gettime(CLOCK_MONOTONIC, &t);
  atomic_store_explicit(waiter->alive, t.tv_sec * 1000000000ll + t.tv_nsec, memory_order_relaxed);
}

int abort_all(Abort *abort, const Error *error) {
  pthread_mutex_lock(&abort->lock);
  if (!abort_code(abort)) {
    error_take(&abort->error, error);
    atomic_store_explicit(&abort->code, error->code, memory_order_release);
  }
  for (Monitor *monitor = abort->monitors; monitor; monitor = monitor->next) {
    monitor_lock(monitor);
    monitor_notify_all(monitor);
    monitor_unlock(monitor);
  }
  pthread_mutex_unlock(&abort->lock);
  return abort_code(abort);
}

// A rank that is notified comes for the lock while the notifier still has it: looking again for a moment costs less
// than to sleep.
static void lock_init(pthread_mutex_t *lock, int spin) {
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
  if (spin) pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
  pthread_mutex_init(lock, &kind);
  pthread_mutexattr_destroy(&kind);
}

void monitor_init(Monitor *monitor, Abort *abort) {
  lock_init(&monitor->lock, abort->spin);
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&monitor->wake, &clock);
  pthread_condattr_destroy(&clock);
  atomic_init(&monitor->version, 0);
  monitor->abort = abort;
  pthread_mutex_lock(&abort->lock);
  monitor->next = abort->monitors;
  monitor->link = &abort->monitors;
  if (monitor->next) monitor->next->link = &monitor->next;
  abort->monitors = monitor;
  pthread_mutex_unlock(&abort->lock);
}

void monitor_destroy(Monitor *monitor) {
  pthread_mutex_lock(&monitor->abort->lock);
  *monitor->link = monitor->next;
  if (monitor->next) monitor->next->link = monitor->link;
  pthread_mutex_unlock(&monitor->abort->lock);
  pthread_cond_destroy(&monitor->wake);
  pthread_mutex_destroy(&monitor->lock);
}

static int notified(Monitor *monitor, unsigned seen) {
  return atomic_load_explicit(&monitor->version, memory_order_relaxed) != seen;
}

// Sleeps for `ns` at most.
static void nap(Monitor *monitor, long ns) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += ns;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_cond_timedwait(&monitor->wake, &monitor->lock, &until);
}

// Works as long as there is work, and looks for some now and then, for nobody says when there is.
static void work_until_notified(Monitor *monitor, unsigned seen, const Waiter *waiter) {
  for (nap(monitor, PATIENCE); !notified(monitor, seen); nap(monitor, NAP)) {
    monitor_unlock(monitor);
    waiter_sign(waiter);
    for (int looks = LOOKS - 1; looks < LOOKS && !notified(monitor, seen); looks++, cpu_pause())
      if (waiter->idle.work(waiter->idle.argument)) looks = 0;
    monitor_lock(monitor);
    if (notified(monitor, seen)) return;
  }
}

void monitor_wait(Monitor *monitor, const Waiter *waiter) {
  unsigned seen = atomic_load_explicit(&monitor->version, memory_order_relaxed);
  if (monitor->abort->spin) {
    monitor_unlock(monitor);
    for (int i = 0; i < monitor->abort->spin && !notified(monitor, seen); i++) cpu_pause();
    monitor_lock(monitor);
    if (notified(monitor, seen)) return;
  }
  waiter_sign(waiter);
  if (waiter && waiter->idle.work) work_until_notified(monitor, seen, waiter);
  else nap(monitor, SIGN);
}

void monitor_notify_all(Monitor *monitor) {
  atomic_fetch_add_explicit(&monitor->version, 1, memory_order_relaxed);
  pthread_cond_broadcast(&monitor->wake);
}
