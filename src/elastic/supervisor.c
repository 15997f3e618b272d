// One machine's rounds: start, watch, end, start again.
#include "elastic/supervisor.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/signals.h"
#include "comm/net_socket.h"
#include "elastic/failure.h"
#include "elastic/journal.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <unistd.h>

static const double settle_seconds = 0.1;
enum { FIRST_PORT = 20000, PORTS = 12000 }; // below the ports that systems give out by themselves

typedef struct Supervisor {
  const LaunchOptions *options;
  char token[20]; // of this start
  int signals;    // signalfd
  Workers workers;
  Failure failure;          // of this round
  int round, restarts;
  int stop;                 // the signal that stops the job; 0: none
  char cause[sizeof((Failure){0}).sentence]; // of the round
  double caused;            // when
  double end_at;            // when the next signal ends the workers: SIGTERM, then SIGKILL; 0: they are not to end
  int64_t memory_kills;
  int told;                 // the signal that was sent for it: 0, SIGTERM or SIGKILL
  bool failing, journaled;
} Supervisor;

// Start and end ------------------------------------------------------------------------------------------------------

// Blocked, and read by poll: no handler, nothing between a check and a wait. What was ignored stays so (nohup).
static int take_signals(Supervisor *s, sigset_t *old, Error *error) {
  static const int stops[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU};
  sigset_t set;
  struct sigaction was;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
    if (!sigaction(stops[i], NULL, &was) && was.sa_handler != SIG_IGN) sigaddset(&set, stops[i]);
  sigprocmask(SIG_BLOCK, &set, old);
  signal(SIGPIPE, SIG_IGN);
  s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  return s->signals >= 0 ? PLAIT_OK : error_set(error, PLAIT_FAILED, "signals cannot be read: %s", strerror(errno));
}

static void make_token(char *token, size_t size) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) random = (uint64_t)getpid();
  snprintf(token, size, "%016llx", (unsigned long long)random);
}

// A port at which nobody listens now. Rank 0 takes one of those after it if somebody does then.
static int free_port(const char *address, const char *token) {
  unsigned start = (unsigned)strtoul(token + 8, NULL, 16);
  for (int i = 0; i < 100; i++) {
    int port = FIRST_PORT + (int)((start + 37u * (unsigned)i) % PORTS);
    NetAddress at;
    if (net_resolve(address, port, &at, NULL)) break;
    int fd = net_listen(&at);
    if (fd >= 0) return close(fd), port;
  }
  return FIRST_PORT + (int)(start % PORTS);
}

static int start_round(Supervisor *s, Error *error) {
  const LaunchOptions *o = s->options;
  const char *address = o->address ? o->address : "127.0.0.1";
  WorkerPlan plan = {.argv = o->argv, .count = o->workers, .ranks = o->workers, .nodes = 1, .host = address,
                     .port = free_port(address, s->token), .id = o->id, .token = s->token, .round = s->round,
                     .restarts = s->restarts, .most_restarts = o->most_restarts, .log_folder = o->log_folder,
                     .tee = o->tee};
  s->failure = (Failure){0};
  s->end_at = 0;
  s->told = 0;
  s->failing = s->journaled = false;
  s->memory_kills = failure_memory_kills();
  return workers_start(&plan, &s->workers, error);
}

static void write_journal(Supervisor *s) {
  char host[64] = "", members[200];
  if (s->journaled) return;
  s->journaled = true;
  gethostname(host, sizeof host - 1);
  snprintf(members, sizeof members, "[{\"host\": \"%s\", \"supervisor\": %ld, \"ranks\": [0, %d]}]", host,
           (long)getpid(), s->options->workers - 1);
  journal_round(s->options->run_folder,
                &(JournalRound){.round = s->round, .cause = s->cause, .restarts = s->restarts, .members = members,
                                .seconds = s->workers.step ? clock_seconds() - s->caused : -1,
                                .first_step = s->workers.step});
}

// Failure ------------------------------------------------------------------------------------------------------------

static int is_wrong_input(const Supervisor *s) {
  return FAULT(wrong_input_restarts, s->options->trains && s->failure.exit_status == 2, 0);
}

// What workers end with that do as they are told. One may have been told by another than the supervisor: a signal to
// any of them stops them all.
static int stop_status(const Supervisor *s) {
  return s->stop ? signals_status_of(s->stop) : s->options->trains ? FAULT(requeue_restarts, EX_TEMPFAIL, 0) : 0;
}

// A worker that a signal meets before it has a handler dies of it: there is nothing to save yet.
static int was_stopped(const Supervisor *s) {
  int status = s->failure.exit_status;
  return s->failure.happened && status && (status == stop_status(s) || (s->stop && status == 128 + s->stop));
}

static int will_restart(const Supervisor *s) {
  return !s->stop && !was_stopped(s) && !is_wrong_input(s) && s->restarts < s->options->most_restarts;
}

static void tell(Supervisor *s) {
  const Failure *f = &s->failure;
  const char *colon = is_wrong_input(s) ? strstr(f->sentence, ": ") : NULL;
  if (was_stopped(s)) return;
  if (colon) fprintf(stderr, "plait launch: %s\n", colon + 2); // not a rank's: all have read the same
  else if (will_restart(s))
    fprintf(stderr, "plait launch: %s; starting all %d workers again (restart %d of %d)\n", f->sentence,
            s->options->workers, s->restarts + 1, s->options->most_restarts);
  else if (s->stop || !s->options->most_restarts) fprintf(stderr, "plait launch: %s\n", f->sentence);
  else
    fprintf(stderr, "plait launch: %s; %s\n", f->sentence,
            s->options->most_restarts == 1 ? "the restart of --max-restarts is used up"
                                           : "the restarts of --max-restarts are used up");
}

// First they may end by themselves: workers that talk to each other have noticed, and end with a sentence.
static void end_workers(Supervisor *s) {
  if (s->told == 0) {
    workers_signal(&s->workers, SIGTERM);
    s->told = SIGTERM;
    s->end_at = clock_seconds() + s->options->grace;
    return;
  }
  for (int i = 0; i < s->workers.count; i++) // one by one: the guard stays
    if (!s->workers.worker[i].ended) kill(s->workers.worker[i].pid, SIGKILL);
  s->told = SIGKILL;
  s->end_at = clock_seconds() + 1;
}

// A worker has ended: finds out whether that is a failure; if so, all end.
static void look(Supervisor *s) {
  bool all = !workers_running(&s->workers);
  workers_read_notices(&s->workers);
  if (!s->failing && workers_any_failed(&s->workers, stop_status(s))) {
    s->failing = true;
    s->caused = clock_seconds();
  }
  if (!s->failure.happened && failure_find(&s->workers, s->memory_kills, all, &s->failure)) tell(s);
  if (s->failing && !s->end_at) s->end_at = clock_seconds() + settle_seconds;
}

// Signals ------------------------------------------------------------------------------------------------------------

static void take_signal(Supervisor *s, int number) {
  if (number == SIGCHLD) {
    if (workers_reap(&s->workers, s->told)) look(s);
    return;
  }
  if (!s->stop) s->stop = number;
  workers_signal(&s->workers, number); // a second one ends them at once
}

static void read_signals(Supervisor *s) {
  struct signalfd_siginfo info;
  while (read(s->signals, &info, sizeof info) == sizeof info) take_signal(s, (int)info.ssi_signo);
}

// A round -------------------------------------------------------------------------------------------------------------

typedef struct Watched { struct pollfd *fd; int count; } Watched;

static Watched watch(const Supervisor *s) {
  const Workers *w = &s->workers;
  Watched p = {xcalloc((size_t)(2 + WORKER_STREAMS * w->count), sizeof(struct pollfd)), 0};
  p.fd[p.count++] = (struct pollfd){s->signals, POLLIN, 0};
  p.fd[p.count++] = (struct pollfd){w->notices, POLLIN, 0};
  for (int i = 0; i < w->count; i++)
    for (int k = 0; k < WORKER_STREAMS; k++) p.fd[p.count++] = (struct pollfd){w->worker[i].stream[k].from, POLLIN, 0};
  return p;
}

static void read_ready(Supervisor *s, const Watched *p) {
  for (int i = 2; i < p->count; i++)
    if (p->fd[i].revents)
      workers_read_output(&s->workers.worker[(i - 2) / WORKER_STREAMS], (i - 2) % WORKER_STREAMS);
  if (p->fd[1].revents) workers_read_notices(&s->workers);
  if (s->workers.step) write_journal(s);
  if (p->fd[0].revents) read_signals(s);
}

// Until all workers have ended.
static void run_round(Supervisor *s) {
  while (workers_running(&s->workers)) {
    Watched p = watch(s);
    double left = s->end_at - clock_seconds();
    int limit = s->end_at > 0 ? (left > 0 ? (int)(1000 * left) + 1 : 0) : -1;
    if (poll(p.fd, (nfds_t)p.count, limit) > 0) read_ready(s, &p);
    free(p.fd);
    if (s->end_at > 0 && clock_seconds() >= s->end_at) end_workers(s);
  }
  look(s);
  failure_find_seen(&s->workers, &s->failure);
  if (s->failure.happened && s->failure.seen[0]) fprintf(stderr, "plait launch: the others: %s\n", s->failure.seen);
  write_journal(s);
  workers_end(&s->workers);
}

int launch_supervise(const LaunchOptions *options, int *status, Error *error) {
  Supervisor s = {.options = options, .caused = clock_seconds(), .cause = "start"};
  sigset_t old;
  make_token(s.token, sizeof s.token);
  int code = take_signals(&s, &old, error);
  for (bool again = true; again && !code; s.round += again) {
    code = start_round(&s, error);
    if (code) break;
    run_round(&s);
    again = s.failure.happened && will_restart(&s);
    if (again) {
      s.restarts++;
      snprintf(s.cause, sizeof s.cause, "%s", s.failure.sentence);
    }
  }
  *status = s.failure.happened ? s.failure.exit_status : 0;
  if (was_stopped(&s)) *status = stop_status(&s);
  else if (s.stop && !s.failure.happened && !options->trains)
    *status = stop_status(&s); // training says itself whether it is done
  if (!code) journal_end(options->run_folder, s.round + 1, s.restarts, *status,
                         s.failure.happened && !was_stopped(&s) ? s.failure.sentence : NULL);
  if (s.signals >= 0) close(s.signals);
  sigprocmask(SIG_SETMASK, &old, NULL);
  return code;
}
