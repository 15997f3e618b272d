// A thread that watches when each rank last made progress: its own clock, or heartbeats from other processes.
#include "runtime/watchdog.h"
#include "base/clock.h"
#include "base/thread.h"
#include "comm/comm.h"
#include "worker/page.h"
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct { const char *key, *doing, *before, *after; WorkerPhase phase; } activities[] = {
#define ACTIVITY(name, key, doing, before, after, phase) {key, doing, before, after, WORKER_PHASE_##phase},
#include "runtime/activities.def"
#undef ACTIVITY
};

enum {
  COLLECTORS = 2
}; // ranks that receive the heartbeats of all others; two, because the first may be the one that stands still
static const double longest_wait = 1, shortest_wait = 0.05, grace = 3; // seconds
// Between two heartbeats of a process; where ranks are many each sends fewer, for the sake of those that receive them.
static const double heartbeat_wait = 0.1, heartbeat_wait_per_rank = 0.001;
// A thread in a call shows every 0.1 s that it runs. One that has not for a quarter of the smallest limit, and no less
// than this, is frozen: on a machine with too much to do a thread may come late, but not for so long.
static const double shortest_frozen = 0.35;

// The state of a rank. Ranks of this process set their own.
typedef struct Seen {
  _Atomic int activity;
  _Atomic int64_t step;
  _Atomic double since; // when the activity began, by this process's clock
  _Atomic int thread;   // of a rank in this process: the system's number of its thread
  double received;      // when its last heartbeat came, of a rank in another process; at first when watching began
  double alive;         // of a rank in this process: when it was last seen that its thread is not frozen in a call
  uint64_t call;        // its last call, as in comm.h
  char host[64];
} Seen;

struct Watchdog {
  PlaitWorld *world;
  double limit[ACTIVITY_COUNT], wait, frozen; // frozen: seconds after which a thread is
  int ranks, first, count;
  Seen *seen; // (ranks)
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t stopped;
  int stop;
};

// Explicit loads: gcc 12 makes plain ones of an atomic index or operand.
static int activity_of(const Seen *s) { return atomic_load(&s->activity); }
static int64_t step_of(const Seen *s) { return atomic_load(&s->step); }
static double since_of(const Seen *s) { return atomic_load(&s->since); }

static int is_here(const Watchdog *w, int rank) { return rank >= w->first && rank < w->first + w->count; }
static int collects(const Watchdog *w) { return w->count < w->ranks && w->first < COLLECTORS; }

void watchdog_enter(Watchdog *w, int rank, Activity activity, int64_t step) {
  if (activities[activity].phase) worker_enter(activities[activity].phase, step);
  if (!w) return;
  Seen *s = &w->seen[rank];
  atomic_store(&s->since, clock_seconds());
  atomic_store(&s->step, step);
  atomic_store(&s->activity, activity);
  atomic_store(&s->thread, gettid());
}

// Who is to blame -----------------------------------------------------------------------------------------------------

// As in /proc/PID/stat: S sleeps, as one does who waits for a lock, R runs, D waits in the system, T or t is stopped.
// 0: not known. Allocates nothing: a thread that stands still may have the allocator's lock.
static char state_of(const Watchdog *w, int rank) {
  char path[48], text[256];
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&w->seen[rank].thread));
  int file = is_here(w, rank) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  ssize_t n = file < 0 ? 0 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  text[n > 0 ? n : 0] = 0;
  const char *name_end = strrchr(text, ')');
  return name_end && name_end[1] ? name_end[2] : 0;
}

static int known(const Watchdog *w, int rank) { return is_here(w, rank) || collects(w); }
static int is_silent(const Watchdog *w, int rank) {
  return !is_here(w, rank) && collects(w) && clock_seconds() - w->seen[rank].received > 3 * w->wait + 1;
}

static int is_frozen(const Seen *s) { return comm_last_runs(s->call) && !comm_last_waits(s->call); }

// A rank without heartbeats, else one that is frozen in a call (and does not sleep there, which one does who waits for
// a lock that a frozen one has), else one that is not waiting for others, else one that is in an earlier step than the
// others.
static int more_to_blame(const Watchdog *w, int a, int b) {
  const Seen *x = &w->seen[a], *y = &w->seen[b];
  if (is_silent(w, a) != is_silent(w, b)) return is_silent(w, a);
  if (is_frozen(x) != is_frozen(y)) return is_frozen(x);
  int sleeps_a = state_of(w, a) == 'S', sleeps_b = state_of(w, b) == 'S';
  if (is_frozen(x) && sleeps_a != sleeps_b) return sleeps_b;
  int waits_a = comm_last_waits(x->call), waits_b = comm_last_waits(y->call);
  if (waits_a != waits_b) return waits_b;
  if (step_of(x) != step_of(y)) return step_of(x) < step_of(y);
  return since_of(x) < since_of(y);
}

// "computing step 35"
static void describe_activity(const Seen *s, char *text, size_t size) {
  int a = activity_of(s);
  if (step_of(s) <= 0 || !*activities[a].before) snprintf(text, size, "%s", activities[a].doing);
  else snprintf(text, size, "%s %lld%s", activities[a].before, (long long)step_of(s), activities[a].after);
}

static void describe(const Watchdog *w, int rank, char *text, size_t size) {
  const Seen *s = &w->seen[rank];
  int64_t newest = 0;
  double seconds = clock_seconds() - since_of(s);
  char call[160], doing[80], further[64] = "";
  comm_last_describe(s->call, call, sizeof call);
  describe_activity(s, doing, sizeof doing);
  for (int r = 0; r < w->ranks; r++)
    if (known(w, r) && step_of(&w->seen[r]) > newest) newest = step_of(&w->seen[r]);
  if (newest > step_of(s)) // it may have come further after its last heartbeat
    snprintf(further, sizeof further, " (another rank is at step %lld)", (long long)newest);
  char state = state_of(w, rank);
  const char *stopped = state == 'D' ? "; its thread waits for the operating system, perhaps for a disk"
                        : state == 'T' || state == 't' ? "; its thread has been stopped (SIGSTOP)"
                                                       : "";
  if (is_silent(w, rank))
    snprintf(text, size, "rank %d on %s sends no heartbeats: %.0f s ago it began %s%s; %s", rank, s->host, seconds,
             doing, further, call);
  else
    snprintf(text, size, "rank %d on %s is stuck: it has been %s for %.0f s%s; %s", rank, s->host, doing, seconds,
             stopped, call);
}

static void end_run(Watchdog *w, int passed) {
  char text[500];
  Error error = {0};
  int culprit = passed;
  for (int r = 0; r < w->ranks; r++)
    if (known(w, r) && activity_of(&w->seen[r]) != ACTIVITY_END && more_to_blame(w, r, culprit)) culprit = r;
  describe(w, culprit, text, sizeof text);
  int activity = activity_of(&w->seen[passed]);
  ErrorRank whose = error_rank(culprit, w->seen[culprit].host);
  error_set_about(&error, PLAIT_FAILED, &(ErrorFacts){.rank = whose, .blamed = whose},
                  "%s (limit %s: %g s; set it higher if this is normal)", text, activities[activity].key,
                  w->limit[activity]);
  world_end(w->world, 1, &error);
}

// Watching ------------------------------------------------------------------------------------------------------------

// Ranks that receive no heartbeats know less: they report only if those who know more do not.
static int passed_limit(const Watchdog *w) {
  double time = clock_seconds(), patience = w->count < w->ranks && !collects(w) ? grace : w->first ? grace / 2 : 0;
  for (int r = 0; r < w->ranks; r++) {
    const Seen *s = &w->seen[r];
    int activity = activity_of(s);
    double limit = w->limit[activity];
    if (known(w, r) && activity != ACTIVITY_END && limit > 0 && time - since_of(s) > limit + patience) return r;
  }
  return -1;
}

static void receive(void *context, const Heartbeat *h) {
  Watchdog *w = context;
  if (h->rank < 0 || h->rank >= w->ranks || h->activity < 0 || h->activity >= ACTIVITY_COUNT || is_here(w, h->rank))
    return;
  Seen *s = &w->seen[h->rank];
  s->received = clock_seconds();
  atomic_store(&s->activity, h->activity);
  atomic_store(&s->step, h->step);
  atomic_store(&s->since, s->received - h->seconds);
  s->call = h->call;
  memcpy(s->host, h->host, sizeof s->host);
  s->host[sizeof s->host - 1] = 0;
}

static void exchange_heartbeats(Watchdog *w) {
  const Seen *mine = &w->seen[w->first];
  Heartbeat h = {.rank = w->first,
                 .activity = activity_of(mine),
                 .step = step_of(mine),
                 .seconds = clock_seconds() - since_of(mine),
                 .call = mine->call};
  memcpy(h.host, mine->host, sizeof h.host);
  world_heartbeat(w->world, &h, COLLECTORS, receive, w);
}

// Who is in a call waits for others, unless its thread is frozen there: it shows now and then that it is not.
static void look_at_own(Watchdog *w) {
  double time = clock_seconds(), alive;
  for (int r = w->first; r < w->first + w->count; r++) {
    Seen *s = &w->seen[r];
    uint64_t before = s->call;
    s->call = comm_last(w->world, r, &alive);
    if (!comm_last_runs(s->call) || comm_last_set_waits(s->call) != comm_last_set_waits(before))
      s->alive = time; // it has moved
    else if (alive > s->alive) s->alive = alive;
    if (comm_last_runs(s->call) && time - s->alive < w->frozen) s->call = comm_last_set_waits(s->call);
  }
}

static void *watch(void *argument) {
  Watchdog *w = argument;
  double resumed = 0;
  pthread_mutex_lock(&w->lock);
  while (!w->stop) {
    struct timespec until;
    double before = clock_seconds();
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(w->wait * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&w->stopped, &w->lock, &until);
    if (w->stop) break;
    look_at_own(w);
    if (w->count < w->ranks) exchange_heartbeats(w);
    // Who was stopped itself knows nothing of the others until their next heartbeats have come.
    if (clock_seconds() - before > 3 * w->wait + 1) resumed = clock_seconds();
    int rank = resumed && clock_seconds() - resumed < grace ? -1 : passed_limit(w);
    if (rank >= 0) end_run(w, rank);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

// Of the activities: one that is done has no limit.
static int any_limit(const WatchdogLimits *limits) {
  int any = 0;
  for (int p = 0; p < ACTIVITY_END; p++) any |= limits->seconds[p] > 0;
  return any;
}

static void set_limits(Watchdog *w, const WatchdogLimits *limits) {
  double least = HUGE_VAL, heartbeats = fmax(heartbeat_wait, heartbeat_wait_per_rank * w->ranks);
  for (int p = 0; p < ACTIVITY_END; p++) {
    w->limit[p] = limits->seconds[p];
    if (w->limit[p] > 0) least = fmin(least, w->limit[p]);
  }
  w->wait = fmax(shortest_wait, fmin(longest_wait, least / 10));
  if (w->count < w->ranks) w->wait = fmin(w->wait, heartbeats);
  w->frozen = fmax(shortest_frozen + w->wait, least / 4);
}

static void destroy(Watchdog *w) {
  pthread_cond_destroy(&w->stopped);
  pthread_mutex_destroy(&w->lock);
  free(w->seen);
  free(w);
}

int watchdog_create(const WatchdogLimits *limits, PlaitWorld *world, int first, int count, Watchdog **watchdog,
                    Error *error) {
  *watchdog = NULL;
  if (!any_limit(limits)) return PLAIT_OK;
  Watchdog *w = xcalloc(1, sizeof *w);
  *w = (Watchdog){.world = world, .ranks = plait_world_size(world), .first = first, .count = count};
  set_limits(w, limits);
  w->seen = xcalloc((size_t)w->ranks, sizeof *w->seen);
  for (int r = 0; r < w->ranks; r++) {
    strcpy(w->seen[r].host, "a host whose name is not known");
    if (is_here(w, r)) gethostname(w->seen[r].host, sizeof w->seen[r].host - 1);
    watchdog_enter(w, r, ACTIVITY_START, 0);
    w->seen[r].received = w->seen[r].alive = clock_seconds();
  }
  if (count < w->ranks) exchange_heartbeats(w); // the others learn the host's name
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->stopped, NULL);
  int code = thread_start(&w->thread, watch, w, error, "the watchdog's thread");
  if (code) destroy(w);
  else *watchdog = w;
  return code;
}

void watchdog_destroy(Watchdog *w) {
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  w->stop = 1;
  pthread_cond_signal(&w->stopped);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  destroy(w);
}
