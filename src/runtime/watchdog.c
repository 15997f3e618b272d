// A thread that looks at clocks: each rank's own, and what it hears of the ranks in other processes.
#include "runtime/watchdog.h"
#include "comm/comm.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct { const char *key, *doing; } activities[] = {
#define ACTIVITY(name, key, doing) {key, doing},
#include "runtime/activities.def"
#undef ACTIVITY
};

enum { MONITORS = 2 }; // ranks that hear of all others; two, because the first may be the one that stands still
static const double longest_wait = 1, shortest_wait = 0.05, grace = 3; // seconds

// What is known of a rank. Of those in this process it is set by themselves.
typedef struct Seen {
  _Atomic int activity;
  _Atomic int64_t step;
  _Atomic double since; // when the activity began, by this process's clock
  double heard;         // when the last word of it came, of a rank in another process; at first when watching began
  uint64_t call;        // its last collective, as in comm.h
  char host[64];
} Seen;

struct Watchdog {
  PlaitWorld *world;
  double limit[ACTIVITY_COUNT], wait;
  int ranks, first, count;
  Seen *seen; // (ranks)
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t stopped;
  int stop;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int is_here(const Watchdog *w, int rank) { return rank >= w->first && rank < w->first + w->count; }
static int monitors(const Watchdog *w) { return w->count < w->ranks && w->first < MONITORS; }

void watchdog_enter(Watchdog *w, int rank, Activity activity, int64_t step) {
  if (!w) return;
  Seen *s = &w->seen[rank];
  atomic_store(&s->since, now());
  atomic_store(&s->step, step);
  atomic_store(&s->activity, activity);
}

// Who is to blame -----------------------------------------------------------------------------------------------------

static uint64_t call_of(const Watchdog *w, int rank) {
  return is_here(w, rank) ? comm_last(w->world, rank) : w->seen[rank].call;
}
static int is_silent(const Watchdog *w, int rank) {
  return !is_here(w, rank) && monitors(w) && now() - w->seen[rank].heard > 3 * w->wait + 1;
}

// A rank that no word comes from, else one that is not waiting for others, else one that is behind the others.
static int more_to_blame(const Watchdog *w, int a, int b) {
  const Seen *x = &w->seen[a], *y = &w->seen[b];
  if (is_silent(w, a) != is_silent(w, b)) return is_silent(w, a);
  int waits_a = comm_last_waits(call_of(w, a)), waits_b = comm_last_waits(call_of(w, b));
  if (waits_a != waits_b) return waits_b;
  if (x->step != y->step) return x->step < y->step;
  return x->since < y->since;
}

static int known(const Watchdog *w, int rank) { return is_here(w, rank) || monitors(w); }

static void describe(const Watchdog *w, int rank, char *text, size_t size) {
  const Seen *s = &w->seen[rank];
  char call[160];
  int activity = s->activity;
  comm_last_describe(call_of(w, rank), call, sizeof call);
  int n = snprintf(text, size, "rank %d on %s %s %.0f s after it began %s", rank, s->host, is_silent(w, rank) ? "gives no sign of life" : "stands still",
                   now() - s->since, activities[activity].doing);
  if (s->step > 0 && n > 0 && (size_t)n < size) n += snprintf(text + n, size - (size_t)n, " %lld", (long long)s->step);
  if (n > 0 && (size_t)n < size) snprintf(text + n, size - (size_t)n, "; %s", call);
}

static void bark(Watchdog *w, int passed) {
  char message[640], text[400];
  int culprit = passed;
  for (int r = 0; r < w->ranks; r++)
    if (known(w, r) && more_to_blame(w, r, culprit)) culprit = r;
  describe(w, culprit, text, sizeof text);
  int activity = w->seen[passed].activity;
  snprintf(message, sizeof message, "%s (%s: %g s)", text, activities[activity].key, w->limit[activity]);
  world_end(w->world, 1, message);
}

// Watching ------------------------------------------------------------------------------------------------------------

// Ranks that are no monitors know less: they speak only if those who know more do not.
static int passed_limit(const Watchdog *w) {
  double time = now(), patience = w->count < w->ranks && !monitors(w) ? grace : w->first ? grace / 2 : 0;
  for (int r = 0; r < w->ranks; r++) {
    const Seen *s = &w->seen[r];
    int activity = s->activity; // gcc 12 loads an atomic index as if it were plain: "w->limit[s->activity]"
    double limit = w->limit[activity];
    if (known(w, r) && activity != ACTIVITY_END && limit > 0 && time - s->since > limit + patience) return r;
  }
  return -1;
}

static void exchange_pulses(Watchdog *w) {
  const Seen *mine = &w->seen[w->first];
  Pulse pulse = {.rank = w->first, .activity = mine->activity, .step = mine->step, .seconds = now() - mine->since, .call = comm_last(w->world, w->first)};
  memcpy(pulse.host, mine->host, sizeof pulse.host);
  world_pulse_send(w->world, &pulse, MONITORS);
  while (world_pulse_receive(w->world, &pulse)) {
    if (pulse.rank < 0 || pulse.rank >= w->ranks || pulse.activity < 0 || pulse.activity >= ACTIVITY_COUNT || is_here(w, pulse.rank)) continue;
    Seen *s = &w->seen[pulse.rank];
    s->heard = now();
    s->activity = pulse.activity;
    s->step = pulse.step;
    s->since = s->heard - pulse.seconds;
    s->call = pulse.call;
    memcpy(s->host, pulse.host, sizeof s->host);
    s->host[sizeof s->host - 1] = 0;
  }
}

static void *watch(void *argument) {
  Watchdog *w = argument;
  double resumed = 0;
  pthread_mutex_lock(&w->lock);
  while (!w->stop) {
    struct timespec until;
    double before = now();
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(w->wait * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&w->stopped, &w->lock, &until);
    if (w->stop) break;
    if (w->count < w->ranks) exchange_pulses(w);
    // Who was stopped itself knows nothing of the others until it has heard of them again.
    if (now() - before > 3 * w->wait + 1) resumed = now();
    int rank = resumed && now() - resumed < grace ? -1 : passed_limit(w);
    if (rank >= 0) bark(w, rank);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

// An activity that is done has no limit.
static int set_limits(Watchdog *w, const WatchdogLimits *limits) {
  int any = 0;
  w->wait = longest_wait;
  for (int p = 0; p < ACTIVITY_END; p++) {
    double limit = w->limit[p] = limits->seconds[p];
    any |= limit > 0;
    if (limit > 0 && limit / 10 < w->wait) w->wait = limit / 10;
  }
  if (w->wait < shortest_wait) w->wait = shortest_wait;
  return any;
}

Watchdog *watchdog_create(const WatchdogLimits *limits, PlaitWorld *world, int first, int count) {
  Watchdog *w = xcalloc(1, sizeof *w);
  if (!set_limits(w, limits)) return free(w), NULL;
  w->world = world;
  w->ranks = plait_world_size(world);
  w->first = first;
  w->count = count;
  w->seen = xcalloc((size_t)w->ranks, sizeof *w->seen);
  for (int r = 0; r < w->ranks; r++) {
    strcpy(w->seen[r].host, "a host that has not told its name");
    if (is_here(w, r)) gethostname(w->seen[r].host, sizeof w->seen[r].host - 1);
    watchdog_enter(w, r, ACTIVITY_START, 0);
    w->seen[r].heard = now();
  }
  if (count < w->ranks) exchange_pulses(w); // the first word, so that the others know the name
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->stopped, NULL);
  CHECK(!pthread_create(&w->thread, NULL, watch, w), "cannot start the watchdog");
  return w;
}

void watchdog_destroy(Watchdog *w) {
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  w->stop = 1;
  pthread_cond_signal(&w->stopped);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  pthread_cond_destroy(&w->stopped);
  pthread_mutex_destroy(&w->lock);
  free(w->seen);
  free(w);
}
