// The watchdog among threads: a rank that stands still is named with what it was doing, and the process ends with status 1.
#include "runtime/watchdog.h"
#include "comm/comm.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka wants some of these first
#include <cmocka.h>

enum { RANKS = 3, NOBODY = -1, MOST_SECONDS = 60 };
typedef struct Job { PlaitWorld *world; Watchdog *dog; int lazy; atomic_int ready; } Job;
typedef struct Stage { Job *job; int rank; } Stage;

// Two barriers of all ranks, and a third that the lazy one never comes to.
static void *act(void *argument) {
  const Stage *s = argument;
  PlaitComm *comm;
  if (plait_comm_world(s->job->world, s->rank, &comm, NULL)) abort();
  for (int i = 0; i < 2; i++) plait_barrier(comm, NULL, NULL);
  atomic_fetch_add(&s->job->ready, 1);
  while (s->rank == s->job->lazy) pause();
  plait_barrier(comm, NULL, NULL);
  plait_comm_destroy(comm);
  return NULL;
}

static int waits(const Job *job, int rank) { return rank == job->lazy || comm_last_waits(comm_last(job->world, rank)); }

// The ranks say where they are only when all have come there: no limit can pass sooner, however slow the machine is.
static void enter_third_step(const Job *job) {
  while (atomic_load(&job->ready) < RANKS) sched_yield();
  for (int r = 0; r < RANKS; r++)
    while (!waits(job, r)) sched_yield();
  watchdog_enter(job->dog, job->lazy, ACTIVITY_DATA, 3);
  for (int r = 0; r < RANKS; r++)
    if (r != job->lazy) watchdog_enter(job->dog, r, ACTIVITY_STEP, 3);
}

static void run(const WatchdogLimits *limits, int lazy, double seconds) {
  Job job = {.lazy = lazy};
  pthread_t thread[RANKS];
  Stage stage[RANKS];
  if (plait_world_local_create(RANKS, &job.world, NULL)) abort();
  job.dog = watchdog_create(limits, job.world, 0, RANKS);
  for (int r = 0; r < RANKS; r++) {
    stage[r] = (Stage){&job, r};
    if (lazy == NOBODY) watchdog_enter(job.dog, r, ACTIVITY_END, 0);
    if (pthread_create(&thread[r], NULL, act, &stage[r])) abort();
  }
  if (lazy != NOBODY) enter_third_step(&job);
  usleep((useconds_t)(1e6 * seconds)); // for the watchdog to speak
  if (lazy != NOBODY) return;
  for (int r = 0; r < RANKS; r++) pthread_join(thread[r], NULL);
  watchdog_destroy(job.dog);
  plait_world_destroy(job.world);
}

// Runs it in a process of its own; what that says on stderr comes to `text`. Returns its exit status, -1 for none.
static int watched(const WatchdogLimits *limits, int lazy, double seconds, char *text, size_t size) {
  int ends[2], status;
  size_t used = 0;
  ssize_t n;
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    run(limits, lazy, seconds);
    _exit(0);
  }
  close(ends[1]);
  while (used + 1 < size && (n = read(ends[0], text + used, size - 1 - used)) > 0) used += (size_t)n;
  text[used] = 0;
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_names_the_rank(void **state) {
  char text[1024], named[64];
  WatchdogLimits limits = {{[ACTIVITY_START] = 60, [ACTIVITY_DATA] = 0.3, [ACTIVITY_STEP] = 60}};
  for (int lazy = 0; lazy < RANKS; lazy++) {
    assert_int_equal(watched(&limits, lazy, MOST_SECONDS, text, sizeof text), 1);
    snprintf(named, sizeof named, "plait: rank %d on ", lazy);
    const char *const words[] = {named, "stands still", "waiting for data 3", "barrier (call 2 of a communicator of 3 ranks), is done", "watchdog.data: 0.3 s"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
      if (!strstr(text, words[i])) fail_msg("\"%s\" lacks \"%s\"", text, words[i]);
  }
}

// The others' limit passes, because it is theirs; the one who is to blame is named all the same.
static void test_blames_who_does_not_wait(void **state) {
  char text[1024];
  WatchdogLimits limits = {{[ACTIVITY_STEP] = 0.3}};
  assert_int_equal(watched(&limits, 1, MOST_SECONDS, text, sizeof text), 1);
  if (!strstr(text, "rank 1 on ") || !strstr(text, "waiting for data 3") || !strstr(text, "watchdog.step: 0.3 s")) fail_msg("%s", text);
}

static void test_lets_others_be(void **state) {
  char text[1024];
  WatchdogLimits limits = {{[ACTIVITY_START] = 60, [ACTIVITY_DATA] = 60, [ACTIVITY_STEP] = 60, [ACTIVITY_CHECKPOINT] = 60}};
  assert_int_equal(watched(&limits, 1, 0.5, text, sizeof text), 0);
  assert_string_equal(text, "");
  for (int a = ACTIVITY_DATA; a <= ACTIVITY_CHECKPOINT; a++) limits.seconds[a] = 0.1;
  assert_int_equal(watched(&limits, NOBODY, 1, text, sizeof text), 0); // done is done
  assert_string_equal(text, "");
  limits = (WatchdogLimits){0};
  assert_null(watchdog_create(&limits, NULL, 0, 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_names_the_rank), cmocka_unit_test(test_blames_who_does_not_wait),
                                     cmocka_unit_test(test_lets_others_be)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
