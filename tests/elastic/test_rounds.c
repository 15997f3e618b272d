// tier 1
// How the state of a job moves: who is in a round, what ends it, what counts as a restart; and the state as text.
#include "base/error.h"
#include "base/signals.h"
#include "elastic/rounds.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const RoundLimits any = {.least = 1, .most = 4, .restarts = 2, .unit = 1};

static JobState *start(void) {
  JobState *s = xcalloc(1, sizeof *s);
  s->round = s->failure.round = -1;
  return s;
}

static void join(JobState *s, const RoundLimits *l, const char *id, int nproc, int node_rank) {
  Machine m = {.nproc = nproc, .node_rank = node_rank};
  snprintf(m.id, sizeof m.id, "%s", id);
  snprintf(m.host, sizeof m.host, "host-%s", id);
  assert_true(rounds_join(s, l, &m));
  assert_false(rounds_join(s, l, &m)); // once
}

static void has(JobState *s, const char *id, int first, int ranks) {
  const Machine *m = job_machine(s, id);
  assert_non_null(m);
  assert_int_equal(m->ranks, ranks);
  if (ranks) assert_int_equal(m->first, first);
}

static JobFailure failure(JobState *s, const char *id, int weight, bool blames) {
  JobFailure f = {.round = s->round, .weight = weight, .rank = 1, .status = 137, .blamed = blames ? 0 : -1};
  snprintf(f.machine, sizeof f.machine, "%s", id);
  snprintf(f.how, sizeof f.how, "of %s", id);
  if (blames) snprintf(f.words, sizeof f.words, "rank 0 on host-a has died; its last call");
  if (blames) snprintf(f.blamed_host, sizeof f.blamed_host, "host-a");
  return f;
}

static void ended(JobState *s, const char *id, bool finished, int weight, bool blames) {
  JobRoundEnd how = {.round = s->round, .finished = finished, .failure = failure(s, id, weight, blames)};
  assert_true(rounds_ended(s, id, &how));
  assert_false(rounds_ended(s, id, &how));
}

static void first_round(void **state) {
  JobState *s = start();
  assert_false(rounds_advance(s, &any, true)); // nobody is there
  join(s, &any, "a", 2, -1);
  assert_false(rounds_advance(s, &any, false)); // more may come
  join(s, &any, "b", 1, 0);
  join(s, &any, "c", 3, -1);
  assert_true(rounds_advance(s, &any, true));
  assert_int_equal(s->phase, JOB_RUNS);
  assert_int_equal(s->round, 0);
  has(s, "b", 0, 1); // it has asked for the first place
  has(s, "a", 1, 2);
  has(s, "c", 3, 3);
  assert_int_equal(job_ranks(s), 6);
  ended(s, "a", true, 0, false);
  ended(s, "b", true, 0, false);
  assert_false(rounds_advance(s, &any, true));
  ended(s, "c", true, 0, false);
  assert_true(rounds_advance(s, &any, true));
  assert_true(s->phase == JOB_DONE && s->status == 0);
  free(s);
}

static void meshes(void **state) {
  RoundLimits exact = {.least = 1, .most = 3, .exactly = 4, .unit = 1}, unit = {.least = 2, .most = 3, .unit = 2};
  JobState *s = start();
  join(s, &exact, "a", 3, -1);
  assert_false(rounds_advance(s, &exact, true)); // 3 ranks are not 4
  join(s, &exact, "b", 3, -1);
  join(s, &exact, "c", 3, -1);
  assert_true(rounds_advance(s, &exact, true));
  has(s, "a", 0, 3);
  has(s, "b", 3, 1);
  has(s, "c", 0, 0);
  join(s, &exact, "d", 3, -1);
  assert_int_equal(s->phase, JOB_RUNS); // nobody has use for it
  free(s);
  s = start();
  join(s, &unit, "a", 3, -1);
  assert_false(rounds_advance(s, &unit, true)); // fewer than MIN
  join(s, &unit, "b", 2, -1);
  assert_true(rounds_advance(s, &unit, true));
  has(s, "a", 0, 3);
  has(s, "b", 3, 1); // 5 ranks are not a multiple of 2
  assert_true(rounds_lose(s, "b"));
  ended(s, "a", false, 2, true);
  assert_true(rounds_advance(s, &unit, true));
  assert_int_equal(s->phase, JOB_GATHERS);
  free(s);
}

static void two(JobState **s, const RoundLimits *l) {
  *s = start();
  join(*s, l, "a", 1, -1);
  join(*s, l, "b", 1, -1);
  assert_true(rounds_advance(*s, l, true));
}

static void failures_count_once(void **state) {
  JobState *s;
  two(&s, &any);
  for (int restart = 1; restart <= 2; restart++) {
    assert_true(rounds_failing(s, "b", s->round)); // its peer's death is what it sees first
    assert_int_equal(s->ending, ENDING_FAILED);
    ended(s, "b", false, 2, true);
    assert_false(rounds_advance(s, &any, true));
    ended(s, "a", false, 3, false);
    assert_true(rounds_advance(s, &any, true));
    assert_int_equal(s->restarts, restart);
    assert_int_equal(s->round, restart);
    assert_string_equal(s->cause, "of a");
    assert_true(s->failure.counted);
    assert_false(rounds_failing(s, "b", s->round - 1)); // what is late
  }
  ended(s, "a", false, 3, false);
  ended(s, "b", false, 2, true);
  assert_true(rounds_advance(s, &any, true));
  assert_true(s->phase == JOB_DONE && s->status == 137 && s->restarts == 2);
  free(s);
}

static void wrong_input_ends(void **state) {
  JobState *s;
  two(&s, &any);
  JobRoundEnd how = {.failure = failure(s, "a", 2, false)};
  how.failure.wrong_input = true;
  how.failure.status = 2;
  assert_true(rounds_ended(s, "a", &how));
  ended(s, "b", false, 0, false);
  assert_true(rounds_advance(s, &any, true));
  assert_true(s->phase == JOB_DONE && s->status == 2 && s->restarts == 0);
  free(s);
}

// A machine is stopped, and wakes before it is lost: workers fail because of each other, here and elsewhere.
static void pauses_do_not_count(void **state) {
  JobState *s;
  two(&s, &any);
  assert_true(rounds_failing(s, "b", 0));
  ended(s, "b", false, 2, true); // a is silent
  assert_true(rounds_ended(s, "a", &(JobRoundEnd){.paused = true, .failure = failure(s, "a", 2, true)}));
  assert_true(rounds_advance(s, &any, true));
  assert_true(s->phase == JOB_RUNS && s->round == 1 && s->restarts == 0 && job_ranks(s) == 2);
  assert_string_equal(s->cause, "host-a was stopped for longer than --silence");
  ended(s, "b", false, 2, true); // without a pause it counts
  ended(s, "a", false, 2, false);
  assert_true(rounds_advance(s, &any, true));
  assert_int_equal(s->restarts, 1);
  assert_true(rounds_ended(s, "a", &(JobRoundEnd){.round = 2, .paused = true, .failure = failure(s, "a", 3, false)}));
  ended(s, "b", false, 2, true);
  assert_true(rounds_advance(s, &any, true)); // a signal has killed a worker
  assert_int_equal(s->restarts, 2);
  ended(s, "b", true, 0, false);
  assert_true(rounds_ended(s, "a", &(JobRoundEnd){.round = 3, .paused = true, .finished = true}));
  assert_true(rounds_advance(s, &any, true));
  assert_true(s->phase == JOB_DONE && s->status == 0);
  free(s);
}

static void lost_machines_do_not_count(void **state) {
  JobState *s;
  two(&s, &any);
  assert_true(rounds_failing(s, "b", 0));
  ended(s, "b", false, 2, true); // it names the rank of a
  assert_false(rounds_advance(s, &any, true));
  assert_true(rounds_lose(s, "a"));
  assert_true(rounds_advance(s, &any, true));
  assert_true(s->phase == JOB_RUNS && s->round == 1 && s->restarts == 0 && job_ranks(s) == 1);
  assert_string_equal(s->cause, "host-a was lost (rank 0 on host-a has died; its last call)");
  join(s, &any, "c", 1, -1); // and one that was lost while a worker of another died by itself does
  ended(s, "b", false, 0, false);
  assert_true(rounds_advance(s, &any, true));
  assert_true(s->round == 2 && s->restarts == 0);
  assert_true(rounds_lose(s, "c"));
  ended(s, "b", false, 3, false);
  assert_true(rounds_advance(s, &any, true));
  assert_true(s->round == 3 && s->restarts == 1);
  free(s);
}

static void comings_and_goings(void **state) {
  JobState *s;
  two(&s, &any);
  join(s, &any, "c", 1, -1);
  assert_true(s->phase == JOB_ENDS && s->ending == ENDING_CHANGED);
  ended(s, "a", false, 0, false);
  ended(s, "b", false, 2, true); // it saw a's rank go
  assert_true(rounds_advance(s, &any, true));
  assert_true(s->phase == JOB_RUNS && s->round == 1 && s->restarts == 0 && job_ranks(s) == 3);
  assert_true(rounds_leave(s, "a"));
  assert_false(rounds_leave(s, "a"));
  assert_string_equal(s->cause, "host-a has said goodbye");
  ended(s, "a", false, 0, false);
  ended(s, "b", false, 0, false);
  ended(s, "c", false, 0, false);
  assert_true(rounds_advance(s, &any, true));
  assert_null(job_machine(s, "a"));
  assert_true(s->round == 2 && s->restarts == 0 && job_ranks(s) == 2);
  assert_true(rounds_leave(s, "b")); // while the run finishes: nobody starts again
  ended(s, "b", true, 0, false);
  ended(s, "c", true, 0, false);
  assert_true(rounds_advance(s, &any, true));
  assert_true(s->phase == JOB_DONE && s->status == 0);
  free(s);
}

static void stops(void **state) {
  JobState *s;
  two(&s, &any);
  assert_true(rounds_stop(s, 10));
  assert_false(rounds_stop(s, 10));
  assert_int_equal(s->ending, ENDING_STOPPED);
  ended(s, "a", false, 0, false);
  assert_true(rounds_ended(s, "b", &(JobRoundEnd){.status = 75}));
  assert_true(rounds_advance(s, &any, true));
  assert_true(s->phase == JOB_DONE && s->status == 75);
  free(s);
  s = start();
  join(s, &any, "a", 1, -1);
  assert_true(rounds_stop(s, 10) && rounds_advance(s, &any, false));
  assert_int_equal(s->status, signals_status_of(10));
  free(s);
}

// A machine has come, so the workers were asked to save and end when the signal came.
static void stops_while_a_round_ends(void **state) {
  JobState *s;
  two(&s, &any);
  join(s, &any, "c", 1, -1);
  assert_int_equal(s->phase, JOB_ENDS);
  assert_true(rounds_stop(s, 10));
  assert_true(rounds_ended(s, "a", &(JobRoundEnd){.status = 143}));
  assert_true(rounds_ended(s, "b", &(JobRoundEnd){.status = 143}));
  assert_true(rounds_advance(s, &any, true));
  assert_true(s->phase == JOB_DONE && s->status == signals_status_of(10));
  free(s);
}

// Stopped while a round begins: rank 0 saves and ends, and the others fail since it is gone. In any order of telling.
static void stops_with_rank_0(void **state) {
  for (int order = 0; order < 2; order++) {
    JobState *s;
    two(&s, &any);
    assert_true(rounds_stop(s, 10));
    JobRoundEnd saved = {.status = 75}, left = {.status = 138, .failure = failure(s, "b", 2, true)};
    assert_true(rounds_ended(s, order ? "b" : "a", order ? &left : &saved));
    assert_true(rounds_ended(s, order ? "a" : "b", order ? &saved : &left));
    assert_true(rounds_advance(s, &any, true));
    assert_true(s->phase == JOB_DONE && s->status == 75);
    free(s);
    two(&s, &any);
    assert_true(rounds_stop(s, 10)); // rank 0 could not save
    JobRoundEnd failed = {.status = 1, .failure = failure(s, "a", 2, false)};
    assert_true(rounds_ended(s, order ? "b" : "a", order ? &saved : &failed));
    assert_true(rounds_ended(s, order ? "a" : "b", order ? &failed : &saved));
    assert_true(rounds_advance(s, &any, true));
    assert_true(s->phase == JOB_DONE && s->status == 1);
    free(s);
  }
}

// All workers of one machine are asked to end at the same moment: what fails then has failed by itself.
static void one_machine(void **state) {
  const RoundLimits one = {.least = 1, .most = 1, .restarts = 1, .unit = 1};
  for (int weight = 1; weight <= 3; weight++)
    for (int stopped = 0; stopped < 2; stopped++) {
      JobState *s = start();
      join(s, &one, "a", 2, -1);
      assert_true(rounds_advance(s, &one, false)); // nobody else may come
      if (stopped) assert_true(rounds_stop(s, 15));
      ended(s, "a", false, weight, false);
      assert_int_equal(rounds_try_again(s, &one, &s->failure), !stopped);
      assert_true(rounds_advance(s, &one, false));
      assert_true(s->failure.counted);
      assert_int_equal(s->restarts, !stopped);
      assert_int_equal(s->phase, stopped ? JOB_DONE : JOB_RUNS);
      if (stopped) assert_int_equal(s->status, 137);
      if (!stopped) ended(s, "a", false, weight, false);
      if (!stopped) assert_true(rounds_advance(s, &one, false));
      assert_true(s->phase == JOB_DONE && s->status == 137);
      free(s);
    }
}

static void text(void **state) {
  JobState *s;
  two(&s, &any);
  s->changes = 1LL << 40;
  s->failure = failure(s, "a", 3, true);
  char *printed = job_state_print(s);
  JobState *again = job_state_parse(printed, strlen(printed)), *copy = job_state_copy(s);
  assert_non_null(again);
  assert_memory_equal(s, again, sizeof *s);
  assert_memory_equal(s, copy, sizeof *s);
  free(again);
  free(copy);
  for (size_t n = 0; n < strlen(printed); n++) assert_null(job_state_parse(printed, n));
  assert_null(job_state_parse("{\"changes\": 1}", 14));
  free(printed);
  free(s);
}

// The text with another value of a field, where that lies first behind `behind`; the parser must say so.
static void reads(const char *text, const char *behind, const char *field, const char *value, bool expected) {
  char *name = xformat("\"%s\":", field), *at = strstr(strstr(text, behind), name);
  assert_non_null(at);
  at += strlen(name);
  size_t before = (size_t)(at - text), old = *at == '"' ? 2 + strcspn(at + 1, "\"") : strcspn(at, ",}");
  char *other = xformat("%.*s%s%s", (int)before, text, value, at + old);
  JobState *s = job_state_parse(other, strlen(other));
  if ((s != NULL) != expected) fail_msg("%s: %s is%s taken", field, value, expected ? " not" : "");
  free(s);
  free(other);
  free(name);
}

// Numbers that no job has; the largest and smallest that one has.
static void limits(void **state) {
  static const struct { const char *behind, *field, *least, *below, *most, *above; } numbers[] = {
      {"{", "changes", "0", "-1", "9223372036854775806", "9223372036854775807"},
      {"{", "phase", "0", "-1", "3", "4"},
      {"{", "ending", "0", "-1", "4", "5"},
      {"{", "round", "-1", "-2", "1073741824", "1073741825"},
      {"{", "restarts", "0", "-1", "1073741824", "2147483648"},
      {"{", "lost", "0", "-1", "1024", "1025"},
      {"{", "stop", "0", "-1", "64", "65"},
      {"{", "status", "0", "-1", "255", "256"},
      {"failure", "round", "-1", "-2", "1073741824", "4294967295"},
      {"failure", "weight", "0", "-1", "3", "4"},
      {"failure", "rank", "-1", "-2", "1073741824", "1073741825"},
      {"failure", "status", "0", "-1", "255", "256"},
      {"machines", "pid", "0", "-1", "2147483647", "2147483648"},
      {"machines", "nproc", "0", "-1", "1048576", "1048577"},
      {"machines", "port", "0", "-1", "65535", "65536"},
      {"machines", "node_rank", "-1", "-2", "2147483647", "4294967295"},
      {"machines", "first", "0", "-1", "1073741824", "2147483648"},
      {"machines", "ranks", "0", "-1", "1048576", "4294967297"}, // an int of 1, if it were cut
      {"machines", "copies_port", "0", "-1", "65535", "131072"},
  };
  JobState *s;
  two(&s, &any);
  char *printed = job_state_print(s);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    reads(printed, numbers[i].behind, numbers[i].field, numbers[i].least, true);
    reads(printed, numbers[i].behind, numbers[i].field, numbers[i].below, false);
    reads(printed, numbers[i].behind, numbers[i].field, numbers[i].most, true);
    reads(printed, numbers[i].behind, numbers[i].field, numbers[i].above, false);
    reads(printed, numbers[i].behind, numbers[i].field, "1.5", false);
    reads(printed, numbers[i].behind, numbers[i].field, "99999999999999999999", false);
    reads(printed, numbers[i].behind, numbers[i].field, "\"1\"", false);
  }
  reads(printed, "{", "asked", "1", false);
  reads(printed, "{", "cause", "null", false);
  reads(printed, "machines", "id", "\"12345678901234567890123\"", true);
  reads(printed, "machines", "id", "\"123456789012345678901234\"", false); // would be cut, and be another one's
  char *machines = strstr(printed, "\"machines\":[");
  assert_non_null(machines);
  strcpy(machines, "\"machines\":{}}"); // no list of them
  assert_null(job_state_parse(printed, strlen(printed)));
  free(printed);
  free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(first_round),
      cmocka_unit_test(meshes),
      cmocka_unit_test(failures_count_once),
      cmocka_unit_test(wrong_input_ends),
      cmocka_unit_test(pauses_do_not_count),
      cmocka_unit_test(lost_machines_do_not_count),
      cmocka_unit_test(comings_and_goings),
      cmocka_unit_test(stops),
      cmocka_unit_test(stops_with_rank_0),
      cmocka_unit_test(stops_while_a_round_ends),
      cmocka_unit_test(one_machine),
      cmocka_unit_test(text),
      cmocka_unit_test(limits),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
