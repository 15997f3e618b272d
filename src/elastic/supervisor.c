// One machine's rounds: start, watch, end, start again.
#include "elastic/supervisor.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/signals.h"
#include "checkpoint/left.h"
#include "elastic/journal.h"
#include "elastic/machines.h"
#include "elastic/port.h"
#include "elastic/rescue.h"
#include "elastic/round.h"
#include "net/secret.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <unistd.h>

typedef struct Supervisor {
  const LaunchOptions *options;
  char token[20]; // of this start
  char secret[SECRET_TEXT]; // of its workers; "": the user has given one
  int signals;    // signalfd
  Round round;
  int number, restarts;
  int stop;       // the signal that stops the job; 0: none
  char cause[sizeof((Failure){0}).sentence]; // of the round
  double caused;  // when
  bool journaled;
} Supervisor;

// Start and end ------------------------------------------------------------------------------------------------------

static void make_token(char *token, size_t size) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) random = (uint64_t)getpid();
  snprintf(token, size, "%016llx", (unsigned long long)random);
}

static int start_round(Supervisor *s, Error *error) {
  const LaunchOptions *o = s->options;
  const char *address = o->address ? o->address : "127.0.0.1";
  WorkerPlan plan = {.argv = o->argv, .count = o->workers, .ranks = o->workers, .nodes = 1, .host = address,
                     .port = port_free(address, s->token), .id = o->id, .token = s->token, .round = s->number,
                     .restarts = s->restarts, .most_restarts = o->most_restarts, .log_folder = o->log_folder,
                     .tee = o->tee, .insecure = o->insecure, .secret = s->secret};
  s->journaled = false;
  return round_start(&s->round, &plan, o->grace, error);
}

static void write_journal(Supervisor *s) {
  char host[64] = "", members[200];
  if (s->journaled) return;
  s->journaled = true;
  gethostname(host, sizeof host - 1);
  snprintf(members, sizeof members, "[{\"host\": \"%s\", \"supervisor\": %ld, \"ranks\": [0, %d]}]", host,
           (long)getpid(), s->options->workers - 1);
  journal_round(s->options->run_folder,
                &(JournalRound){.round = s->number, .cause = s->cause, .restarts = s->restarts, .members = members,
                                .seconds = s->round.workers.step ? clock_seconds() - s->caused : -1,
                                .first_step = s->round.workers.step});
}

// Failure ------------------------------------------------------------------------------------------------------------

static int is_wrong_input(const Supervisor *s) {
  return FAULT(wrong_input_restarts, s->options->trains && s->round.failure.exit_status == 2, 0);
}

// What workers end with that do as they are told. One may have been told by another than the supervisor: a signal to
// any of them stops them all.
static int stop_status(const Supervisor *s) {
  return s->stop ? signals_status_of(s->stop) : s->options->trains ? FAULT(requeue_restarts, EX_TEMPFAIL, 0) : 0;
}

// A worker that a signal meets before it has a handler dies of it: there is nothing to save yet.
static int was_stopped(const Supervisor *s) {
  int status = s->round.failure.exit_status;
  return s->round.failure.happened && status && (status == stop_status(s) || (s->stop && status == 128 + s->stop));
}

static int will_restart(const Supervisor *s) {
  return !s->stop && !was_stopped(s) && !is_wrong_input(s) && !s->round.failure.lasts &&
         s->restarts < s->options->most_restarts;
}

static void tell(Supervisor *s) {
  const Failure *f = &s->round.failure;
  const char *colon = is_wrong_input(s) ? strstr(f->sentence, ": ") : NULL;
  if (was_stopped(s)) return;
  if (colon) fprintf(stderr, "plait launch: %s\n", colon + 2); // not a rank's: all have read the same
  else if (will_restart(s))
    fprintf(stderr, "plait launch: %s; starting all %d workers again (restart %d of %d)\n", f->sentence,
            s->options->workers, s->restarts + 1, s->options->most_restarts);
  else if (f->lasts && !s->stop && s->options->most_restarts)
    fprintf(stderr, "plait launch: %s; %s\n", f->sentence, failure_lasts);
  else if (s->stop || !s->options->most_restarts) fprintf(stderr, "plait launch: %s\n", f->sentence);
  else
    fprintf(stderr, "plait launch: %s; %s\n", f->sentence,
            s->options->most_restarts == 1 ? "the restart of --max-restarts is used up"
                                           : "the restarts of --max-restarts are used up");
}

static void look(Supervisor *s) {
  bool failing = s->round.failing;
  s->round.fine = stop_status(s);
  if (round_look(&s->round)) tell(s);
  if (s->round.failing && !failing) s->caused = s->round.failed_at;
}

// A round -------------------------------------------------------------------------------------------------------------

static void read_signals(Supervisor *s) {
  struct signalfd_siginfo info;
  while (read(s->signals, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) {
      round_reap(&s->round);
      look(s);
      continue;
    }
    if (!s->stop) s->stop = (int)info.ssi_signo;
    workers_signal(&s->round.workers, (int)info.ssi_signo); // a second SIGINT ends them at once
  }
}

// What they have left in memory outlives the round as a checkpoint, also where no restart is left.
static void save_memory(Supervisor *s) {
  const RescuePlace place = {.job = s->token, .round = s->number, .ranks = s->options->workers};
  if (!s->round.failure.happened || was_stopped(s)) return;
  rescue_end(rescue_begin(&s->round.workers, &place));
  read_signals(s); // that came meanwhile
}

// Until all workers have ended.
static void run_round(Supervisor *s) {
  while (round_running(&s->round)) {
    struct pollfd signals = {s->signals, POLLIN, 0};
    round_wait(&s->round, &signals, 1, -1);
    if (s->round.workers.step) write_journal(s);
    if (signals.revents) read_signals(s);
  }
  look(s);
  write_journal(s);
  save_memory(s);
  round_free(&s->round);
}

static int supervise_one(const LaunchOptions *options, int signals, int *status, Error *error) {
  Supervisor s = {.options = options, .caused = clock_seconds(), .cause = "start", .signals = signals};
  int code = PLAIT_OK;
  make_token(s.token, sizeof s.token);
  if (!secret_is_users()) UNLESS_FAULT(launch_draws_no_secret) secret_draw(s.secret);
  for (bool again = true; again && !code; s.number += again) {
    code = start_round(&s, error);
    if (code) break;
    run_round(&s);
    again = s.round.failure.happened && will_restart(&s);
    if (again) {
      s.restarts++;
      snprintf(s.cause, sizeof s.cause, "%s", s.round.failure.sentence);
    }
  }
  *status = s.round.failure.happened ? s.round.failure.exit_status : 0;
  if (was_stopped(&s)) *status = stop_status(&s);
  else if (s.stop && !s.round.failure.happened && !options->trains)
    *status = stop_status(&s); // training says itself whether it is done
  if (options->run_folder) left_remove(options->run_folder, false); // of workers that were killed
  if (!code)
    journal_end(options->run_folder, s.number + 1, s.restarts, *status,
                s.round.failure.happened && !was_stopped(&s) ? s.round.failure.sentence : NULL);
  return code;
}

int launch_supervise(const LaunchOptions *options, int *status, Error *error) {
  int signals = -1;
  sigset_t old;
  int code = round_take_signals(&signals, &old, error);
  if (!code)
    code = options->endpoints ? machines_supervise(options, signals, status, error)
                              : supervise_one(options, signals, status, error);
  if (signals >= 0) close(signals);
  sigprocmask(SIG_SETMASK, &old, NULL);
  return code;
}
