// Gates: a lock and a condition that threads wait at, all of which one Abort can open.
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
void waiter_sign(const Waiter *waiter); // gate_wait does it

typedef struct Gate {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  atomic_uint version; // how often it was opened: a spinning waiter looks at this without the lock
  struct Abort *abort;
  struct Gate *next, **link; // in the list of the Abort
} Gate;

typedef struct Abort {
  pthread_mutex_t lock; // taken before the lock of a gate, never while one is held
  Gate *gates;
  atomic_int code; // 0 until aborted; error.message stays as it is from then on
  int spin;        // how often a waiter looks before it sleeps; 0 where cores are fewer than ranks
  Error error;
} Abort;

void abort_init(Abort *abort, int ranks);
void abort_destroy(Abort *abort);
// Keeps the first message and code and opens all gates; returns the code of the first. Hold no gate.
int abort_all(Abort *abort, int code, const char *message);
static inline int abort_code(Abort *abort) { return atomic_load_explicit(&abort->code, memory_order_acquire); }

static inline void gate_pause(void) { // between two looks
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void gate_init(Gate *gate, Abort *abort); // neither with a gate held
void gate_destroy(Gate *gate);
static inline void gate_lock(Gate *gate) { pthread_mutex_lock(&gate->lock); }
static inline void gate_unlock(Gate *gate) { pthread_mutex_unlock(&gate->lock); }
// With the lock held: lets go of it until the gate was opened (or for no reason: call it in a loop) and takes it again. When the
// wait is not a short one the waiter does its work meanwhile, and shows that it is alive; NULL: it only sleeps.
void gate_wait(Gate *gate, const Waiter *waiter);
// With the lock held: everyone who waits looks again.
void gate_open(Gate *gate);
