// A failure on its way from a worker to the supervisors of other machines: its fields arrive.
// tier 1; rooms elastic worker comm
#include "comm/comm.h"
#include "elastic/rounds.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { WORKERS = 3, ENDED = 1 << 8 }; // a status of waitpid

// Workers 2, 3 and 4 of 6 ranks, which have all ended with status 1, and the pipe that they share.
static int notices[2];
static Worker worker[WORKERS];

static int supervise(void **state) {
  if (pipe(notices)) return -1;
  fcntl(notices[0], F_SETFL, O_NONBLOCK);
  worker_write(&(Supervised){.notices = notices[1], .rank = 2, .ranks = 6, .local_ranks = 3, .round = 0, .pages = -1,
                             .page = -1});
  return worker_supervised()->notices == notices[1] ? 0 : -1;
}

static Workers workers(void) {
  for (int i = 0; i < WORKERS; i++) worker[i] = (Worker){.rank = 2 + i, .pid = 100 + i, .ended = true, .status = ENDED};
  return (Workers){.worker = worker, .count = WORKERS, .ranks = 6, .notices = notices[0]};
}

// Rank `rank` says that rank `blamed` has died; -1: that its disk is full.
static void say(int rank, int blamed) {
  Error e = {0};
  ErrorRank whose = error_rank(blamed, "node7");
  if (blamed < 0) error_set(&e, PLAIT_UNWRITABLE, "run/metrics.jsonl: cannot be written: the disk is full");
  else
    error_set_about(&e, PLAIT_FAILED, &(ErrorFacts){.rank = whose, .blamed = whose}, "rank %d on node7 has died",
                    blamed);
  if (blamed >= 0) error_prefix(&e, "layer.0.reduce");
  assert_true(worker_notice_failure(rank, &e));
}

static void the_culprit_counts(void **state) {
  for (int all = 0; all < 2; all++) {
    Workers w = workers();
    Failure f = {0};
    say(2, 3); // it has only seen that the connection has ended
    workers_read_notices(&w);
    assert_int_equal(failure_find(&w, -1, false, &f), 0); // rank 3 may still say why
    say(3, -1);
    workers_read_notices(&w);
    assert_int_equal(failure_find(&w, -1, all, &f), 1);
    assert_int_equal(f.rank, 3);
    assert_true(failure_lasts(&f));
    assert_string_equal(f.said.message, "run/metrics.jsonl: cannot be written: the disk is full");
  }
}

static void all_blame_another(void **state) {
  Workers w = workers();
  Failure f = {0};
  char text[FAILURE_SENTENCE];
  say(2, 5);
  workers_read_notices(&w);
  assert_int_equal(failure_find(&w, -1, true, &f), 1);
  assert_int_equal(f.rank, 2);
  assert_int_equal(error_blames(&f.said, f.rank), 5);
  assert_false(failure_lasts(&f));
  failure_describe(&f, text, sizeof text);
  const char *end = strstr(text, "ended with status 1: layer.0.reduce: rank 5 on node7 has died");
  assert_non_null(end);
}

static void a_signal_counts_most(void **state) {
  Workers w = workers();
  Failure f = {0};
  say(2, -1);
  say(4, -1);
  w.worker[2].status = SIGSEGV; // after it had said so
  workers_read_notices(&w);
  assert_int_equal(failure_find(&w, -1, false, &f), 1);
  assert_int_equal(f.rank, 4);
  assert_int_equal(f.said.code, 0); // how it ended is what is told
}

// Worker → notice → supervisor → the job's state → the supervisor of another machine.
static void to_another_machine(void **state) {
  Workers w = workers();
  Failure f = {0};
  say(2, 0);
  workers_read_notices(&w);
  assert_int_equal(failure_find(&w, -1, true, &f), 1);
  const RoundLimits limits = {1, 8, 3, 0, 1};
  JobState *s = calloc(1, sizeof *s);
  s->round = s->failure.round = -1;
  const Machine a = {.id = "a", .host = "node7", .nproc = 2, .node_rank = -1},
                b = {.id = "b", .host = "node8", .nproc = 3, .node_rank = -1};
  assert_true(rounds_join(s, &limits, &a) && rounds_join(s, &limits, &b));
  assert_true(rounds_advance(s, &limits, true));
  JobRoundEnd end = {.round = 0, .failure = rounds_failure(&f, 0, "b", false)};
  assert_true(rounds_ended(s, "b", &end));
  assert_true(rounds_lose(s, "a"));
  char *sent = job_state_print(s);
  JobState *there = job_state_parse(sent, strlen(sent));
  assert_non_null(there);
  assert_int_equal(there->failure.rank, 2);
  assert_int_equal(there->failure.blamed, 0);
  assert_string_equal(there->failure.blamed_host, "node7");
  assert_string_equal(there->failure.words, "layer.0.reduce: rank 0 on node7 has died");
  assert_string_equal(there->lost_host, "node7");
  assert_true(rounds_advance(there, &limits, true)); // which leads now
  assert_string_equal(there->cause, "node7 was lost (rank 0 on node7 has died)");
  assert_int_equal(there->restarts, 0); // the worker's is not a failure of its own
  free(sent);
  free(there);
  free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_culprit_counts), cmocka_unit_test(all_blame_another),
                                     cmocka_unit_test(a_signal_counts_most), cmocka_unit_test(to_another_machine)};
  return cmocka_run_group_tests(tests, supervise, NULL);
}
