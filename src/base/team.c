// Thread team: workers sleep on a condition variable (after a short spin) between jobs and take units off an atomic
// counter; so do helpers from other teams of a group, for one unit at a time.
//
// Example: a team of 2 threads runs a job of 5 units. The caller takes unit 0, its worker 1. A helper from another team
// finds the job open, sets its bit in `state` (OPEN | 1), takes unit 2, computes it in the first slot of helpers, 2,
// and clears its bit. Caller and worker take 3 and 4, and then find the counter beyond 5. The worker counts itself out
// (`busy`); the caller closes the job, so that no more helpers come, and sleeps until bits and `busy` are 0.
#include "base/team.h"
#include "base/pause.h"
#include "base/thread.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SPINS = 2000 }; // some 30 µs; most jobs of a step follow each other and end together within that
static const uint64_t OPEN = (uint64_t)1 << 63;

// A team's job, where helpers find it. It outlives the team, since a helper may be the last to touch it.
typedef struct SharedJob {
  _Alignas(64) _Atomic uint64_t
      state; // OPEN: helpers may come; bit i: helper i is at work, and what the job needs must stay
  _Alignas(64) _Atomic int64_t next, units; // the next unit that nobody has taken
  void (*body)(void *, int, int64_t);
  void *argument;
  int first_slot;       // of helpers
  pthread_mutex_t lock; // these two: the owner sleeps until the last helper has left
  pthread_cond_t left;
} SharedJob;

struct TeamGroup {
  int teams, helpers;
  atomic_int joined;
  _Alignas(64) atomic_int lending; // teams that have looked for others' work since their last job
  SharedJob *shared; // (teams)
};

struct Team {
  int threads, helpers;
  TeamGroup *group; // NULL: the shared job is the team's own
  int place;        // of its shared job in the group
  SharedJob *shared;
  int lending;      // counted in the group's
  pthread_t *thread;
  struct Worker *worker; // (threads)
  pthread_mutex_t lock;
  pthread_cond_t start, finish;
  atomic_uint job; // number of the current job; changes under the lock
  int stop;
  atomic_int busy; // workers that are not through with the job; changes under the lock
};

typedef struct Worker { Team *team; int slot; } Worker;

static int64_t take(SharedJob *d) { return atomic_fetch_add_explicit(&d->next, 1, memory_order_relaxed); }

static void work(SharedJob *d, int slot) {
  int64_t units = atomic_load_explicit(&d->units, memory_order_relaxed);
  for (int64_t i; (i = take(d)) < units;) d->body(d->argument, slot, i);
}

static void *worker(void *argument) {
  const Worker *w = argument;
  Team *t = w->team;
  unsigned seen = 0;
  for (;;) {
    for (int spin = 0; spin < SPINS && atomic_load_explicit(&t->job, memory_order_relaxed) == seen; spin++) cpu_pause();
    pthread_mutex_lock(&t->lock);
    while (t->job == seen && !t->stop) pthread_cond_wait(&t->start, &t->lock);
    if (t->stop) break;
    seen = t->job;
    pthread_mutex_unlock(&t->lock);
    work(t->shared, w->slot);
    pthread_mutex_lock(&t->lock);
    if (--t->busy == 0) pthread_cond_signal(&t->finish);
    pthread_mutex_unlock(&t->lock);
  }
  pthread_mutex_unlock(&t->lock);
  return NULL;
}

// Shared jobs ---------------------------------------------------------------------------------------------------------

static SharedJob *shared_jobs_create(int n) {
  size_t bytes = sizeof(SharedJob) * (size_t)n;
  SharedJob *shared = aligned_alloc(_Alignof(SharedJob), bytes);
  CHECK(shared, "out of memory");
  memset(shared, 0, bytes);
  for (int i = 0; i < n; i++) {
    pthread_mutex_init(&shared[i].lock, NULL);
    pthread_cond_init(&shared[i].left, NULL);
  }
  return shared;
}

static void shared_jobs_free(SharedJob *shared, int n) {
  for (int i = 0; i < n; i++) {
    pthread_cond_destroy(&shared[i].left);
    pthread_mutex_destroy(&shared[i].lock);
  }
  free(shared);
}

TeamGroup *team_group_create(int teams, int helpers) {
  TeamGroup *g = aligned_alloc(_Alignof(TeamGroup), sizeof *g);
  CHECK(g, "out of memory");
  *g = (TeamGroup){.teams = teams,
                   .helpers = helpers < TEAM_MOST_HELPERS ? helpers : TEAM_MOST_HELPERS,
                   .shared = shared_jobs_create(teams)};
  return g;
}

void team_group_destroy(TeamGroup *g) {
  if (!g) return;
  shared_jobs_free(g->shared, g->teams);
  free(g);
}

// Nobody comes any more; returns when the last helper has left.
static void close_shared_job(SharedJob *d) {
  if (atomic_fetch_and_explicit(&d->state, ~OPEN, memory_order_acquire) == OPEN) return;
  for (int spin = 0; spin < SPINS; spin++, cpu_pause())
    if (!atomic_load_explicit(&d->state, memory_order_acquire)) return;
  pthread_mutex_lock(&d->lock);
  while (atomic_load_explicit(&d->state, memory_order_acquire)) pthread_cond_wait(&d->left, &d->lock);
  pthread_mutex_unlock(&d->lock);
}

static int has_units(const SharedJob *d) {
  return atomic_load_explicit(&d->state, memory_order_relaxed) & OPEN &&
         atomic_load_explicit(&d->next, memory_order_relaxed) < atomic_load_explicit(&d->units, memory_order_relaxed);
}

// The helper's number; -1: the shared job is closed, or has all the helpers that it may have.
static int enter(SharedJob *d, int helpers) {
  uint64_t state = atomic_load_explicit(&d->state, memory_order_relaxed);
  for (;;) {
    int i = 0;
    while (i < helpers && state >> i & 1) i++;
    if (!(state & OPEN) || i == helpers) return -1;
    if (atomic_compare_exchange_weak_explicit(&d->state, &state, state | (uint64_t)1 << i, memory_order_acquire,
                                              memory_order_relaxed))
      return i;
  }
}

static void leave(SharedJob *d, int i) {
  uint64_t bit = (uint64_t)1 << i;
  if (atomic_fetch_and_explicit(&d->state, ~bit, memory_order_release) != bit) return;
  pthread_mutex_lock(&d->lock);
  pthread_cond_signal(&d->left);
  pthread_mutex_unlock(&d->lock);
}

static int help(SharedJob *d, int helpers) {
  int i = has_units(d) ? enter(d, helpers) : -1, helped = 0;
  if (i < 0) return 0;
  int64_t unit = take(d);
  if (unit < atomic_load_explicit(&d->units, memory_order_relaxed))
    d->body(d->argument, d->first_slot + i, unit), helped = 1;
  leave(d, i);
  return helped;
}

// Teams ---------------------------------------------------------------------------------------------------------------

static Team *team_new(TeamGroup *group, int threads) {
  Team *t = xcalloc(1, sizeof *t);
  t->group = group;
  if (group) {
    t->helpers = group->helpers;
    t->place = atomic_fetch_add(&group->joined, 1);
    CHECK(t->place < group->teams, "a group of %d teams gets another", group->teams);
  }
  t->shared = group ? &group->shared[t->place] : shared_jobs_create(1);
  t->shared->first_slot = threads;
  t->thread = xcalloc((size_t)threads, sizeof *t->thread);
  t->worker = xcalloc((size_t)threads, sizeof *t->worker);
  t->threads = 1; // the caller
  pthread_mutex_init(&t->lock, NULL);
  pthread_cond_init(&t->start, NULL);
  pthread_cond_init(&t->finish, NULL);
  return t;
}

int team_create_in(TeamGroup *group, int threads, Team **team, Error *error) {
  if (threads < 1) threads = 1;
  Team *t = team_new(group, threads);
  int code = PLAIT_OK;
  *team = NULL;
  for (int i = 1; i < threads && !code; i++) {
    t->worker[i] = (Worker){t, i};
    code = thread_start(&t->thread[i], worker, &t->worker[i], error, "thread %d of %d", i + 1, threads);
    if (!code) t->threads++;
  }
  if (code) team_destroy(t);
  else *team = t;
  return code;
}

int team_create(int threads, Team **team, Error *error) { return team_create_in(NULL, threads, team, error); }

static void set_lending(Team *t, int lending) {
  if (t->lending == lending) return;
  t->lending = lending;
  atomic_fetch_add_explicit(&t->group->lending, lending ? 1 : -1, memory_order_relaxed);
}

void team_destroy(Team *t) {
  if (!t) return;
  set_lending(t, 0);
  pthread_mutex_lock(&t->lock);
  t->stop = 1;
  pthread_cond_broadcast(&t->start);
  pthread_mutex_unlock(&t->lock);
  for (int i = 1; i < t->threads; i++) pthread_join(t->thread[i], NULL);
  pthread_cond_destroy(&t->start);
  pthread_cond_destroy(&t->finish);
  pthread_mutex_destroy(&t->lock);
  if (!t->group) shared_jobs_free(t->shared, 1);
  free(t->worker);
  free(t->thread);
  free(t);
}

int team_slots(const Team *t) { return t ? t->threads + t->helpers : 1; }

int team_size(const Team *t) {
  if (!t || !t->helpers) return team_slots(t);
  int others = atomic_load_explicit(&t->group->lending, memory_order_relaxed) - t->lending,
      lent = others * t->threads; // teams of a group are of one size
  return t->threads + (lent < t->helpers ? lent : t->helpers);
}

static void wake_workers(Team *t) {
  pthread_mutex_lock(&t->lock);
  t->busy = t->threads - 1;
  t->job++;
  pthread_cond_broadcast(&t->start);
  pthread_mutex_unlock(&t->lock);
}

static void await_workers(Team *t) {
  for (int spin = 0; spin < SPINS && atomic_load_explicit(&t->busy, memory_order_relaxed); spin++) cpu_pause();
  pthread_mutex_lock(&t->lock);
  while (t->busy) pthread_cond_wait(&t->finish, &t->lock);
  pthread_mutex_unlock(&t->lock);
}

static void run(Team *t, int64_t units, void (*body)(void *, int, int64_t), void *argument, int helpers) {
  SharedJob *d = t->shared;
  d->body = body;
  d->argument = argument;
  atomic_store_explicit(&d->units, units, memory_order_relaxed);
  atomic_store_explicit(&d->next, 0, memory_order_relaxed);
  if (t->threads > 1) wake_workers(t);
  if (helpers) atomic_store_explicit(&d->state, OPEN, memory_order_release);
  work(d, 0);
  if (helpers) close_shared_job(d);
  if (t->threads > 1) await_workers(t);
}

void team_each(Team *t, int64_t units, void (*body)(void *, int, int64_t), void *argument) {
  if (t) set_lending(t, 0);
  if (team_slots(t) > 1 && units > 1) run(t, units, body, argument, t->helpers);
  else
    for (int64_t i = 0; i < units; i++) body(argument, 0, i);
}

typedef struct Tasks { void (*task)(void *, int); void *argument; } Tasks;
static void run_task(void *argument, int slot, int64_t i) {
  const Tasks *tasks = argument;
  tasks->task(tasks->argument, (int)i);
}

void team_run(Team *t, int tasks, void (*task)(void *, int), void *argument) {
  Tasks all = {task, argument};
  team_each(t, tasks, run_task, &all);
}

// Helping -------------------------------------------------------------------------------------------------------------

static int help_others(const Team *t) {
  const TeamGroup *g = t->group;
  for (int i = 1; i < g->teams; i++)
    if (help(&g->shared[(t->place + i) % g->teams], g->helpers)) return 1;
  return 0;
}

typedef struct Help { const Team *team; atomic_int helped; } Help;
static void help_unit(void *argument, int slot, int64_t unit) {
  Help *h = argument;
  if (help_others(h->team)) atomic_store_explicit(&h->helped, 1, memory_order_relaxed);
}

int team_help(Team *t) {
  const TeamGroup *g = t->group;
  if (!g) return 0;
  set_lending(t, 1);
  if (t->threads == 1) return help_others(t);
  int work = 0;
  for (int i = 1; i < g->teams && !work; i++) work = has_units(&g->shared[(t->place + i) % g->teams]);
  Help h = {.team = t};
  if (work) run(t, t->threads, help_unit, &h, 0);
  return h.helped;
}
