// Forming and ending rounds.
#include "elastic/rounds.h"
#include "base/fault.h"
#include "base/signals.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void set_cause(JobState *s, const char *format, const char *host) {
  snprintf(s->cause, sizeof s->cause, format, host);
}

static void end(JobState *s, JobEnding why) {
  s->phase = JOB_ENDS;
  s->asked |= why == ENDING_CHANGED || why == ENDING_STOPPED;
  if (why > s->ending) s->ending = why;
}

static void drop(JobState *s, Machine *m) {
  size_t after = (size_t)(&s->machine[s->count] - m) - 1;
  memmove(m, m + 1, after * sizeof *m);
  s->count--;
}

// Forming -------------------------------------------------------------------------------------------------------------

// Those that have asked for a number take its place among the others, in the order in which they came.
static int order(const JobState *s, int *index) {
  int n = 0;
  for (int i = 0; i < s->count; i++) {
    if (s->machine[i].leaving) continue;
    int at = n++, mine = s->machine[i].node_rank;
    for (; mine >= 0 && at > 0; at--) {
      int theirs = s->machine[index[at - 1]].node_rank;
      if (theirs >= 0 && theirs <= mine) break;
      index[at] = index[at - 1];
    }
    index[at] = i;
  }
  return n;
}

// ranks[i]: what machine i would start. Returns the sum of them; 0: no round yet.
static int plan(const JobState *s, const RoundLimits *l, int *ranks) {
  int *index = calloc((size_t)s->count + 1, sizeof *index), sum = 0;
  int n = index ? order(s, index) : 0, used = n < l->most ? n : l->most;
  memset(ranks, 0, (size_t)s->count * sizeof *ranks);
  for (int k = 0; k < used && n >= l->least; k++) {
    int room = l->exactly ? l->exactly - sum : s->machine[index[k]].nproc;
    sum += ranks[index[k]] = s->machine[index[k]].nproc < room ? s->machine[index[k]].nproc : room;
  }
  int wanted = l->exactly ? (sum < l->exactly ? 0 : l->exactly) : l->unit > 1 ? sum - sum % l->unit : sum;
  for (int k = used - 1; k >= 0 && sum > wanted; k--) {
    int less = sum - wanted < ranks[index[k]] ? sum - wanted : ranks[index[k]];
    ranks[index[k]] -= less;
    sum -= less;
  }
  free(index);
  return sum;
}

int rounds_possible(const JobState *s, const RoundLimits *l) {
  int *ranks = calloc((size_t)s->count + 1, sizeof *ranks), sum = ranks ? plan(s, l, ranks) : 0;
  free(ranks);
  return sum;
}

static bool form(JobState *s, const RoundLimits *l) {
  int *ranks = calloc((size_t)s->count + 1, sizeof *ranks), *index = calloc((size_t)s->count + 1, sizeof *index),
      at = 0;
  int sum = ranks && index ? plan(s, l, ranks) : 0, n = index ? order(s, index) : 0;
  if (sum) {
    s->phase = JOB_RUNS;
    s->ending = ENDING_NONE;
    s->round++;
    s->lost = 0;
    *s->lost_host = 0;
    s->asked = false;
    for (int k = 0; k < n; k++) {
      Machine *m = &s->machine[index[k]];
      m->first = at;
      at += m->ranks = ranks[index[k]];
      m->ended = m->finished = false;
    }
  }
  free(ranks);
  free(index);
  return sum > 0;
}

// Coming and going ----------------------------------------------------------------------------------------------------

bool rounds_join(JobState *s, const RoundLimits *l, const Machine *machine) {
  if (s->phase == JOB_DONE || s->count == JOB_MACHINES || job_machine(s, machine->id)) return false;
  Machine *m = &s->machine[s->count++];
  *m = *machine;
  m->first = m->ranks = 0;
  m->ended = m->finished = m->leaving = false;
  if (s->phase == JOB_RUNS && rounds_possible(s, l) > job_ranks(s)) {
    end(s, ENDING_CHANGED);
    set_cause(s, "%s has joined", m->host);
  }
  return true;
}

bool rounds_leave(JobState *s, const char *id) {
  Machine *m = job_machine(s, id);
  if (!m || m->leaving) return false;
  m->leaving = true;
  if (m->ranks && s->phase == JOB_RUNS) {
    end(s, ENDING_CHANGED);
    set_cause(s, "%s has said goodbye", m->host);
  }
  if (!m->ranks || s->phase == JOB_GATHERS || s->phase == JOB_DONE) drop(s, m);
  return true;
}

bool rounds_lose(JobState *s, const char *id) {
  Machine *m = job_machine(s, id);
  if (!m) return false;
  if (m->ranks && (s->phase == JOB_RUNS || s->phase == JOB_ENDS)) {
    if (!s->lost++) {
      set_cause(s, "%s was lost", m->host);
      snprintf(s->lost_host, sizeof s->lost_host, "%s", m->host);
    }
    end(s, ENDING_LOST);
  }
  drop(s, m);
  return true;
}

bool rounds_stop(JobState *s, int signal) {
  if (s->stop || s->phase == JOB_DONE) return false;
  s->stop = signal;
  if (s->phase == JOB_RUNS) end(s, ENDING_STOPPED);
  return true;
}

// Ending --------------------------------------------------------------------------------------------------------------

bool rounds_failing(JobState *s, const char *id, int round) {
  Machine *m = job_machine(s, id);
  if (!m || !m->ranks || m->ended || s->round != round || s->ending == ENDING_FAILED) return false;
  if (s->phase != JOB_RUNS && s->phase != JOB_ENDS) return false;
  end(s, ENDING_FAILED);
  return true;
}

JobFailure rounds_failure(const Failure *f, int round, const char *machine, bool wrong_input) {
  JobFailure to = {.round = round, .weight = f->weight, .rank = f->rank, .status = f->exit_status,
                   .blamed = error_blames(&f->said, f->rank), .wrong_input = wrong_input};
  snprintf(to.machine, sizeof to.machine, "%s", machine);
  gethostname(to.host, sizeof to.host - 1);
  if (to.blamed >= 0) memcpy(to.blamed_host, f->said.blamed.host, sizeof to.blamed_host);
  memcpy(to.how, f->how, sizeof to.how);
  memcpy(to.words, f->said.message, sizeof to.words);
  to.text = f->said.text;
  return to;
}

static int gravity(const JobFailure *f) { return f->weight ? 2 * f->weight - (f->blamed >= 0) : 0; }

// Where the stop comes while a round ends for another reason, its workers have been asked to end by SIGTERM.
static void note_status(JobState *s, int status) {
  bool of_stop = FAULT(stop_has_any_status, status != 128 + SIGTERM || s->stop == SIGTERM, true);
  if (s->stop && status && of_stop) s->status = status;
}

bool rounds_ended(JobState *s, const char *id, const JobRoundEnd *how) {
  const JobFailure *failure = &how->failure;
  Machine *m = job_machine(s, id);
  if (!m || !m->ranks || m->ended || s->round != how->round) return false;
  if (s->phase != JOB_RUNS && s->phase != JOB_ENDS) return false;
  m->ended = true;
  m->finished = how->finished;
  if (FAULT(pauses_are_failures, how->paused && !how->finished, false)) {
    if (!s->asked && !s->lost) set_cause(s, "%s was stopped for longer than --silence", m->host);
    s->asked = true;
    end(s, ENDING_LOST);
  }
  if (FAULT(last_status_counts, m->first == 0, true) || !s->status) note_status(s, how->status);
  if (failure->weight) {
    end(s, ENDING_FAILED);
    if (s->failure.round != how->round || gravity(failure) > gravity(&s->failure)) s->failure = *failure;
  }
  return true;
}

static bool all_ended(const JobState *s, bool *finished) {
  *finished = true;
  for (int i = 0; i < s->count; i++) {
    const Machine *m = &s->machine[i];
    if (m->ranks && !m->ended) return false;
    if (m->ranks && !m->finished) *finished = false;
  }
  return true;
}

// Where a machine is lost or was stopped, or workers end at different moments since they were asked to, others fail
// because of it; only one that a signal killed has failed itself. All workers of one machine are asked at the same
// moment, and its supervisor knows what it has told each.
static bool is_own_failure(const JobState *s, const RoundLimits *l) {
  bool may_follow = FAULT(stops_excuse_one_machine, l->most > 1, true) && (s->lost || s->asked);
  return s->failure.round == s->round && s->failure.weight && (!may_follow || s->failure.weight == 3);
}

static bool finish(JobState *s, int status) {
  s->phase = JOB_DONE;
  s->status = status;
  return true;
}

static bool finish_stopped(JobState *s) { return finish(s, s->status ? s->status : signals_status_of(s->stop)); }

// The others' last word of a lost machine, which can say nothing itself.
static void add_what_others_saw(JobState *s) {
  const JobFailure *f = &s->failure;
  bool seen = f->round == s->round && f->weight && f->blamed >= 0;
  size_t n = strlen(s->cause), all = strlen(f->words);
  const char *words = f->words + ((size_t)f->text < all ? (size_t)f->text : 0); // not in which call that was
  if (!s->lost || !seen || strcmp(s->lost_host, f->blamed_host)) return;
  if (n + strlen(words) + 4 < sizeof s->cause)
    snprintf(s->cause + n, sizeof s->cause - n, " (%s)", FAULT(lost_without_a_word, words, ""));
}

bool rounds_try_again(const JobState *s, const RoundLimits *l, const JobFailure *f) {
  return !s->stop && !f->wrong_input && s->restarts < l->restarts;
}

static bool settle(JobState *s, const RoundLimits *l) {
  bool finished, own = is_own_failure(s, l);
  if (!all_ended(s, &finished) || (s->phase == JOB_RUNS && !finished)) return false;
  if (finished && !s->lost && !own) return finish(s, 0);
  s->failure.counted |= own;
  if (!own) add_what_others_saw(s);
  if (own) {
    failure_print(s->failure.how, s->failure.words, s->cause, sizeof s->cause);
    if (!rounds_try_again(s, l, &s->failure)) return finish(s, s->failure.status);
    s->restarts++;
  }
  if (s->stop) return finish_stopped(s);
  s->restarts += FAULT(joins_are_restarts, 0, !own);
  for (int i = s->count - 1; i >= 0; i--) {
    s->machine[i].ranks = 0;
    if (s->machine[i].leaving) drop(s, &s->machine[i]);
  }
  s->phase = JOB_GATHERS;
  form(s, l);
  return true;
}

bool rounds_advance(JobState *s, const RoundLimits *l, bool waited) {
  if (s->phase == JOB_DONE) return false;
  if (s->phase != JOB_GATHERS) return settle(s, l);
  if (s->stop) return finish_stopped(s);
  if (s->round < 0 && !waited && s->count < l->most) return false;
  return form(s, l);
}
