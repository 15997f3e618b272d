// The supervisor: it follows the job's state, runs this machine's workers of each round, and tells what becomes of
// them.
#include "elastic/supervisor.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/signals.h"
#include "checkpoint/left.h"
#include "elastic/journal.h"
#include "elastic/supervisor_parts.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const double look_seconds = 0.5, ending_seconds = 0.01, cut_off_silences = 3;

// Signals -------------------------------------------------------------------------------------------------------------

// A second Ctrl-C ends the workers at once. Other signals come more than once by themselves, and change nothing then.
static void leave(Supervisor *me, int signal) {
  if (me->leaving && me->working && FAULT(any_second_signal_kills, signals_second_ends(signal), true)) {
    fprintf(stderr, "plait launch: a second %s: the workers here are killed, and save nothing\n", signals_name(signal));
    me->round.told = SIGKILL;
    workers_signal(&me->round.workers, SIGKILL);
  }
  if (!me->leaving) me->leaving = signal;
  member_leave(me->member);
}

void supervisor_stop(Supervisor *me, int number) {
  if (me->stopping) return;
  me->stopping = number;
  member_stop(me->member, number);
}

// Of one machine every signal is passed to the workers, which save and end, and the job with them. A machine of several
// leaves the job, unless the signal says that the time is up, which it then is for all.
static void take_signal(Supervisor *me, int number) {
  bool leaves = signals_status_of(number) == 128 + number;
  if (supervisor_is_alone(me)) {
    if (me->working) round_ask(&me->round, number, false); // again, too: a second SIGINT ends them at once
    supervisor_stop(me, number);
  } else if (leaves) leave(me, number);
  else supervisor_stop(me, number);
}

static void read_signals(Supervisor *me) {
  struct signalfd_siginfo info;
  while (read(me->signals, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) take_signal(me, (int)info.ssi_signo);
    else if (me->working) round_reap(&me->round);
  }
}

// -------------------------------------------------------------------------------------------------------------------

static int look(Supervisor *me, Error *error) {
  char text[300];
  int phase = me->state ? (int)me->state->phase : -1;
  free(me->state);
  int code = member_look(me->member, &me->state, &me->here, error);
  if (member_waits(me->member, text, sizeof text)) {
    supervisor_say_waiting(me, text);
    if (!me->cut_off_at) me->cut_off_at = clock_seconds();
    if (me->working && clock_seconds() - me->cut_off_at > cut_off_silences * me->options->silence)
      supervisor_round_abandon(me, "this machine is cut off from the store");
  } else {
    me->cut_off_at = 0;
    supervisor_say_waits(me);
  }
  if (me->state && phase == JOB_RUNS && (int)me->state->phase != JOB_RUNS) me->caused = clock_seconds();
  return code;
}

// Whether there is nothing more to do here; then *status.
static bool is_over(Supervisor *me, int *status) {
  const JobState *s = me->state;
  if (me->working) return false;
  if (s && s->phase == JOB_DONE) return *status = me->leaving ? 128 + me->leaving : s->status, true;
  if (me->leaving && (!s || !me->here)) return *status = 128 + me->leaving, true;
  if (me->stopping && !s) return *status = 128 + me->stopping, true;
  return false;
}

// A machine that was stopped and wakes finds that the others take it for lost, and its workers fail because of it.
// Without others nobody has taken it for lost.
static void note_time(Supervisor *me) {
  double now = clock_seconds();
  if (!supervisor_is_alone(me) && me->working && me->ticked_at && now - me->ticked_at > me->options->silence)
    me->paused = true;
  me->ticked_at = now;
}

static int run(Supervisor *me, int *status, Error *error) {
  for (;;) {
    struct pollfd other[2] = {{me->signals, POLLIN, 0}, {member_event(me->member), POLLIN, 0}};
    round_wait(&me->round, other, 2, me->working && !round_running(&me->round) ? ending_seconds : look_seconds);
    note_time(me);
    int code = look(me, error);
    if (other[0].revents) read_signals(me);
    if (code) return code;
    if (me->state) supervisor_say_news(me);
    if (me->working && me->state) supervisor_round_follow(me);
    if (is_over(me, status)) return PLAIT_OK;
    if (!me->working && me->here && me->here->ranks && me->state->round > me->begun) {
      if (me->state->phase == JOB_RUNS) code = supervisor_round_start(me, error);
      else if (me->state->phase == JOB_ENDS) // it ends before it has begun here
        member_ended(me->member, &(JobRoundEnd){.round = me->begun = me->state->round});
    }
    if (code) return code;
  }
}

// Rank 0's machine writes the end, too; where it is lost or has left, the one that keeps the store or its lease.
static bool writes_the_end(const Supervisor *me) {
  const Machine *first = supervisor_first_machine(me->state);
  return first ? first == me->here : member_keeps(me->member);
}

// With the last machine its store goes, and the job with it. (etcd keeps the state for machines that come later.)
static void end_with_the_last(Supervisor *me, int status) {
  Error ignored = {0};
  free(me->state);
  me->state = NULL;
  if (member_look(me->member, &me->state, &me->here, &ignored) || !me->state) return;
  const JobState *s = me->state;
  if (s->phase == JOB_DONE || s->round < 0 || FAULT(last_machines_end_nothing, s->count, 1)) return;
  if (!member_serves(me->member)) return;
  journal_end(me->options->run_folder, s->round + 1, s->restarts, status, NULL);
  member_end_job(me->member, status);
}

static void finish(Supervisor *me, int status) {
  const JobState *s = me->state;
  bool is_last = s && s->phase == JOB_DONE && writes_the_end(me);
  if (is_last && me->options->run_folder) left_remove(me->options->run_folder, false);
  if (is_last) {
    const JobFailure *f = &s->failure;
    const JournalFailure failure = {.rank = f->rank, .how = f->how, .words = f->words};
    journal_end(me->options->run_folder, s->round + 1, s->restarts, status,
                status && f->counted && f->round == s->round ? &failure : NULL);
  }
  if (s && s->phase != JOB_DONE && s->count > 0 && member_serves(me->member) && !strchr(me->options->endpoints, ','))
    fprintf(stderr, "plait launch: the store stays here until the other machines have ended; a second endpoint in "
                    "--rdzv would let it move\n");
  member_finish(me->member, me->signals);
  if (me->leaving) end_with_the_last(me, status);
}

// A job of one machine has the ranks that it starts, whatever the mesh: one process may have several as threads.
static MemberOptions membership_of(const LaunchOptions *o) {
  bool is_alone = !o->endpoints;
  return (MemberOptions){.endpoints = o->endpoints, .id = o->id, .insecure = o->insecure, .silence = o->silence,
                         .patience = o->patience, .recipe = o->recipe, .what = o->what,
                         .folder = is_alone ? NULL : o->run_folder, .address = o->address, .nproc = o->workers,
                         .node_rank = o->node_rank, .copies = o->copies && !is_alone,
                         .limits = {.least = o->least, .most = o->most, .restarts = o->most_restarts,
                                    .exactly = is_alone ? 0 : o->ranks, .unit = is_alone ? 1 : o->unit}};
}

static int supervise(const LaunchOptions *o, int signals, int *status, Error *error) {
  Supervisor me = {.options = o, .membership = membership_of(o), .signals = signals, .begun = -1, .printed = -1,
                   .announced = -1, .caused = clock_seconds()};
  int code = member_open(&me.membership, &me.member, error);
  if (code) return code;
  code = run(&me, status, error);
  supervisor_round_drop(&me);
  if (!code) finish(&me, *status);
  else if (supervisor_is_alone(&me) && o->run_folder) left_remove(o->run_folder, false); // of workers that were killed
  member_close(me.member);
  free(me.state);
  return code;
}

int launch_supervise(const LaunchOptions *options, int *status, Error *error) {
  int signals = -1;
  sigset_t old;
  int code = round_take_signals(&signals, &old, error);
  if (!code) code = supervise(options, signals, status, error);
  if (signals >= 0) close(signals);
  sigprocmask(SIG_SETMASK, &old, NULL);
  return code;
}
