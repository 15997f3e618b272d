// A machine of several: it follows the job's state, runs its workers of each round, and tells what becomes of them.
#include "elastic/machines.h"
#include "base/clock.h"
#include "base/fault.h"
#include "checkpoint/left.h"
#include "elastic/copies.h"
#include "elastic/journal.h"
#include "elastic/member.h"
#include "elastic/rescue.h"
#include "elastic/rescue_folder.h"
#include "elastic/round.h"
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { wrong_input_status = 2 }; // of plait train
static const double look_seconds = 0.5, stale_seconds = 1, cut_off_silences = 3, long_wait_seconds = 10;

typedef struct Machines {
  const LaunchOptions *options;
  MemberOptions membership;
  Member *member;
  int signals;
  JobState *state;      // as it is known here; NULL: not yet
  Machine *here;        // this machine in it; NULL: it is not
  Round round;          // of this machine's workers
  bool working;         // it has any, or had and has not told how they ended
  int begun;            // the last round that was started here
  int ranks;            // of that round, on all machines
  int printed;          // the last round whose failure was printed
  int announced;        // the last round whose beginning was printed
  int leaving;          // the signal by which this machine leaves; 0: it does not
  int stopping;         // the signal by which the job stops; 0: it does not
  double caused;        // when the round before was seen to end, or this machine began
  double ticked_at;     // when this process has last looked; 0: not since the round was started
  bool paused;          // in this round it did not look for longer than --silence: it was stopped
  double ended_at;      // when all workers had ended
  double first_ended_at; // when rank 0's machine was seen to have ended this round; 0: it has not
  double cut_off_at;    // since when there is no store; 0: there is one
  Copies *copies;       // of other machines' memory, and of the one here; NULL: none are made
  Rescue *rescue;       // of what this round's workers have left in memory; NULL: none is under way
  bool rescued;         // whatever came of it
  bool journaled;
  char waiting[300];    // what was said of it
  char awaited[300];    // what this machine waits for, by describe_wait; "": nothing
  double awaited_since;
  bool awaited_told;
} Machines;

// What is printed -----------------------------------------------------------------------------------------------------

static void say_waiting(Machines *m, const char *text) {
  if (!strcmp(m->waiting, text)) return;
  snprintf(m->waiting, sizeof m->waiting, "%s", text);
  if (*text) fprintf(stderr, "plait launch: %s\n", text);
}

static void tell_waiting(Machines *m) {
  const LaunchOptions *o = m->options;
  char text[sizeof m->waiting] = "";
  const JobState *s = m->state;
  if (!s || !m->here || s->phase != JOB_GATHERS || rounds_possible(s, &m->membership.limits)) return say_waiting(m, "");
  int ranks = 0, count = 0;
  for (int i = 0; i < s->count; i++) count += !s->machine[i].leaving;
  for (int i = 0; i < s->count; i++) ranks += s->machine[i].leaving ? 0 : s->machine[i].nproc;
  if (count < o->least)
    snprintf(text, sizeof text, "waiting for machines: %d of at least %d %s here", count, o->least,
             count == 1 ? "is" : "are");
  else if (o->ranks)
    snprintf(text, sizeof text, "waiting for machines: the mesh has %d ranks, and the %d machine%s here start%s %d",
             o->ranks, count, count == 1 ? "" : "s", count == 1 ? "s" : "", ranks);
  else
    snprintf(text, sizeof text, "waiting for machines: the mesh takes a multiple of %d ranks, and there are %d",
             o->unit, ranks);
  say_waiting(m, text);
}

// The hosts of the machines that `named` is true of, as far as there is room.
static void name_hosts(const JobState *s, bool (*named)(const Machine *), char *text, size_t size) {
  size_t n = 0;
  *text = 0;
  for (int i = 0; i < s->count; i++) {
    const Machine *k = &s->machine[i];
    if (!named(k)) continue;
    if (n + sizeof k->host + 8 >= size) return (void)snprintf(text + n, size - n, ", …");
    n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "", k->host);
  }
}

static bool is_any(const Machine *machine) { return machine->nproc > 0; }
static bool is_awaited(const Machine *machine) { return machine->ranks && !machine->ended; }

// What this machine waits for while none of its workers runs. "": nothing.
static void describe_wait(const Machines *m, char *text, size_t size) {
  const JobState *s = m->state;
  char hosts[200];
  *text = 0;
  if (!s || s->phase == JOB_DONE || m->leaving || round_running(&m->round)) return;
  if (!m->here) return (void)snprintf(text, size, "this machine has not joined the job yet");
  if (s->phase == JOB_ENDS) {
    name_hosts(s, is_awaited, hosts, sizeof hosts);
    if (*hosts)
      snprintf(text, size, "round %d ends as soon as the workers of %s have ended", s->round, hosts);
    else snprintf(text, size, "round %d has ended, but no machine has begun the next one", s->round);
  } else if (s->phase == JOB_GATHERS) {
    name_hosts(s, is_any, hosts, sizeof hosts);
    snprintf(text, size, "only these machines have joined: %s", hosts);
  }
}

// After a long wait: prints once what is missing, and at which store.
static void tell_long_wait(Machines *m) {
  char text[sizeof m->awaited], store[80];
  describe_wait(m, text, sizeof text);
  if (strcmp(text, m->awaited)) {
    memcpy(m->awaited, text, sizeof m->awaited);
    m->awaited_since = clock_seconds();
    m->awaited_told = false;
  }
  if (!*text || m->awaited_told || clock_seconds() - m->awaited_since < long_wait_seconds) return;
  member_store(m->member, store, sizeof store);
  m->awaited_told = true;
  UNLESS_FAULT(long_waits_are_silent)
  fprintf(stderr, "plait launch: still waiting after %.0f s (store at %s): %s\n", long_wait_seconds, store, text);
}

// A failure is told once: whole where it happened, in a line on the others.
static void tell_failure(Machines *m) {
  const JobState *s = m->state;
  const JobFailure *f = &s->failure;
  const LaunchOptions *o = m->options;
  bool own = !strcmp(f->machine, member_id(m->member));
  if (!f->counted || f->round <= m->printed) return;
  m->printed = f->round;
  const char *colon = f->wrong_input && f->status == wrong_input_status ? strstr(f->sentence, ": ") : NULL;
  char after[120] = "";
  if (s->phase == JOB_GATHERS) snprintf(after, sizeof after, " (restart %d of %d)", s->restarts, o->most_restarts);
  else if (s->phase != JOB_DONE)
    snprintf(after, sizeof after, "; starting all %d workers again (restart %d of %d)", job_ranks(s), s->restarts,
             o->most_restarts);
  else if (o->most_restarts && !f->wrong_input && !s->stop) snprintf(after, sizeof after, "; no restart is left");
  else if (o->most_restarts && !colon && !s->stop) snprintf(after, sizeof after, "; %s", failure_lasts);
  if (!own) fprintf(stderr, "plait launch: rank %d on %s failed; that machine prints how%s\n", f->rank, f->host, after);
  else fprintf(stderr, "plait launch: %s%s\n", colon ? colon + 2 : f->sentence, after);
}

static void tell_round(Machines *m) {
  const JobState *s = m->state;
  if (s->phase == JOB_DONE && !s->count && !m->leaving)
    fprintf(stderr, "plait launch: the job has ended, with status %d, while this machine was cut off\n", s->status);
  if (s->phase != JOB_RUNS || s->round <= m->announced) return;
  if (s->round > 0 && !(s->failure.counted && s->failure.round == s->round - 1))
    fprintf(stderr, "plait launch: %s; round %d has %d machine%s and %d rank%s\n", s->cause, s->round, job_members(s),
            job_members(s) == 1 ? "" : "s", job_ranks(s), job_ranks(s) == 1 ? "" : "s");
  if (m->here && !m->here->ranks)
    fprintf(stderr, "plait launch: %s is a spare in round %d: it starts nothing, and waits for the next one\n",
            m->here->host, s->round);
  m->announced = s->round;
}

// As JSON; the caller frees it.
static char *list_members(const JobState *s) {
  json_t *list = json_array();
  for (int i = 0; i < s->count; i++) {
    const Machine *k = &s->machine[i];
    if (k->ranks)
      json_array_append_new(list, json_pack("{s:s, s:i, s:[i, i]}", "host", k->host, "supervisor", k->pid, "ranks",
                                            k->first, k->first + k->ranks - 1));
  }
  char *text = json_dumps(list, 0);
  json_decref(list);
  CHECK(text, "out of memory");
  return text;
}

// By the machine of rank 0.
static void write_journal(Machines *m, bool ended) {
  const JobState *s = m->state;
  if (m->journaled || !m->here || m->here->first || !m->here->ranks || s->round != m->begun) return;
  if (!m->round.workers.step && !ended) return;
  m->journaled = true;
  char *members = list_members(s);
  journal_round(m->options->run_folder,
                &(JournalRound){.round = s->round, .cause = s->cause, .restarts = s->restarts, .members = members,
                                .seconds = m->round.workers.step ? clock_seconds() - m->caused : -1,
                                .first_step = m->round.workers.step});
  free(members);
}

// A round -------------------------------------------------------------------------------------------------------------

// Of the members that are still there; NULL: there is none.
static const Machine *first_machine_left(const JobState *s) {
  const Machine *first = NULL;
  for (int i = 0; i < s->count; i++)
    if (s->machine[i].ranks && (!first || s->machine[i].first < first->first)) first = &s->machine[i];
  return first;
}

static const Machine *first_machine(const JobState *s) {
  for (int i = 0; i < s->count; i++)
    if (s->machine[i].ranks && !s->machine[i].first) return &s->machine[i];
  return NULL;
}

static int place_of(const JobState *s, const Machine *machine) {
  int place = 0;
  for (int i = 0; i < s->count; i++) place += s->machine[i].ranks && s->machine[i].first < machine->first;
  return place;
}

// If copies cannot be started, a line says why and training continues without them.
static void start_copies(Machines *m) {
  const JobState *s = m->state;
  const Machine *next = job_next(s, m->here);
  const CopiesPlace place = {.address = m->here->address, .port = m->here->copies_port, .next = next->address,
                             .next_port = next->copies_port, .next_host = next->host, .ranks = m->ranks,
                             .insecure = m->options->insecure, .secret = s->secret};
  Error error = {0};
  if (!m->options->copies || next == m->here) return;
  if (copies_start(&m->round.workers, &place, &m->copies, &error))
    fprintf(stderr, "plait launch: no copies of what the machines have in memory are made here: %s\n", error.message);
}

static int start_round(Machines *m, Error *error) {
  const LaunchOptions *o = m->options;
  const JobState *s = m->state;
  const Machine *first = first_machine(s);
  WorkerPlan plan = {.argv = o->argv,
                     .count = m->here->ranks,
                     .first_rank = m->here->first,
                     .ranks = job_ranks(s),
                     .node = place_of(s, m->here),
                     .nodes = job_members(s),
                     .host = first ? first->address : "127.0.0.1",
                     .port = first ? first->port : 0,
                     .id = o->id,
                     .token = s->job,
                     .round = s->round,
                     .restarts = s->restarts,
                     .most_restarts = o->most_restarts,
                     .log_folder = o->log_folder,
                     .tee = o->tee,
                     .copies = o->copies && job_members(s) > 1,
                     .insecure = o->insecure,
                     .secret = s->secret};
  m->begun = s->round;
  m->ranks = job_ranks(s);
  m->working = true;
  m->journaled = m->rescued = m->paused = false;
  m->ended_at = m->first_ended_at = 0;
  member_set_busy(m->member, true);
  if (!m->here->first) rescue_folder_remove_left(o->run_folder);
  int code = round_start(&m->round, &plan, o->grace, error);
  m->round.may_be_asked = true;
  m->ticked_at = 0; // to start workers may take its time
  if (!code) start_copies(m);
  return code;
}

// Whether the workers here may have ended because another machine told the round to save and stop. They have not failed
// then, although this supervisor has not read that from the store yet: it looks again before it reports.
static bool is_unclear(const Machines *m) {
  const Workers *w = &m->round.workers;
  if (m->state->phase != JOB_RUNS || m->state->round != m->begun || m->round.asked) return false;
  if (clock_seconds() - m->ended_at > stale_seconds) return false;
  for (int i = 0; i < w->count; i++)
    if (round_is_asked(&w->worker[i])) return true;
  return false;
}

static void excuse(Machines *m) {
  Workers *w = &m->round.workers;
  if (m->state->phase != JOB_ENDS || m->state->ending == ENDING_NONE) return;
  for (int i = 0; i < w->count; i++)
    if (round_is_asked(&w->worker[i]) && !w->worker[i].told) w->worker[i].told = SIGTERM;
}

static void drop_copies(Machines *m) {
  copies_end(m->copies);
  m->copies = NULL;
}

// All workers of this machine have ended: what the others must know.
static void report(Machines *m) {
  static const Failure none;
  Workers *w = &m->round.workers;
  JobRoundEnd end = {.round = m->begun, .finished = true, .paused = m->paused};
  JobFailure *f = &end.failure;
  excuse(m);
  m->round.failure = none;
  round_look(&m->round);
  for (int i = 0; i < w->count; i++) {
    end.finished &= worker_exit_status(&w->worker[i]) == 0;
    bool is_word =
        w->worker[i].rank == 0 ? WIFEXITED(w->worker[i].status) : !end.status && round_is_asked(&w->worker[i]);
    if (is_word) end.status = worker_exit_status(&w->worker[i]);
  }
  const Failure *found = &m->round.failure;
  if (found->happened) {
    *f = (JobFailure){.round = m->begun, .weight = found->weight, .rank = found->rank, .status = found->exit_status,
                      .blames = found->blames};
    f->wrong_input =
        found->lasts || FAULT(wrong_input_restarts, m->options->trains && found->exit_status == wrong_input_status, 0);
    snprintf(f->machine, sizeof f->machine, "%s", member_id(m->member));
    gethostname(f->host, sizeof f->host - 1);
    snprintf(f->sentence, sizeof f->sentence, "%s", found->sentence);
  }
  write_journal(m, true);
  drop_copies(m);
  round_free(&m->round);
  m->working = false;
  member_ended(m->member, &end);
  member_set_busy(m->member, false);
}

// Who saves what is in memory: of the members of the round those that are still there.
static RescueLoss loss_of(const Machines *m) {
  const JobState *s = m->state;
  const Machine *leader = first_machine_left(s);
  return (RescueLoss){.machines = s->lost, .ranks_left = job_ranks(s), .leader = leader ? leader->first : -1};
}

// All workers here have ended. After a failure the next round waits, since this machine says that they have ended,
// until what they have left in memory is a checkpoint. Returns whether that is under way.
static bool saves_memory(Machines *m) {
  const JobState *s = m->state;
  RescuePlace place = {s->job, m->begun, m->ranks, m->options->run_folder, m->options->grace};
  bool is_here = s->round == m->begun, failed = m->round.failing || (is_here && s->ending >= ENDING_LOST);
  if (!m->rescued && failed) {
    copies_stop(m->copies);
    place.copied = m->options->copies;
    place.copies = copies_files(m->copies, &place.copy);
    m->rescue = rescue_begin(&m->round.workers, &place);
  }
  m->rescued = true;
  const RescueLoss loss = loss_of(m);
  if (m->rescue && is_here && loss.machines) rescue_lose(m->rescue, &loss);
  for (int i = 0; i < s->count && m->rescue && is_here; i++)
    if (s->machine[i].ranks && s->machine[i].ended && &s->machine[i] != m->here)
      rescue_ended(m->rescue, s->machine[i].first);
  if (m->rescue && !rescue_is_done(m->rescue)) return true;
  rescue_end(m->rescue);
  m->rescue = NULL;
  return false;
}

static void drop_round(Machines *m) {
  if (m->rescue) rescue_abandon(m->rescue);
  rescue_end(m->rescue);
  m->rescue = NULL;
  drop_copies(m);
  round_free(&m->round);
}

// The workers of a round that has gone on without this machine.
static void abandon(Machines *m, const char *why) {
  fprintf(stderr, "plait launch: %s; the workers here are ended\n", why);
  drop_round(m);
  m->working = false;
  if (m->state && m->state->round == m->begun) { // they may all have been cut off, and the round still be running
    member_failing(m->member, m->begun);
    member_ended(m->member, &(JobRoundEnd){.round = m->begun, .paused = m->paused});
  }
  member_set_busy(m->member, false);
}

// Rank 0, which was asked to end, may have done so before the ranks had found each other: then nobody tells the others,
// and they would wait for it for two minutes.
static bool is_left_by_rank_0(Machines *m) {
  const Machine *first = first_machine(m->state);
  if (!m->options->trains || !first || !first->ended) return false;
  if (!m->first_ended_at) m->first_ended_at = clock_seconds();
  return clock_seconds() - m->first_ended_at > stale_seconds;
}

// Whether the round ends because machines join or leave, and another one follows: at least one machine stays.
static bool job_continues(const JobState *s) {
  bool stays = false;
  for (int i = 0; i < s->count; i++) stays |= !s->machine[i].leaving;
  return s->ending == ENDING_CHANGED && stays;
}

// What the state says about the round that runs here.
static void follow(Machines *m) {
  const JobState *s = m->state;
  if (!m->here || !m->here->ranks || s->round != m->begun || s->phase == JOB_DONE)
    return abandon(m, m->here || s->phase == JOB_DONE
                          ? "the other machines have gone on without this one"
                          : "this machine said nothing for --silence seconds, and counts as lost");
  if (s->phase != JOB_ENDS) return;
  if (m->round.failed_at == 0) m->round.failed_at = clock_seconds();
  worker_pages_set_continues(&m->round.workers.pages, job_continues(s)); // before rank 0 is asked
  if (s->ending >= ENDING_LOST) round_end_soon(&m->round);
  else if (!m->round.asked)
    round_ask(&m->round, s->ending == ENDING_STOPPED ? s->stop : SIGTERM, m->options->trains);
  else if (is_left_by_rank_0(m)) round_end_soon(&m->round);
}

static void look_at_workers(Machines *m) {
  round_look(&m->round);
  if (m->round.failing && m->state->phase == JOB_RUNS && m->state->round == m->begun)
    member_failing(m->member, m->begun);
  if (round_running(&m->round)) return;
  if (!m->ended_at) m->ended_at = clock_seconds();
  if (!is_unclear(m) && !saves_memory(m)) report(m);
}

// Signals -------------------------------------------------------------------------------------------------------------

// A second Ctrl-C ends the workers at once. Other signals come more than once by themselves, and change nothing then.
static void leave(Machines *m, int signal) {
  if (m->leaving && m->working && FAULT(any_second_signal_kills, signal == SIGINT, 1)) {
    fprintf(stderr, "plait launch: a second SIGINT: the workers here are killed, and save nothing\n");
    m->round.told = SIGKILL;
    workers_signal(&m->round.workers, SIGKILL);
  }
  if (!m->leaving) m->leaving = signal;
  member_leave(m->member);
}

static void read_signals(Machines *m) {
  struct signalfd_siginfo info;
  while (read(m->signals, &info, sizeof info) == sizeof info) {
    int number = (int)info.ssi_signo;
    if (number == SIGCHLD) {
      if (m->working) round_reap(&m->round);
    } else if (number == SIGTERM || number == SIGINT || number == SIGHUP) leave(m, number);
    else {
      if (!m->stopping) member_stop(m->member, number);
      m->stopping = number;
    }
  }
}

// -------------------------------------------------------------------------------------------------------------------

static int look(Machines *m, Error *error) {
  char text[300];
  int phase = m->state ? (int)m->state->phase : -1;
  free(m->state);
  int code = member_look(m->member, &m->state, &m->here, error);
  if (member_waits(m->member, text, sizeof text)) {
    say_waiting(m, text);
    if (!m->cut_off_at) m->cut_off_at = clock_seconds();
    if (m->working && clock_seconds() - m->cut_off_at > cut_off_silences * m->options->silence)
      abandon(m, "this machine is cut off from the store");
  } else {
    m->cut_off_at = 0;
    tell_waiting(m);
    tell_long_wait(m);
  }
  if (m->state && phase == JOB_RUNS && (int)m->state->phase != JOB_RUNS) m->caused = clock_seconds();
  return code;
}

// Whether there is nothing more to do here; then *status.
static bool is_over(Machines *m, int *status) {
  const JobState *s = m->state;
  if (m->working) return false;
  if (s && s->phase == JOB_DONE) return *status = m->leaving ? 128 + m->leaving : s->status, true;
  if (m->leaving && (!s || !m->here)) return *status = 128 + m->leaving, true;
  if (m->stopping && !s) return *status = 128 + m->stopping, true;
  return false;
}

// A machine that was stopped and wakes finds that the others take it for lost, and its workers fail because of it.
static void note_time(Machines *m) {
  double now = clock_seconds();
  if (m->working && m->ticked_at && now - m->ticked_at > m->options->silence) m->paused = true;
  m->ticked_at = now;
}

static int run(Machines *m, int *status, Error *error) {
  for (;;) {
    struct pollfd other[2] = {{m->signals, POLLIN, 0}, {member_event(m->member), POLLIN, 0}};
    round_wait(&m->round, other, 2, look_seconds / (m->working && !round_running(&m->round) ? 10 : 1));
    note_time(m);
    int code = look(m, error);
    if (other[0].revents) read_signals(m);
    if (code) return code;
    if (m->state) {
      tell_failure(m);
      tell_round(m);
    }
    if (m->working && m->state) {
      write_journal(m, false);
      follow(m);
      if (m->working) look_at_workers(m);
    }
    if (is_over(m, status)) return PLAIT_OK;
    if (!m->working && m->here && m->here->ranks && m->state->round > m->begun) {
      if (m->state->phase == JOB_RUNS) code = start_round(m, error);
      else if (m->state->phase == JOB_ENDS) // it ends before it has begun here
        member_ended(m->member, &(JobRoundEnd){.round = m->begun = m->state->round});
    }
    if (code) return code;
  }
}

// Rank 0's machine writes the end, too; where it is lost or has left, the one that keeps the store or its lease.
static bool writes_the_end(const Machines *m) {
  const Machine *first = first_machine(m->state);
  return first ? first == m->here : member_keeps(m->member);
}

// With the last machine its store goes, and the job with it. (etcd keeps the state for machines that come later.)
static void end_with_the_last(Machines *m, int status) {
  Error ignored = {0};
  free(m->state);
  m->state = NULL;
  if (member_look(m->member, &m->state, &m->here, &ignored) || !m->state) return;
  const JobState *s = m->state;
  if (s->phase == JOB_DONE || s->round < 0 || FAULT(last_machines_end_nothing, s->count, 1)) return;
  if (!member_serves(m->member)) return;
  journal_end(m->options->run_folder, s->round + 1, s->restarts, status, NULL);
  member_end_job(m->member, status);
}

static void finish(Machines *m, int status) {
  const JobState *s = m->state;
  bool is_last = s && s->phase == JOB_DONE && writes_the_end(m);
  if (is_last && m->options->run_folder) left_remove(m->options->run_folder, false);
  if (is_last)
    journal_end(m->options->run_folder, s->round + 1, s->restarts, status,
                status && s->failure.counted && s->failure.round == s->round ? s->failure.sentence : NULL);
  if (s && s->phase != JOB_DONE && s->count > 0 && member_serves(m->member) && !strchr(m->options->endpoints, ','))
    fprintf(stderr, "plait launch: the store stays here until the other machines have ended; a second endpoint in "
                    "--rdzv would let it move\n");
  member_finish(m->member, m->signals);
  if (m->leaving) end_with_the_last(m, status);
}

int machines_supervise(const LaunchOptions *o, int signals, int *status, Error *error) {
  Machines m = {.options = o, .signals = signals, .begun = -1, .printed = -1, .announced = -1,
                .caused = clock_seconds()};
  m.membership = (MemberOptions){.endpoints = o->endpoints, .id = o->id, .insecure = o->insecure,
                                 .silence = o->silence, .patience = o->patience, .recipe = o->recipe, .what = o->what,
                                 .folder = o->run_folder, .address = o->address, .nproc = o->workers,
                                 .node_rank = o->node_rank, .copies = o->copies,
                                 .limits = {o->least, o->most, o->most_restarts, o->ranks, o->unit}};
  int code = member_open(&m.membership, &m.member, error);
  if (!code) code = run(&m, status, error);
  drop_round(&m);
  if (!code) finish(&m, *status);
  member_close(m.member);
  free(m.state);
  return code;
}
