// The lines of a supervisor: those on stderr, and those of launch.jsonl.
#include "base/clock.h"
#include "base/fault.h"
#include "elastic/journal.h"
#include "elastic/supervisor_parts.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double long_wait_seconds = 10;

// Waiting -------------------------------------------------------------------------------------------------------------

void supervisor_say_waiting(Supervisor *me, const char *text) {
  if (!strcmp(me->waiting, text)) return;
  snprintf(me->waiting, sizeof me->waiting, "%s", text);
  if (*text) fprintf(stderr, "plait launch: %s\n", text);
}

static void tell_waiting(Supervisor *me) {
  const LaunchOptions *o = me->options;
  char text[sizeof me->waiting] = "";
  const JobState *s = me->state;
  if (!s || !me->here || s->phase != JOB_GATHERS || rounds_possible(s, &me->membership.limits))
    return supervisor_say_waiting(me, "");
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
  supervisor_say_waiting(me, text);
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

// Says in `text` for what this machine waits while none of its workers runs. "": nothing.
static void describe_wait(const Supervisor *me, char *text, size_t size) {
  const JobState *s = me->state;
  char hosts[200];
  *text = 0;
  if (!s || s->phase == JOB_DONE || me->leaving || round_running(&me->round)) return;
  if (!me->here) return (void)snprintf(text, size, "this machine has not joined the job yet");
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
static void tell_long_wait(Supervisor *me) {
  char text[sizeof me->awaited], store[80];
  describe_wait(me, text, sizeof text);
  if (strcmp(text, me->awaited)) {
    memcpy(me->awaited, text, sizeof me->awaited);
    me->awaited_since = clock_seconds();
    me->awaited_told = false;
  }
  if (!*text || me->awaited_told || clock_seconds() - me->awaited_since < long_wait_seconds) return;
  member_store(me->member, store, sizeof store);
  me->awaited_told = true;
  UNLESS_FAULT(long_waits_are_silent)
  fprintf(stderr, "plait launch: still waiting after %.0f s (store at %s): %s\n", long_wait_seconds, store, text);
}

void supervisor_say_waits(Supervisor *me) {
  if (supervisor_is_alone(me)) return;
  tell_waiting(me);
  tell_long_wait(me);
}

// Failures and rounds -------------------------------------------------------------------------------------------------

// The words of plait train about wrong input are not those of one rank: all have read the same.
static bool all_say_it(const JobFailure *f) {
  return f->wrong_input && f->status == SUPERVISOR_WRONG_INPUT && *f->words;
}

// settled: the state says what follows, else it will be this.
static void describe_what_follows(const Supervisor *me, const JobFailure *f, bool settled, char *text, size_t size) {
  const JobState *s = me->state;
  int most = me->options->most_restarts, restart = s->restarts + !settled;
  bool stops = s->stop || (!settled && me->stopping);
  bool again = settled ? s->phase != JOB_DONE : !stops && rounds_try_again(s, &me->membership.limits, f);
  *text = 0;
  if (again && s->phase == JOB_GATHERS) snprintf(text, size, " (restart %d of %d)", restart, most);
  else if (again)
    snprintf(text, size, "; starting all %d workers again (restart %d of %d)", job_ranks(s), restart, most);
  else if (stops || !most || all_say_it(f)) return;
  else if (f->wrong_input) snprintf(text, size, "; %s", failure_is_left);
  else
    snprintf(text, size, "; the restart%s of --max-restarts %s used up", most == 1 ? "" : "s",
             most == 1 ? "is" : "are");
}

// A failure is told once: whole where it happened, in a line on the others.
static void tell_failure(Supervisor *me, const JobFailure *f, bool settled) {
  char after[120], text[FAILURE_SENTENCE];
  if (f->round <= me->printed) return;
  me->printed = f->round;
  describe_what_follows(me, f, settled, after, sizeof after);
  if (strcmp(f->machine, member_id(me->member)))
    fprintf(stderr, "plait launch: rank %d on %s failed; that machine prints how%s\n", f->rank, f->host, after);
  failure_print(all_say_it(f) ? "" : f->how, f->words, text, sizeof text);
  if (!strcmp(f->machine, member_id(me->member))) fprintf(stderr, "plait launch: %s%s\n", text, after);
}

void supervisor_say_own_failure(Supervisor *me, const JobFailure *f) { tell_failure(me, f, false); }

static void tell_round(Supervisor *me) {
  const JobState *s = me->state;
  if (s->phase == JOB_DONE && !s->count && !me->leaving)
    fprintf(stderr, "plait launch: the job has ended, with status %d, while this machine was cut off\n", s->status);
  if (s->phase != JOB_RUNS || s->round <= me->announced) return;
  if (s->round > 0 && !(s->failure.counted && s->failure.round == s->round - 1))
    fprintf(stderr, "plait launch: %s; round %d has %d machine%s and %d rank%s\n", s->cause, s->round, job_members(s),
            job_members(s) == 1 ? "" : "s", job_ranks(s), job_ranks(s) == 1 ? "" : "s");
  if (me->here && !me->here->ranks)
    fprintf(stderr, "plait launch: %s is a spare in round %d: it starts nothing, and waits for the next one\n",
            me->here->host, s->round);
  me->announced = s->round;
}

void supervisor_say_news(Supervisor *me) {
  if (me->state->failure.counted) tell_failure(me, &me->state->failure, true);
  tell_round(me);
}

// launch.jsonl --------------------------------------------------------------------------------------------------------

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

void supervisor_write_journal(Supervisor *me, bool ended) {
  const JobState *s = me->state;
  if (me->journaled || !me->here || me->here->first || !me->here->ranks || s->round != me->begun) return;
  if (!me->round.workers.step && !ended) return;
  me->journaled = true;
  char *members = list_members(s);
  journal_round(me->options->run_folder,
                &(JournalRound){.round = s->round, .cause = s->cause, .restarts = s->restarts, .members = members,
                                .seconds = me->round.workers.step ? clock_seconds() - me->caused : -1,
                                .first_step = me->round.workers.step});
  free(members);
}

