// Ranks as threads that sleep until a task comes, or one rank in the caller's thread.
#include "runtime/session.h"
#include "base/thread.h"
#include "comm/comm.h"
#include <stdatomic.h>
#include <string.h>

enum { MOST_TASKS = 64 }; // that are given and not done

typedef struct Worker {
  Session *session;
  Rank *rank;
  pthread_t thread;
  int code;
  Error error;
  int64_t done; // tasks
} Worker;

typedef struct Task { SessionTask run; void *context; int only; } Task; // only: the rank that does it; -1: all

struct Session {
  PlaitWorld *world;
  int own_world, ranks, first, here; // ranks of the world; of this process, `here` from `first` on
  int64_t epoch;
  Watchdog *watchdog;
  int own_watchdog;
  Rank *rank;      // (here)
  Worker *worker;  // (here)
  int started;     // threads; 0 where the only rank here runs in the caller's thread
  pthread_mutex_t lock; // of what follows
  pthread_cond_t work, done;
  Task task[MOST_TASKS]; // number k, from 1 on, at k % MOST_TASKS
  int64_t given;         // tasks
  int stop;
  _Atomic int culprit; // -1: none
};

int session_ranks(const Session *s) { return s->ranks; }
int64_t session_epoch(const Session *s) { return s->epoch; }
int session_is_local(const Session *s) { return s->here == s->ranks; }
PlaitWorld *session_world(const Session *s) { return s->world; }
int session_culprit(const Session *s) { return atomic_load(&s->culprit); }
Rank *session_rank(const Session *s, int rank) {
  return rank >= s->first && rank < s->first + s->here ? &s->rank[rank - s->first] : NULL;
}

// Failures ------------------------------------------------------------------------------------------------------------

// The others must not wait for this rank: they fail with its words, which say where they come from. A sentence that
// names a rank ("step 3: layer 1, …, rank 0 (dp 0): not a number") needs no other one in front, which has only met the
// agreement.
static void fail(Worker *w) {
  Session *s = w->session;
  int none = -1;
  w->error.code = w->code;
  if (atomic_compare_exchange_strong(&s->culprit, &none, w->rank->rank) && s->ranks > 1)
    error_name_rank(&w->error, w->rank->rank, NULL);
  Error told = w->error;
  if (told.code != PLAIT_UNWRITABLE) told.code = PLAIT_FAILED;
  if (!told.blamed.known) told.blamed = error_rank(w->rank->rank, NULL);
  comm_fail_world(s->world, &told);
}

// Tasks ---------------------------------------------------------------------------------------------------------------

static void do_task(Worker *w, const Task *task) {
  Session *s = w->session;
  if (session_culprit(s) == w->rank->rank || (task->only >= 0 && task->only != w->rank->rank)) return;
  w->error = (Error){0};
  watchdog_enter(s->watchdog, w->rank->rank, ACTIVITY_START, 0);
  w->code = task->run(w->rank, task->context, &w->error);
  if (w->code < 0) fail(w);
  watchdog_enter(s->watchdog, w->rank->rank, ACTIVITY_END, 0);
}

static void *rank_thread(void *argument) {
  Worker *w = argument;
  Session *s = w->session;
  check_set_rank(w->rank->rank);
  pthread_mutex_lock(&s->lock);
  for (;;) {
    while (w->done == s->given && !s->stop) pthread_cond_wait(&s->work, &s->lock);
    if (w->done == s->given) break;
    Task task = s->task[(w->done + 1) % MOST_TASKS];
    pthread_mutex_unlock(&s->lock);
    do_task(w, &task);
    pthread_mutex_lock(&s->lock);
    w->done++;
    pthread_cond_signal(&s->done);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

// With the lock. only: of this rank; -1: of all.
static int64_t least_done(const Session *s, int only) {
  int64_t least = s->given;
  for (int i = 0; i < s->started; i++)
    if ((only < 0 || only == s->first + i) && s->worker[i].done < least) least = s->worker[i].done;
  return least;
}

// After a failure nothing is given any more. Tasks that were given before run, on the others than the culprit: they
// fail in the world's words, which every rank is to know.
static int64_t give(Session *s, Task task) {
  if (session_culprit(s) >= 0) return s->given;
  if (!s->started) {
    check_set_rank(s->first);
    do_task(&s->worker[0], &task);
    check_set_rank(-1);
    return ++s->given;
  }
  pthread_mutex_lock(&s->lock);
  while (s->given - least_done(s, -1) == MOST_TASKS) pthread_cond_wait(&s->done, &s->lock);
  int64_t number = ++s->given;
  s->task[number % MOST_TASKS] = task;
  pthread_cond_broadcast(&s->work);
  pthread_mutex_unlock(&s->lock);
  return number;
}

static void await(Session *s, int only, int64_t number) {
  pthread_mutex_lock(&s->lock);
  while (least_done(s, only) < number) pthread_cond_wait(&s->done, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

// The first failure; another process's comes in the words of the world.
static int first_failure(const Session *s, Error *error) {
  int culprit = session_culprit(s);
  const Worker *w = culprit < 0 ? NULL : &s->worker[culprit - s->first];
  if (!w) return PLAIT_OK;
  return error_take(error, &w->error);
}

// A culprit's sentence is whole when it has done its task.
static int outcome(Session *s, Error *error) {
  if (session_culprit(s) < 0) return PLAIT_OK;
  await(s, -1, s->given);
  return first_failure(s, error);
}

int64_t session_begin(Session *s, SessionTask task, void *context) { return give(s, (Task){task, context, -1}); }

int session_wait(Session *s, int64_t number, Error *error) {
  await(s, -1, number);
  return outcome(s, error);
}

int session_run_on(Session *s, int rank, SessionTask task, void *context, Error *error) {
  await(s, rank, give(s, (Task){task, context, rank}));
  return outcome(s, error);
}

int session_run(Session *s, SessionTask task, void *context, Error *error) {
  return session_wait(s, session_begin(s, task, context), error);
}

static int load(Rank *r, void *job, Error *error) { return rank_load(r, job, error); }
int session_load(Session *s, const Job *job, Error *error) {
  return session_run(s, load, (void *)(uintptr_t)job, error);
}

// Opening and closing ------------------------------------------------------------------------------------------------

static int start_thread(Worker *w, Error *error) {
  return thread_start(&w->thread, rank_thread, w, error, "the thread of rank %d of %d", w->rank->rank,
                      w->session->ranks);
}

static int start_threads(Session *s, Error *error) {
  int code = PLAIT_OK;
  while (s->started < s->here && !(code = start_thread(&s->worker[s->started], error))) s->started++;
  return code;
}

static int make_ranks(Session *s, PlaitComm *comm, Error *error) {
  int code = PLAIT_OK;
  s->rank = xcalloc((size_t)s->here, sizeof *s->rank);
  s->worker = xcalloc((size_t)s->here, sizeof *s->worker);
  for (int i = 0; i < s->here && !code; i++) {
    s->rank[i] = (Rank){.rank = s->first + i, .world = comm, .watchdog = s->watchdog};
    s->worker[i] = (Worker){.session = s, .rank = &s->rank[i]};
    if (!comm) code = plait_comm_world(s->world, s->first + i, &s->rank[i].world, error);
  }
  return code;
}

int session_open(const SessionOptions *o, Session **out, Error *error) {
  Session *s = xcalloc(1, sizeof *s);
  int code = PLAIT_OK;
  *s = (Session){.ranks = o->ranks, .here = o->ranks, .epoch = o->epoch, .watchdog = o->watchdog, .culprit = -1};
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->work, NULL);
  pthread_cond_init(&s->done, NULL);
  if (o->comm) {
    s->world = o->comm->world;
    s->ranks = plait_comm_size(o->comm);
    s->first = plait_comm_rank(o->comm);
    s->here = 1;
  } else {
    s->own_world = 1;
    code = plait_world_local_create(o->ranks, &s->world, error);
  }
  if (!code && !s->watchdog && o->limits) {
    s->own_watchdog = 1;
    code = watchdog_create(o->limits, s->world, s->first, s->here, &s->watchdog, error);
  }
  if (!code) code = make_ranks(s, o->comm, error);
  if (!code && s->here > 1) code = start_threads(s, error);
  if (code) session_close(s);
  else *out = s;
  return code;
}

void session_close(Session *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  s->stop = 1;
  pthread_cond_broadcast(&s->work);
  pthread_mutex_unlock(&s->lock);
  for (int i = 0; i < s->started; i++) pthread_join(s->worker[i].thread, NULL);
  if (s->own_watchdog) watchdog_destroy(s->watchdog);
  for (int i = 0; i < s->here && s->rank; i++) {
    rank_unload(&s->rank[i]);
    if (s->own_world) plait_comm_destroy(s->rank[i].world);
  }
  if (s->own_world) plait_world_destroy(s->world);
  pthread_cond_destroy(&s->work);
  pthread_cond_destroy(&s->done);
  pthread_mutex_destroy(&s->lock);
  free(s->rank);
  free(s->worker);
  free(s);
}
