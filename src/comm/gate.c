// Gates: a lock and a condition that threads wait at, all of which one Abort can open.
#include "comm/gate.h"
#include <sched.h>
#include <stdio.h>

static int cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

void abort_init(Abort *abort, int ranks) {
  *abort = (Abort){.spin = ranks <= cores() ? 500 : 0};
  pthread_mutex_init(&abort->lock, NULL);
}

void abort_destroy(Abort *abort) { pthread_mutex_destroy(&abort->lock); }

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
  pthread_cond_init(&gate->wake, NULL);
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

void gate_wait(Gate *gate) {
  unsigned seen = atomic_load_explicit(&gate->version, memory_order_relaxed);
  if (gate->abort->spin) {
    gate_unlock(gate);
    for (int i = 0; i < gate->abort->spin && atomic_load_explicit(&gate->version, memory_order_relaxed) == seen; i++) gate_pause();
    gate_lock(gate);
    if (atomic_load_explicit(&gate->version, memory_order_relaxed) != seen) return;
  }
  pthread_cond_wait(&gate->wake, &gate->lock);
}

void gate_open(Gate *gate) {
  atomic_fetch_add_explicit(&gate->version, 1, memory_order_relaxed);
  pthread_cond_broadcast(&gate->wake);
}
