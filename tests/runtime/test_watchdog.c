// tier 2; threads
// The watchdog among threads: a rank that stands still is named with what it was doing, and the process ends with
// status 1.
#include "runtime/watchdog.h"
#include "comm/comm.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka wants some of these first
#include <cmocka.h>

enum { RANKS = 3, NOBODY = -1, MOST_SECONDS = 60 };
// How the others wait for the rank that stands still: in a barrier; in one while a call on its stream waits for them;
// for it to receive; for their streams; to create a communicator with it; in the next barrier, for it is frozen in this
// one.
typedef enum How { IN_BARRIER, AHEAD_ON_STREAM, FOR_RECEIVER, FOR_STREAM, IN_CREATION, FROZEN_IN_CALL, HOWS } How;
typedef struct Job {
  PlaitWorld *world;
  Watchdog *dog;
  int lazy;
  How how;
  atomic_int ready, standing; // ranks that have done two barriers; whether the lazy one has come to where it stays
} Job;
typedef struct Member { Job *job; int rank; PlaitComm *comm, *copy; PlaitStream *stream; } Member;

static int stand(void *job) {
  atomic_store(&((Job *)job)->standing, 1);
  for (;;) pause();
  return 0;
}

static void stand_still(const Member *m) {
  if (m->job->how == AHEAD_ON_STREAM) plait_barrier(m->copy, m->stream, NULL);
  if (m->job->how == FROZEN_IN_CALL) {
    comm_set_idle(m->comm, (Idle){stand, m->job}); // it stands in what it does while it waits for the others
    plait_barrier(m->comm, NULL, NULL);
  }
  stand(m->job);
}

static void wait_for_lazy(const Member *m) {
  PlaitEvent event;
  PlaitComm *other;
  int x = 0, lazy = m->job->lazy;
  if (m->job->how == FOR_RECEIVER) plait_send(m->comm, &(PlaitBuffer){&x, NULL, 1}, 1, PLAIT_INT32, lazy, NULL, &event);
  if (m->job->how == FOR_STREAM) plait_barrier(m->copy, m->stream, &event);
  if (m->job->how == FOR_RECEIVER || m->job->how == FOR_STREAM) plait_event_wait(event);
  if (m->job->how == IN_CREATION) plait_comm_create(m->comm, (int[]){2, 0, 1}, RANKS, &other, NULL);
  if (m->job->how == FROZEN_IN_CALL) plait_barrier(m->comm, NULL, NULL); // this one the lazy one comes to
  plait_barrier(m->comm, NULL, NULL);
}

// Two barriers of all ranks, and then something that the lazy one never comes to.
static void *act(void *argument) {
  Member *m = argument;
  Job *job = m->job;
  if (plait_comm_world(job->world, m->rank, &m->comm, NULL) ||
      plait_comm_create(m->comm, (int[]){0, 1, 2}, RANKS, &m->copy, NULL) ||
      plait_stream_create(m->comm, &m->stream, NULL))
    abort();
  for (int i = 0; i < 2; i++) plait_barrier(m->comm, NULL, NULL);
  atomic_fetch_add(&job->ready, 1);
  if (m->rank == job->lazy) stand_still(m);
  while (job->lazy != NOBODY && !atomic_load(&job->standing)) sched_yield();
  wait_for_lazy(m);
  plait_stream_destroy(m->stream);
  plait_comm_destroy(m->copy);
  plait_comm_destroy(m->comm);
  return NULL;
}

static int waits(const Job *job, int rank) {
  double alive;
  return rank == job->lazy ? atomic_load(&job->standing) : comm_last_runs(comm_last(job->world, rank, &alive));
}

// The ranks say where they are only when all have come there: no limit can pass sooner, however slow the machine is.
// The lazy one begins last, but for the first way, in which it is not even where the others are.
static void enter_third_step(const Job *job) {
  while (atomic_load(&job->ready) < RANKS) sched_yield();
  for (int r = 0; r < RANKS; r++)
    while (!waits(job, r)) sched_yield();
  watchdog_enter(job->dog, job->lazy, job->how == IN_BARRIER ? ACTIVITY_DATA : ACTIVITY_STEP, 3);
  for (int r = 0; r < RANKS; r++)
    if (r != job->lazy) watchdog_enter(job->dog, r, ACTIVITY_STEP, 3);
  if (job->how != IN_BARRIER) watchdog_enter(job->dog, job->lazy, ACTIVITY_STEP, 3);
}

static void run(const WatchdogLimits *limits, int lazy, How how, double seconds) {
  Job job = {.lazy = lazy, .how = how};
  pthread_t thread[RANKS];
  Member member[RANKS];
  if (plait_world_local_create(RANKS, &job.world, NULL) || watchdog_create(limits, job.world, 0, RANKS, &job.dog, NULL))
    abort();
  for (int r = 0; r < RANKS; r++) {
    member[r] = (Member){.job = &job, .rank = r};
    if (lazy == NOBODY) watchdog_enter(job.dog, r, ACTIVITY_END, 0);
    if (pthread_create(&thread[r], NULL, act, &member[r])) abort();
  }
  if (lazy != NOBODY) enter_third_step(&job);
  usleep((useconds_t)(1e6 * seconds)); // for the watchdog to speak
  if (lazy != NOBODY) return;
  for (int r = 0; r < RANKS; r++) pthread_join(thread[r], NULL);
  watchdog_destroy(job.dog);
  plait_world_destroy(job.world);
}

// A process of its own, and where what it says on stderr comes from.
typedef struct Watched { pid_t child; int end; } Watched;

static Watched begin(const WatchdogLimits *limits, int lazy, How how, double seconds) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    run(limits, lazy, how, seconds);
    _exit(0);
  }
  close(ends[1]);
  return (Watched){child, ends[0]};
}

// Its exit status, -1 for none.
static int finish(Watched w, char *text, size_t size) {
  int status;
  size_t used = 0;
  ssize_t n;
  while (used + 1 < size && (n = read(w.end, text + used, size - 1 - used)) > 0) used += (size_t)n;
  text[used] = 0;
  close(w.end);
  assert_int_equal(waitpid(w.child, &status, 0), w.child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int watched(const WatchdogLimits *limits, int lazy, How how, double seconds, char *text, size_t size) {
  return finish(begin(limits, lazy, how, seconds), text, size);
}

static void test_names_the_rank(void **state) {
  char text[1024], named[64];
  WatchdogLimits limits = {{[ACTIVITY_START] = 60, [ACTIVITY_DATA] = 0.3, [ACTIVITY_STEP] = 60}};
  for (int lazy = 0; lazy < RANKS; lazy++) {
    assert_int_equal(watched(&limits, lazy, IN_BARRIER, MOST_SECONDS, text, sizeof text), 1);
    snprintf(named, sizeof named, "plait: rank %d on ", lazy);
    const char *const words[] = {named, "is stuck: it has been waiting for the data of step 3 for ",
                                 "barrier (call 2 of a communicator of 3 ranks), is done",
                                 "(limit watchdog.data: 0.3 s; set it higher if this is normal)"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
      if (!strstr(text, words[i])) fail_msg("\"%s\" lacks \"%s\"", text, words[i]);
  }
}

// The others' limit passes, because it is theirs; the one who is to blame is named all the same.
static void test_blames_who_does_not_wait(void **state) {
  char text[1024];
  WatchdogLimits limits = {{[ACTIVITY_STEP] = 0.3}};
  assert_int_equal(watched(&limits, 1, IN_BARRIER, MOST_SECONDS, text, sizeof text), 1);
  if (!strstr(text, "rank 1 on ") || !strstr(text, "waiting for the data of step 3") ||
      !strstr(text, "watchdog.step: 0.3 s"))
    fail_msg("%s", text);
}

// A rank that computes is named with what its own thread has done, whatever its stream waits for, and one that is
// frozen in a call with that call; none that waits for it is named, although they have waited longer.
static void test_names_who_computes(void **state) {
  char text[1024], named[64];
  WatchdogLimits limits = {{[ACTIVITY_STEP] = 4}}; // a thread that has been frozen for a second is found
  Watched child[HOWS][RANKS];
  for (int how = AHEAD_ON_STREAM; how < HOWS; how++)
    for (int lazy = 0; lazy < RANKS; lazy++) child[how][lazy] = begin(&limits, lazy, (How)how, MOST_SECONDS);
  for (int how = AHEAD_ON_STREAM; how < HOWS; how++)
    for (int lazy = 0; lazy < RANKS; lazy++) {
      assert_int_equal(finish(child[how][lazy], text, sizeof text), 1);
      snprintf(named, sizeof named, "plait: rank %d on ", lazy);
      const char *did = how == FROZEN_IN_CALL ? "barrier (call 3 of a communicator of 3 ranks), is under way"
                                              : "barrier (call 2 of a communicator of 3 ranks), is done";
      const char *const words[] = {named, "is stuck: it has been computing step 3 for ", did};
      for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(text, words[i])) fail_msg("others wait in way %d: \"%s\" lacks \"%s\"", how, text, words[i]);
    }
}

static void test_lets_others_be(void **state) {
  char text[1024];
  Watchdog *none;
  WatchdogLimits limits = {
      {[ACTIVITY_START] = 60, [ACTIVITY_DATA] = 60, [ACTIVITY_STEP] = 60, [ACTIVITY_CHECKPOINT] = 60}};
  assert_int_equal(watched(&limits, 1, IN_BARRIER, 0.5, text, sizeof text), 0);
  assert_string_equal(text, "");
  for (int a = ACTIVITY_DATA; a <= ACTIVITY_CHECKPOINT; a++) limits.seconds[a] = 0.1;
  assert_int_equal(watched(&limits, NOBODY, IN_BARRIER, 1, text, sizeof text), 0); // done is done
  assert_string_equal(text, "");
  limits = (WatchdogLimits){0};
  assert_int_equal(watchdog_create(&limits, NULL, 0, 1, &none, NULL), PLAIT_OK);
  assert_null(none);
}

// Where a progress line may be open, the sentence begins on a line of its own.
static void test_own_line(void **state) {
  char text[1024];
  size_t used = 0;
  ssize_t n;
  int status, master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) || unlockpt(master)) skip();
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (slave < 0 || dup2(slave, STDERR_FILENO) < 0) _exit(2);
    close(slave);
    fputs("step 3/10  loss 2.5", stderr);
    run(&(WatchdogLimits){{[ACTIVITY_STEP] = 0.5}}, 1, FOR_STREAM, MOST_SECONDS);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  while (used + 1 < sizeof text && (n = read(master, text + used, sizeof text - 1 - used)) > 0) used += (size_t)n;
  text[used] = 0;
  close(master);
  assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 1);
  if (!strstr(text, "loss 2.5\r\nplait: rank 1 on ")) fail_msg("%s", text);
}

// No memory for a thread's stack: a sentence, and no broken invariant.
static void test_no_thread(void **state) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip(); // they need more memory themselves
#endif
  int status;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    PlaitWorld *world;
    PlaitComm *comm;
    PlaitStream *stream;
    Watchdog *dog;
    Error error = {0}, other = {0};
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1 || plait_world_local_create(1, &world, NULL) ||
        plait_comm_world(world, 0, &comm, NULL))
      _exit(2);
    rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (4 << 20);
    if (setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes})) _exit(3);
    int code = watchdog_create(&(WatchdogLimits){{[ACTIVITY_STEP] = 60}}, world, 0, 1, &dog, &error);
    if (code != PLAIT_FAILED || dog || !strstr(error.message, "the watchdog's thread cannot be started: ")) _exit(4);
    code = plait_stream_create(comm, &stream, &other);
    _exit(code != PLAIT_FAILED || stream ||
                  !strstr(other.message, "the communication thread of rank 0 cannot be started: ")
              ? 5
              : 0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names_the_rank),     cmocka_unit_test(test_blames_who_does_not_wait),
      cmocka_unit_test(test_names_who_computes), cmocka_unit_test(test_lets_others_be),
      cmocka_unit_test(test_own_line),           cmocka_unit_test(test_no_thread)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
