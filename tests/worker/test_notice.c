// Notices on their way from workers to a supervisor: nothing is lost, and what is not one does no harm.
#include "worker/notice.h"
#include "worker/worker.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { RANKS = 4 };

static int ends[2]; // the pipe that this process has as a worker

static int supervise(void **state) {
  if (pipe(ends)) return -1;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  worker_write(&(Supervised){.notices = ends[1], .rank = 1, .ranks = RANKS, .local_ranks = 2, .round = 0, .pages = -1,
                             .page = -1});
  return worker_supervised()->notices == ends[1] ? 0 : -1;
}

static const Error *died(void) {
  static Error e;
  e = (Error){0};
  ErrorRank whose = error_rank(2, "node7");
  error_set_about(&e, PLAIT_FAILED, &(ErrorFacts){.rank = whose, .blamed = whose, .key = "run.comm"},
                  "rank 2 on node7 has died");
  return &e;
}

static void hear(NoticeReader *r) {
  ssize_t n = read(ends[0], r->data + r->bytes, sizeof r->data - r->bytes);
  if (n > 0) r->bytes += (size_t)n;
}

static void both_kinds(void **state) {
  NoticeReader r = {0};
  WorkerNotice n;
  worker_notice_step(12);
  assert_true(worker_notice_failure(1, died()));
  hear(&r);
  assert_true(worker_notice_take(&r, RANKS, &n));
  assert_int_equal(n.kind, NOTICE_STEP);
  assert_int_equal(n.step, 12);
  assert_true(worker_notice_take(&r, RANKS, &n));
  assert_int_equal(n.kind, NOTICE_FAILURE);
  assert_int_equal(n.rank, 1);
  assert_memory_equal(&n.error, died(), sizeof n.error); // with all its fields
  assert_false(worker_notice_take(&r, RANKS, &n));
  assert_int_equal(r.bytes, 0);
}

static void nothing_to_say(void **state) {
  NoticeReader r = {0};
  Error none = {0}, empty = {.code = PLAIT_FAILED}; // another rank has the sentence
  assert_false(worker_notice_failure(1, &none));
  assert_false(worker_notice_failure(1, &empty));
  assert_false(worker_notice_failure(-1, died()));
  hear(&r);
  assert_int_equal(r.bytes, 0);
}

static WorkerNotice one(void) {
  NoticeReader r = {0};
  WorkerNotice n;
  assert_true(worker_notice_failure(1, died()));
  hear(&r);
  assert_true(worker_notice_take(&r, RANKS, &n));
  return n;
}

// In pieces of every size up to a record, with bytes of others between records.
static void pieces(void **state) {
  const WorkerNotice n = one();
  unsigned char stream[3 * (sizeof n + 7)];
  for (int i = 0; i < 3; i++) {
    memset(stream + (size_t)i * (sizeof n + 7), 'x', 7);
    memcpy(stream + (size_t)i * (sizeof n + 7) + 7, &n, sizeof n);
  }
  for (size_t piece = 1; piece <= sizeof n; piece += piece < 20 ? 1 : 97) {
    NoticeReader r = {0};
    int taken = 0;
    for (size_t at = 0; at < sizeof stream;) {
      size_t room = sizeof r.data - r.bytes, bytes = piece < room ? piece : room;
      if (bytes > sizeof stream - at) bytes = sizeof stream - at;
      assert_true(bytes > 0); // there is always room for more
      memcpy(r.data + r.bytes, stream + at, bytes);
      r.bytes += bytes;
      at += bytes;
      for (WorkerNotice got; worker_notice_take(&r, RANKS, &got); taken++)
        assert_memory_equal(&got.error, &n.error, sizeof n.error);
    }
    assert_int_equal(taken, 3);
  }
}

static void is_left_out(const WorkerNotice *bad, const WorkerNotice *good) {
  NoticeReader r = {.bytes = 2 * sizeof *bad};
  WorkerNotice got;
  memcpy(r.data, bad, sizeof *bad);
  memcpy(r.data + sizeof *bad, good, sizeof *good);
  assert_true(worker_notice_take(&r, RANKS, &got)); // the one after it
  assert_memory_equal(&got, good, sizeof got);
  assert_false(worker_notice_take(&r, RANKS, &got));
}

static void garbage(void **state) {
  const WorkerNotice good = one();
  WorkerNotice n = good;
  n.kind = 0, is_left_out(&n, &good);
  n.kind = NOTICE_KINDS, is_left_out(&n, &good);
  n.kind = NOTICE_STEP, n.step = -1, is_left_out(&n, &good);
  n = good, n.rank = RANKS, is_left_out(&n, &good);
  n = good, n.rank = -1, is_left_out(&n, &good);
  n = good, n.error.code = 0, is_left_out(&n, &good);
  n = good, n.error.code = PLAIT_UNWRITABLE - 1, is_left_out(&n, &good);
  n = good, n.error.blamed.rank = RANKS, is_left_out(&n, &good);
  n = good, n.error.rank.known = 7, is_left_out(&n, &good);
  n = good, n.error.message[0] = 0, is_left_out(&n, &good);
  n = good, memset(n.error.message, 'x', sizeof n.error.message), is_left_out(&n, &good);
  n = good, memset(n.error.blamed.host, 'x', sizeof n.error.blamed.host), is_left_out(&n, &good);
  srand(1);
  for (int round = 0; round < 200; round++) { // any bytes, then a notice
    NoticeReader r = {.bytes = sizeof r.data};
    WorkerNotice got;
    for (size_t i = 0; i < sizeof r.data; i++) r.data[i] = (unsigned char)rand();
    memcpy(r.data + sizeof r.data - sizeof good, &good, sizeof good);
    assert_true(worker_notice_take(&r, RANKS, &got));
    assert_memory_equal(&got, &good, sizeof got);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(both_kinds), cmocka_unit_test(nothing_to_say),
                                     cmocka_unit_test(pieces), cmocka_unit_test(garbage)};
  return cmocka_run_group_tests(tests, supervise, NULL);
}
