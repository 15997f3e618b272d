// One round of a supervisor's own workers: it starts them, asks them to end when the state says so, and tells the state
// how they have ended.
#include "base/clock.h"
#include "base/fault.h"
#include "base/signals.h"
#include "elastic/port.h"
#include "elastic/rescue_folder.h"
#include "elastic/supervisor_parts.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

static const double stale_seconds = 1;

// Start ---------------------------------------------------------------------------------------------------------------

// Of the members that are still there; NULL: there is none.
static const Machine *first_machine_left(const JobState *s) {
  const Machine *first = NULL;
  for (int i = 0; i < s->count; i++)
    if (s->machine[i].ranks && (!first || s->machine[i].first < first->first)) first = &s->machine[i];
  return first;
}

const Machine *supervisor_first_machine(const JobState *s) {
  for (int i = 0; i < s->count; i++)
    if (s->machine[i].ranks && !s->machine[i].first) return &s->machine[i];
  return NULL;
}

static int place_of(const JobState *s, const Machine *machine) {
  int place = 0;
  for (int i = 0; i < s->count; i++) place += s->machine[i].ranks && s->machine[i].first < machine->first;
  return place;
}

// Of rank 0. Where no other machine has to know it, one that is free now.
static int port_of(const Supervisor *me, const Machine *first) {
  return supervisor_is_alone(me) ? port_free(first->address, me->state->job) : first->port;
}

// If copies cannot be started, a line says why and training continues without them.
static void start_copies(Supervisor *me) {
  const JobState *s = me->state;
  const Machine *next = job_next(s, me->here);
  const CopiesPlace place = {.address = me->here->address, .port = me->here->copies_port, .next = next->address,
                             .next_port = next->copies_port, .next_host = next->host, .ranks = me->ranks,
                             .insecure = me->options->insecure, .secret = s->secret};
  Error error = {0};
  if (!me->options->copies || next == me->here) return;
  if (copies_start(&me->round.workers, &place, &me->copies, &error))
    fprintf(stderr, "plait launch: no copies of what the machines have in memory are made here: %s\n", error.message);
}

int supervisor_round_start(Supervisor *me, Error *error) {
  const LaunchOptions *o = me->options;
  const JobState *s = me->state;
  const Machine *first = supervisor_first_machine(s);
  WorkerPlan plan = {.argv = o->argv, .count = me->here->ranks, .first_rank = me->here->first, .ranks = job_ranks(s),
                     .node = place_of(s, me->here), .nodes = job_members(s),
                     .host = first ? first->address : "127.0.0.1", .port = first ? port_of(me, first) : 0, .id = o->id,
                     .token = s->job, .round = s->round, .restarts = s->restarts, .most_restarts = o->most_restarts,
                     .log_folder = o->log_folder, .tee = o->tee, .copies = o->copies && job_members(s) > 1,
                     .insecure = o->insecure, .secret = s->secret, .net = o->net};
  me->begun = s->round;
  me->ranks = job_ranks(s);
  me->working = true;
  me->journaled = me->rescued = me->paused = false;
  me->ended_at = me->first_ended_at = 0;
  member_set_busy(me->member, true);
  if (!supervisor_is_alone(me) && !me->here->first) rescue_folder_remove_left(o->run_folder);
  int code = round_start(&me->round, &plan, o->grace, error);
  me->round.may_be_asked = !supervisor_is_alone(me);
  me->ticked_at = 0; // to start workers may take its time
  if (!code) start_copies(me);
  return code;
}

// How they end --------------------------------------------------------------------------------------------------------

static int stop_signal(const Supervisor *me) { return me->state->stop ? me->state->stop : me->stopping; }

// The status of workers that do as they are told. One may have been told by another than the supervisor: a signal to
// any of them that says that the time is up stops them all.
static int stop_status(const Supervisor *me) {
  int stop = stop_signal(me);
  return stop ? signals_status_of(stop) : me->options->trains ? FAULT(requeue_restarts, EX_TEMPFAIL, 0) : 0;
}

// A worker that a signal meets before it has a handler dies of it: there is nothing to save yet.
static bool was_stopped(const Supervisor *me) {
  int status = me->round.failure.exit_status, stop = stop_signal(me);
  return me->round.failure.happened && status && (status == stop_status(me) || (stop && status == 128 + stop));
}

static JobFailure own_failure(const Supervisor *me) {
  const Failure *found = &me->round.failure;
  bool is_wrong = me->options->trains && found->exit_status == SUPERVISOR_WRONG_INPUT;
  bool lasts = failure_lasts(found) || FAULT(wrong_input_restarts, is_wrong, 0);
  return rounds_failure(found, me->begun, member_id(me->member), lasts);
}

// Which worker has failed first. Where no other machine's may have failed before, it is told at once.
static void find_failure(Supervisor *me) {
  me->round.fine = stop_status(me);
  if (!round_look(&me->round) || !supervisor_is_alone(me) || was_stopped(me)) return;
  JobFailure f = own_failure(me);
  supervisor_say_own_failure(me, &f);
}

static void excuse(Supervisor *me) {
  Workers *w = &me->round.workers;
  if (!me->round.may_be_asked || me->state->phase != JOB_ENDS || me->state->ending == ENDING_NONE) return;
  for (int i = 0; i < w->count; i++)
    if (round_is_asked(&w->worker[i]) && !w->worker[i].told) w->worker[i].told = SIGTERM;
}

static void drop_copies(Supervisor *me) {
  copies_end(me->copies);
  me->copies = NULL;
}

static void count_ends(const Workers *w, JobRoundEnd *end) {
  for (int i = 0; i < w->count; i++) {
    const Worker *worker = &w->worker[i];
    end->finished &= worker_exit_status(worker) == 0;
    bool is_word = worker->rank == 0 ? WIFEXITED(worker->status) : !end->status && round_is_asked(worker);
    if (is_word) end->status = worker_exit_status(worker);
  }
}

// All workers of this machine have ended: what the state must know. Commands of plait say themselves whether they are
// done; another program that was stopped does not.
static void report(Supervisor *me) {
  static const Failure none;
  JobRoundEnd end = {.round = me->begun, .finished = true, .paused = me->paused};
  excuse(me);
  if (me->printed < me->begun) me->round.failure = none; // what is told stays
  find_failure(me);
  count_ends(&me->round.workers, &end);
  if (stop_signal(me) && !me->options->says_done) end.finished = FAULT(stopped_programs_are_done, false, end.finished);
  if (was_stopped(me) && !stop_signal(me)) supervisor_stop(me, SIGUSR1); // or another that says the same
  else if (me->round.failure.happened && !was_stopped(me)) end.failure = own_failure(me);
  supervisor_write_journal(me, true);
  if (me->round.failed_at > 0) me->caused = me->round.failed_at;
  drop_copies(me);
  round_free(&me->round);
  me->working = false;
  member_ended(me->member, &end);
  member_set_busy(me->member, false);
}

// Who saves what is in memory: of the members of the round those that are still there.
static RescueLoss loss_of(const Supervisor *me) {
  const JobState *s = me->state;
  const Machine *leader = first_machine_left(s);
  return (RescueLoss){.machines = s->lost, .ranks_left = job_ranks(s), .leader = leader ? leader->first : -1};
}

// All workers here have ended. After a failure the next round waits, since this machine says that they have ended,
// until what they have left in memory is a checkpoint. Returns whether that is under way.
static bool saves_memory(Supervisor *me) {
  const JobState *s = me->state;
  RescuePlace place = {s->job, me->begun, me->ranks, me->options->run_folder, me->options->grace};
  bool is_here = s->round == me->begun, failed = me->round.failing || (is_here && s->ending >= ENDING_LOST);
  if (!me->rescued && failed) {
    copies_stop(me->copies);
    place.copied = me->options->copies;
    place.copies = copies_files(me->copies, &place.copy);
    me->rescue = rescue_begin(&me->round.workers, &place);
  }
  me->rescued = true;
  const RescueLoss loss = loss_of(me);
  if (me->rescue && is_here && loss.machines) rescue_lose(me->rescue, &loss);
  for (int i = 0; i < s->count && me->rescue && is_here; i++)
    if (s->machine[i].ranks && s->machine[i].ended && &s->machine[i] != me->here)
      rescue_ended(me->rescue, s->machine[i].first);
  if (me->rescue && !rescue_is_done(me->rescue)) return true;
  rescue_end(me->rescue);
  me->rescue = NULL;
  return false;
}

void supervisor_round_drop(Supervisor *me) {
  if (me->rescue) rescue_abandon(me->rescue);
  rescue_end(me->rescue);
  me->rescue = NULL;
  drop_copies(me);
  round_free(&me->round);
}

// The workers of a round that continues without this machine.
void supervisor_round_abandon(Supervisor *me, const char *why) {
  fprintf(stderr, "plait launch: %s; the workers here are ended\n", why);
  supervisor_round_drop(me);
  me->working = false;
  if (me->state && me->state->round == me->begun) { // they may all have been cut off, and the round still be running
    member_failing(me->member, me->begun);
    member_ended(me->member, &(JobRoundEnd){.round = me->begun, .paused = me->paused});
  }
  member_set_busy(me->member, false);
}

// Rank 0, which was asked to end, may have done so before the ranks had found each other: then nobody tells the others,
// and they would wait for it for two minutes.
static bool is_left_by_rank_0(Supervisor *me) {
  const Machine *first = supervisor_first_machine(me->state);
  if (!me->options->trains || !first || !first->ended) return false;
  if (!me->first_ended_at) me->first_ended_at = clock_seconds();
  return clock_seconds() - me->first_ended_at > stale_seconds;
}

// Whether the round ends because machines join or leave, and another one follows: at least one machine stays.
static bool job_continues(const JobState *s) {
  bool stays = false;
  for (int i = 0; i < s->count; i++) stays |= !s->machine[i].leaving;
  return s->ending == ENDING_CHANGED && stays;
}

// Following the state -------------------------------------------------------------------------------------------------

// Whether the workers here may have ended because another machine told the round to save and stop. They have not failed
// then, although this supervisor has not read that from the store yet: it looks again before it reports.
static bool is_unclear(const Supervisor *me) {
  const Workers *w = &me->round.workers;
  if (!me->round.may_be_asked) return false;
  if (me->state->phase != JOB_RUNS || me->state->round != me->begun || me->round.asked) return false;
  if (clock_seconds() - me->ended_at > stale_seconds) return false;
  for (int i = 0; i < w->count; i++)
    if (round_is_asked(&w->worker[i])) return true;
  return false;
}

// Does what the state says about the round that runs here.
static void follow(Supervisor *me) {
  const JobState *s = me->state;
  if (!me->here || !me->here->ranks || s->round != me->begun || s->phase == JOB_DONE)
    return supervisor_round_abandon(me, me->here || s->phase == JOB_DONE
                                            ? "the other machines have gone on without this one"
                                            : "this machine said nothing for --silence seconds, and counts as lost");
  if (s->phase != JOB_ENDS) return;
  if (me->round.failed_at == 0) me->round.failed_at = clock_seconds();
  worker_pages_set_continues(&me->round.workers.pages, job_continues(s)); // before rank 0 is asked
  if (s->ending >= ENDING_LOST) round_end_soon(&me->round);
  else if (!me->round.asked)
    round_ask(&me->round, s->ending == ENDING_STOPPED ? s->stop : SIGTERM,
              me->options->trains && !supervisor_is_alone(me));
  else if (is_left_by_rank_0(me)) round_end_soon(&me->round);
}

static void look_at_workers(Supervisor *me) {
  find_failure(me);
  if (me->round.failing && me->state->phase == JOB_RUNS && me->state->round == me->begun)
    member_failing(me->member, me->begun);
  if (round_running(&me->round)) return;
  if (!me->ended_at) me->ended_at = clock_seconds();
  if (!is_unclear(me) && !saves_memory(me)) report(me);
}

void supervisor_round_follow(Supervisor *me) {
  supervisor_write_journal(me, false);
  follow(me);
  if (me->working) look_at_workers(me);
}
