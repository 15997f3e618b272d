// The watchdog among threads: a rank that stands still is named with what it was doing, and the process ends with status 1.
#include "runtime/watchdog.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
// cmocka wants the four above first
#include <cmocka.h>

enum { RANKS = 3 };
typedef struct Stage { PlaitWorld *world; Watchdog *dog; int rank, lazy, seconds; } Stage;

static void *act(void *argument) {
  Stage *s = argument;
  PlaitComm *comm;
  if (plait_comm_world(s->world, s->rank, &comm, NULL)) abort();
  for (int step = 1; step <= 10; step++) {
    watchdog_enter(s->dog, s->rank, ACTIVITY_DATA, step);
    if (s->rank == s->lazy && step == 3) sleep((unsigned)s->seconds);
    watchdog_enter(s->dog, s->rank, ACTIVITY_STEP, step);
    plait_barrier(comm, NULL, NULL);
    usleep(30000);
  }
  watchdog_enter(s->dog, s->rank, ACTIVITY_END, 0);
  if (s->seconds < 0) sleep(1); // who is done may take any time
  plait_comm_destroy(comm);
  return NULL;
}

static void run(const WatchdogLimits *limits, int lazy, int seconds) {
  PlaitWorld *world;
  pthread_t thread[RANKS];
  Stage stage[RANKS];
  if (plait_world_local_create(RANKS, &world, NULL)) abort();
  Watchdog *dog = watchdog_create(limits, world, 0, RANKS);
  for (int r = 0; r < RANKS; r++) {
    stage[r] = (Stage){world, dog, r, lazy, seconds};
    if (pthread_create(&thread[r], NULL, act, &stage[r])) abort();
  }
  for (int r = 0; r < RANKS; r++) pthread_join(thread[r], NULL);
  watchdog_destroy(dog);
  plait_world_destroy(world);
}

// Runs it in a process of its own; what that says on stderr comes to `text`. Returns its exit status, -1 for none.
static int watched(const WatchdogLimits *limits, int lazy, int seconds, char *text, size_t size) {
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
  WatchdogLimits limits = {{[ACTIVITY_START] = 60, [ACTIVITY_DATA] = 0.5, [ACTIVITY_STEP] = 60}};
  for (int lazy = 0; lazy < RANKS; lazy++) {
    time_t began = time(NULL);
    assert_int_equal(watched(&limits, lazy, 30, text, sizeof text), 1);
    assert_true(time(NULL) - began < 15);
    snprintf(named, sizeof named, "plait: rank %d on ", lazy);
    const char *const words[] = {named, "stands still", "waiting for data 3", "barrier (call 2 of a communicator of 3 ranks), is done", "watchdog.data: 0.5 s"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
      if (!strstr(text, words[i])) fail_msg("\"%s\" lacks \"%s\"", text, words[i]);
  }
}

// The others' limit passes, because it is theirs; the one who is to blame is named all the same.
static void test_blames_who_does_not_wait(void **state) {
  char text[1024];
  WatchdogLimits limits = {{[ACTIVITY_STEP] = 0.5}};
  assert_int_equal(watched(&limits, 1, 30, text, sizeof text), 1);
  if (!strstr(text, "rank 1 on ") || !strstr(text, "waiting for data 3") || !strstr(text, "watchdog.step: 0.5 s")) fail_msg("%s", text);
}

static void test_lets_others_be(void **state) {
  char text[1024];
  WatchdogLimits limits = {{[ACTIVITY_START] = 60, [ACTIVITY_DATA] = 60, [ACTIVITY_STEP] = 60, [ACTIVITY_CHECKPOINT] = 60}};
  assert_int_equal(watched(&limits, 1, 1, text, sizeof text), 0);
  assert_string_equal(text, "");
  limits.seconds[ACTIVITY_STEP] = 0.9;
  assert_int_equal(watched(&limits, -1, -1, text, sizeof text), 0); // done is done
  limits = (WatchdogLimits){0};
  assert_null(watchdog_create(&limits, NULL, 0, 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_names_the_rank), cmocka_unit_test(test_blames_who_does_not_wait),
                                     cmocka_unit_test(test_lets_others_be)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
