// A worker reads from its environment all that plait launch has written there.
// tier 1; rooms worker comm elastic
#include "worker/worker.h"
#include "base/fault.h"
#include "comm/launcher.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

static const Supervised nobody = {.rank = -1, .ranks = -1, .local_ranks = -1, .round = -1, .notices = -1, .pages = -1,
                                  .page = -1, .memory.fd = {-1, -1}};

static int nothing(void **state) {
  unsetenv("PLAIT_LEAD");
  return worker_write(&nobody), 0;
}

static void same(const Supervised *a, const Supervised *b) {
  assert_int_equal(a->rank, b->rank);
  assert_int_equal(a->ranks, b->ranks);
  assert_int_equal(a->local_ranks, b->local_ranks);
  assert_string_equal(a->run, b->run);
  assert_string_equal(a->job, b->job);
  assert_int_equal(a->round, b->round);
  assert_int_equal(a->net, b->net);
  assert_int_equal(a->notices, b->notices);
  assert_int_equal(a->pages, b->pages);
  assert_int_equal(a->page, b->page);
  assert_true(a->lead == b->lead);
  assert_memory_equal(a->memory.fd, b->memory.fd, sizeof a->memory.fd);
  assert_int_equal(a->memory.first, b->memory.first);
  assert_int_equal(a->memory.count, b->memory.count);
  assert_int_equal(a->memory.copies, b->memory.copies);
}

static void reads(const Supervised *expected) {
  const Supervised read = worker_read();
  same(&read, expected);
}

// As a supervisor has them.
static Supervised whole(int pipe_ends[2]) {
  Supervised s = {.rank = 3, .ranks = 8, .local_ranks = 2, .run = "job.77aa.4", .job = "77aa", .round = 4, .net = true,
                  .page = 1, .memory = {.first = 2, .count = 2, .copies = 1}};
  assert_int_equal(pipe(pipe_ends), 0);
  s.notices = pipe_ends[1];
  s.pages = memfd_create("pages", 0);
  worker_memory_create(3, s.memory.fd);
  assert_true(s.memory.fd[0] > 2 && s.memory.fd[1] > 2);
  return s;
}

static void end(const Supervised *s, const int pipe_ends[2]) {
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  close(s->pages);
  for (int i = 0; i < WORKER_MEMORIES; i++) close(s->memory.fd[i]);
}

static void round_trip(void **state) {
  int ends[2];
  const Supervised s = whole(ends);
  reads(&nobody);
  worker_write(&s);
  reads(&s);
  Launcher l = launcher_find(); // reads the same names
  assert_string_equal(l.variable, worker_variable(WORKER_RANKS));
  assert_int_equal(l.rank, 3);
  assert_int_equal(l.tasks, 8);
  assert_int_equal(l.local, 2);
  worker_write(&nobody); // a supervisor that is itself a worker passes nothing on
  reads(&nobody);
  for (int v = 0; v < WORKER_VARIABLE_COUNT; v++) assert_null(getenv(worker_variable((WorkerVariable)v)));
  end(&s, ends);
}

// Each variable that is wrong, or missing, is as if the supervisor had said nothing of it.
static void wrong(void **state) {
  static const struct { WorkerVariable variable; const char *text[7]; } rows[] = {
      {WORKER_RANK, {"", "x", "-1", "1x", "99999999999"}},
      {WORKER_RANKS, {"", "x", "-1"}},
      {WORKER_LOCAL_RANKS, {"", "2.5"}},
      {WORKER_ROUND, {"", "-1", "x", "4x"}},
      {WORKER_COMM, {"", "mpi", "netx"}},
      {WORKER_NOTICES, {"", "x", "-1", "1", "999", "0"}},
      {WORKER_PAGE, {"", "x", "3", "1:0", "999:0", "5:-1", "5:0x"}},
      {WORKER_MEMORY, {"", "x", "3 4", "3 4 0 2 1x", "0 1 0 2 1", "998 999 0 2 1"}},
  };
  int ends[2];
  const Supervised s = whole(ends);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int k = -1; k < 7; k++) {
      Supervised expected = s;
      if (k >= 0 && !rows[i].text[k]) break;
      worker_write(&s);
      if (k < 0) unsetenv(worker_variable(rows[i].variable));
      else setenv(worker_variable(rows[i].variable), rows[i].text[k], 1);
      switch (rows[i].variable) {
      case WORKER_RANK: expected.rank = -1; break;
      case WORKER_RANKS: expected.ranks = -1; break;
      case WORKER_LOCAL_RANKS: expected.local_ranks = -1; break;
      case WORKER_ROUND: expected.round = -1, *expected.job = 0; break; // a job without a round is none
      case WORKER_COMM: expected.net = false; break;
      case WORKER_NOTICES: expected.notices = -1; break;
      case WORKER_PAGE: expected.pages = expected.page = -1; break;
      default: expected.memory = nobody.memory; break;
      }
      reads(&expected);
    }
  end(&s, ends);
}

static void names(void **state) {
  char longer[WORKER_RUN + 1];
  Supervised expected = nobody;
  memset(longer, 'x', sizeof longer - 1);
  longer[sizeof longer - 1] = 0;
  setenv(worker_variable(WORKER_RUN_NAME), longer, 1); // cut off, it would be another run's
  reads(&expected);
  setenv(worker_variable(WORKER_RUN_NAME), longer + 1, 1);
  memcpy(expected.run, longer + 1, WORKER_RUN);
  reads(&expected);
  setenv(worker_variable(WORKER_ROUND), "3", 1); // a round of no job
  reads(&expected);
  setenv(worker_variable(WORKER_LEAD), "20", 1);
  expected.lead = 20;
  reads(&expected);
  setenv(worker_variable(WORKER_LEAD), "x", 1);
  expected.lead = 0;
  reads(&expected);
}

// A descriptor that is another program's file by now is not written to.
static void memory(void **state) {
  int ends[2];
  Supervised s = whole(ends);
  char path[] = "/tmp/plait-worker-XXXXXX", text[80];
  int file = mkstemp(path);
  assert_true(file > 2);
  WorkerMemory m = s.memory, read;
  worker_memory_print(&m, text, sizeof text);
  assert_int_equal(worker_memory_parse(text, &read), 1);
  assert_int_equal(fcntl(m.fd[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  m.fd[1] = file;
  worker_memory_print(&m, text, sizeof text);
  assert_int_equal(worker_memory_parse(text, &read), 0);
  assert_int_equal(fcntl(s.memory.fd[0], F_GET_SEALS) & F_SEAL_SHRINK, F_SEAL_SHRINK);
  close(file);
  unlink(path);
  end(&s, ends);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup(round_trip, nothing),
                                     cmocka_unit_test_setup(wrong, nothing), cmocka_unit_test_setup(names, nothing),
                                     cmocka_unit_test_setup(memory, nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
