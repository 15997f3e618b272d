// Thread team: workers sleep on a condition variable (after a short spin) between jobs and take tasks off an atomic counter.
#include "base/team.h"
#include "base/error.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { SPINS = 2000 }; // some 30 µs: most jobs of a step follow each other and end together within that

struct Team {
  int threads;
  pthread_t *thread;
  pthread_mutex_t lock;
  pthread_cond_t start, finish;
  atomic_uint job; // number of the current job; changes under the lock
  int stop;
  atomic_int busy; // workers that are not through with the job; changes under the lock
  void (*task)(void *, int);
  void *argument;
  int tasks;
  atomic_int next;
};

static void work(Team *t) {
  for (int i; (i = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed)) < t->tasks;) t->task(t->argument, i);
}

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

static void *worker(void *argument) {
  Team *t = argument;
  unsigned seen = 0;
  for (;;) {
    for (int spin = 0; spin < SPINS && atomic_load_explicit(&t->job, memory_order_relaxed) == seen; spin++) relax();
    pthread_mutex_lock(&t->lock);
    while (t->job == seen && !t->stop) pthread_cond_wait(&t->start, &t->lock);
    if (t->stop) break;
    seen = t->job;
    pthread_mutex_unlock(&t->lock);
    work(t);
    pthread_mutex_lock(&t->lock);
    if (--t->busy == 0) pthread_cond_signal(&t->finish);
    pthread_mutex_unlock(&t->lock);
  }
  pthread_mutex_unlock(&t->lock);
  return NULL;
}

Team *team_create(int threads) {
  Team *t = xcalloc(1, sizeof *t);
  t->threads = threads < 1 ? 1 : threads;
  t->thread = xcalloc((size_t)t->threads, sizeof *t->thread);
  pthread_mutex_init(&t->lock, NULL);
  pthread_cond_init(&t->start, NULL);
  pthread_cond_init(&t->finish, NULL);
  for (int i = 1; i < t->threads; i++) {
    int failed = pthread_create(&t->thread[i], NULL, worker, t);
    CHECK(!failed, "cannot start thread %d of a team of %d", i, t->threads);
  }
  return t;
}

void team_destroy(Team *t) {
  if (!t) return;
  pthread_mutex_lock(&t->lock);
  t->stop = 1;
  pthread_cond_broadcast(&t->start);
  pthread_mutex_unlock(&t->lock);
  for (int i = 1; i < t->threads; i++) pthread_join(t->thread[i], NULL);
  pthread_cond_destroy(&t->start);
  pthread_cond_destroy(&t->finish);
  pthread_mutex_destroy(&t->lock);
  free(t->thread);
  free(t);
}

int team_size(const Team *t) { return t ? t->threads : 1; }

void team_run(Team *t, int tasks, void (*task)(void *, int), void *argument) {
  if (!t || t->threads == 1 || tasks <= 1) {
    for (int i = 0; i < tasks; i++) task(argument, i);
    return;
  }
  pthread_mutex_lock(&t->lock);
  t->task = task;
  t->argument = argument;
  t->tasks = tasks;
  t->next = 0;
  t->busy = t->threads - 1;
  t->job++;
  pthread_cond_broadcast(&t->start);
  pthread_mutex_unlock(&t->lock);
  work(t);
  for (int spin = 0; spin < SPINS && atomic_load_explicit(&t->busy, memory_order_relaxed); spin++) relax();
  pthread_mutex_lock(&t->lock);
  while (t->busy) pthread_cond_wait(&t->finish, &t->lock);
  pthread_mutex_unlock(&t->lock);
}
