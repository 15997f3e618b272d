// Gates: a lock and a condition that threads wait at, all of which one Abort can open.
#include "comm/gate.h"
#include <sched.h>
#include <stdio.h>
#include <time.h>

enum {
  PATIENCE = 200000, // ns before a thread that waits looks for other work: a shorter wait is not worth what that does to the caches
  NAP = 100000,      // ns between two looks where there is none
  SIGN = 100000000,  // ns between two signs of life of a thread that sleeps
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

int abort_all(Abort *abort, int code, const char *message) {
  pthread_mutex_lock(&abort->lock);
  if (!abort_code(abort)) {
    error_set(&abort->error, code, "%s", message);
    atomic_store_explicit(&abort->code, code, memory_order_release);
  }
  for (Gate *gate = abort->gates; gate; gate = gate->next) {
    gate_lock(gate);
    gate_open(gate);
    gate_unlock(gate);
  }
  pthread_mutex_unlock(&abort->lock);
  return abort_code(abort);
}

// A rank that sees a gate open comes for the lock while the opener still has it: looking again for a moment costs less
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

void gate_init(Gate *gate, Abort *abort) {
  lock_init(&gate->lock, abort->spin);
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&gate->wake, &clock);
  pthread_condattr_destroy(&clock);
  atomic_init(&gate->version, 0);
  gate->abort = abort;
  pthread_mutex_lock(&abort->lock);
  gate->next = abort->gates;
  gate->link = &abort->gates;
  if (gate->next) gate->next->link = &gate->next;
  abort->gates = gate;
  pthread_mutex_unlock(&abort->lock);
}

void gate_destroy(Gate *gate) {
  pthread_mutex_lock(&gate->abort->lock);
  *gate->link = gate->next;
  if (gate->next) gate->next->link = gate->link;
  pthread_mutex_unlock(&gate->abort->lock);
  pthread_cond_destroy(&gate->wake);
  pthread_mutex_destroy(&gate->lock);
}

static int opened(Gate *gate, unsigned seen) { return atomic_load_explicit(&gate->version, memory_order_relaxed) != seen; }

// Sleeps for `ns` at most.
static void nap(Gate *gate, long ns) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += ns;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_cond_timedwait(&gate->wake, &gate->lock, &until);
}

// Works as long as there is work, and looks for some now and then, for nobody says when there is.
static void work_until_opened(Gate *gate, unsigned seen, const Waiter *waiter) {
  for (nap(gate, PATIENCE); !opened(gate, seen); nap(gate, NAP)) {
    gate_unlock(gate);
    waiter_sign(waiter);
    for (int looks = LOOKS - 1; looks < LOOKS && !opened(gate, seen); looks++, gate_pause())
      if (waiter->idle.work(waiter->idle.argument)) looks = 0;
    gate_lock(gate);
    if (opened(gate, seen)) return;
  }
}

void gate_wait(Gate *gate, const Waiter *waiter) {
  unsigned seen = atomic_load_explicit(&gate->version, memory_order_relaxed);
  if (gate->abort->spin) {
    gate_unlock(gate);
    for (int i = 0; i < gate->abort->spin && !opened(gate, seen); i++) gate_pause();
    gate_lock(gate);
    if (opened(gate, seen)) return;
  }
  waiter_sign(waiter);
  if (waiter && waiter->idle.work) work_until_opened(gate, seen, waiter);
  else nap(gate, SIGN);
}

void gate_open(Gate *gate) {
  atomic_fetch_add_explicit(&gate->version, 1, memory_order_relaxed);
  pthread_cond_broadcast(&gate->wake);
}
