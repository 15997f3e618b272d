// Running a round's workers.
#include "elastic/round.h"
#include "base/clock.h"
#include "base/signals.h"
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

static const double settle_seconds = 0.1;

int round_take_signals(int *fd, sigset_t *old, Error *error) {
  int stops[SIGNALS_MOST], count = signals_that_stop(stops);
  sigset_t set;
  struct sigaction was;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (int i = 0; i < count; i++)
    if (!sigaction(stops[i], NULL, &was) && was.sa_handler != SIG_IGN) sigaddset(&set, stops[i]);
  sigprocmask(SIG_BLOCK, &set, old);
  signal(SIGPIPE, SIG_IGN);
  *fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  return *fd >= 0 ? PLAIT_OK : error_set(error, PLAIT_FAILED, "signals cannot be read: %s", strerror(errno));
}

int round_start(Round *r, const WorkerPlan *plan, double grace, Error *error) {
  *r = (Round){.grace = grace, .number = plan->round, .memory_kills = failure_memory_kills()};
  return workers_start(plan, &r->workers, error);
}

bool round_running(const Round *r) { return workers_running(&r->workers) > 0; }

static void end_workers(Round *r) {
  if (r->told == 0) {
    workers_signal(&r->workers, SIGTERM);
    r->told = SIGTERM;
    r->end_at = clock_seconds() + r->grace;
    return;
  }
  for (int i = 0; i < r->workers.count; i++) // one by one: the guard stays
    if (!r->workers.worker[i].ended) kill(r->workers.worker[i].pid, SIGKILL);
  r->told = SIGKILL;
  r->end_at = clock_seconds() + 1;
}

void round_end_soon(Round *r) {
  if (!r->end_at) r->end_at = clock_seconds() + settle_seconds;
}

void round_ask(Round *r, int number, bool rank_0) {
  r->asked = number;
  if (!rank_0) return workers_signal(&r->workers, number);
  for (int i = 0; i < r->workers.count; i++)
    if (r->workers.worker[i].rank == 0 && !r->workers.worker[i].ended) kill(r->workers.worker[i].pid, number);
}

bool round_is_asked(const Worker *w) {
  return w->ended && WIFEXITED(w->status) && signals_is_status(worker_exit_status(w));
}

static bool any_failed(const Round *r) {
  for (int i = 0; i < r->workers.count; i++) {
    const Worker *w = &r->workers.worker[i];
    int status = w->ended && w->pid > 0 ? worker_exit_status(w) : 0;
    if (status && status != r->fine && !(r->may_be_asked && round_is_asked(w))) return true;
  }
  return false;
}

int round_look(Round *r) {
  bool all = !round_running(r);
  workers_read_notices(&r->workers);
  if (!r->failing && any_failed(r)) {
    r->failing = true;
    r->failed_at = clock_seconds();
  }
  int found = !r->failure.happened && failure_find(&r->workers, r->memory_kills, all, &r->failure);
  if (r->failing) round_end_soon(r);
  return found;
}

void round_reap(Round *r) {
  int excuse = r->may_be_asked ? r->asked : 0;
  workers_reap(&r->workers, r->told ? r->told : excuse);
}

// The descriptors that this round waits for: notices and output.
static int watch(const Round *r, struct pollfd *fd) {
  const Workers *w = &r->workers;
  int count = 0;
  fd[count++] = (struct pollfd){w->notices, POLLIN, 0};
  for (int i = 0; i < w->count; i++)
    for (int k = 0; k < WORKER_STREAMS; k++) fd[count++] = (struct pollfd){w->worker[i].stream[k].from, POLLIN, 0};
  return count;
}

void round_wait(Round *r, struct pollfd *other, int others, double seconds) {
  struct pollfd *fd = xcalloc((size_t)(1 + others + WORKER_STREAMS * r->workers.count), sizeof *fd);
  int own = r->workers.worker ? watch(r, fd) : 0;
  double left = r->end_at > 0 ? fmax(0, r->end_at - clock_seconds()) : INFINITY;
  if (seconds >= 0) left = fmin(left, seconds);
  memcpy(fd + own, other, (size_t)others * sizeof *fd);
  int ready = poll(fd, (nfds_t)(own + others), isinf(left) ? -1 : (int)(1000 * left) + (left > 0));
  for (int i = 0; i < others; i++) other[i].revents = ready > 0 ? fd[own + i].revents : 0;
  for (int i = 1; i < own && ready > 0; i++)
    if (fd[i].revents) workers_read_output(&r->workers.worker[(i - 1) / WORKER_STREAMS], (i - 1) % WORKER_STREAMS);
  if (ready > 0 && own && fd[0].revents) workers_read_notices(&r->workers);
  free(fd);
  if (r->end_at > 0 && clock_seconds() >= r->end_at && round_running(r)) end_workers(r);
}

void round_free(Round *r) {
  workers_end(&r->workers);
  r->end_at = 0;
}
