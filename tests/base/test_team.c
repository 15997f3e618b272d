// tier 1; threads
// Thread teams: every task once, on several threads, jobs after jobs, and what a task wrote is seen by the caller.
#include "base/team.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 1000 };
typedef struct Job { int count[MOST]; int round; } Job; // plain ints: task i alone writes entry i (TSan would tell)

static void count(void *argument, int i) {
  Job *job = argument;
  job->count[i] += job->round;
}

static Team *create(TeamGroup *group, int threads) {
  Team *team;
  assert_int_equal(team_create_in(group, threads, &team, NULL), PLAIT_OK);
  return team;
}

static void every_task_once(void **state) {
  static const int tasks[] = {0, 1, 2, 3, 7, 64, MOST};
  for (int threads = 0; threads <= 5; threads++) {
    Team *team = threads ? create(NULL, threads) : NULL; // NULL: the caller alone
    assert_int_equal(team_size(team), threads ? threads : 1);
    for (size_t t = 0; t < sizeof tasks / sizeof *tasks; t++) {
      Job job = {.round = 1};
      team_run(team, tasks[t], count, &job);
      for (int i = 0; i < MOST; i++) assert_int_equal(job.count[i], i < tasks[t]);
    }
    team_destroy(team);
  }
}

static void many_jobs(void **state) {
  enum { JOBS = 2000, TASKS = 5 };
  Team *team = create(NULL, 3);
  Job job = {0};
  int expected = 0;
  for (int j = 0; j < JOBS; j++) {
    job.round = j % 7; // the caller writes, the tasks read
    expected += job.round;
    team_run(team, TASKS, count, &job);
    for (int i = 0; i < TASKS; i++) assert_int_equal(job.count[i], expected);
  }
  team_destroy(team);
}

// Two tasks that wait for each other end only where two threads run them.
static void wait_for_all(void *argument, int i) { pthread_barrier_wait(argument); }
static void really_parallel(void **state) {
  enum { THREADS = 4 };
  Team *team = create(NULL, THREADS);
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, THREADS);
  for (int j = 0; j < 50; j++) team_run(team, THREADS, wait_for_all, &barrier);
  pthread_barrier_destroy(&barrier);
  team_destroy(team);
}

// Several teams at once, each with a caller of its own, as the ranks of one process are.
static void *rank(void *argument) {
  Job *job = argument;
  job->round = 1;
  Team *team = create(NULL, 2);
  for (int j = 0; j < 500; j++) team_run(team, 10, count, job);
  team_destroy(team);
  return NULL;
}
static void several_teams(void **state) {
  enum { RANKS = 4 };
  static Job jobs[RANKS];
  pthread_t threads[RANKS];
  for (int r = 0; r < RANKS; r++) assert_int_equal(pthread_create(&threads[r], NULL, rank, &jobs[r]), 0);
  for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
  for (int r = 0; r < RANKS; r++)
    for (int i = 0; i < 10; i++) assert_int_equal(jobs[r].count[i], 500);
}

// Teams of a group: one computes while another has nothing to do and helps. Every unit once, no slot twice at a time,
// and the helper's team, of several threads itself, works with all of them.
enum { SLOTS = 8 };
typedef struct Shared { Team *owner; int count[MOST]; atomic_int busy[SLOTS], doubled, slots_seen; } Shared;

static void shared_unit(void *argument, int slot, int64_t i) {
  Shared *s = argument;
  if (slot < 0 || slot >= team_slots(s->owner) || atomic_fetch_add(&s->busy[slot], 1)) atomic_store(&s->doubled, 1);
  s->count[i]++;
  if (i % 16 == 0) sched_yield(); // lets the others come, also on one core
  atomic_fetch_or(&s->slots_seen, 1 << slot);
  atomic_fetch_sub(&s->busy[slot], 1);
}

typedef struct Helper { TeamGroup *group; int threads; atomic_int ready, stop, helped; } Helper;
static void *helper(void *argument) {
  Helper *h = argument;
  Team *team = create(h->group, h->threads);
  atomic_store(&h->ready, 1);
  while (!atomic_load(&h->stop)) atomic_fetch_add(&h->helped, team_help(team));
  team_destroy(team);
  return NULL;
}

static void teams_that_help(void **state) {
  for (int threads = 1; threads <= 3; threads++)
    for (int helpers = 1; helpers <= 3; helpers += 2) {
      static Shared s;
      memset(&s, 0, sizeof s);
      Helper h = {.group = team_group_create(2, helpers), .threads = threads};
      pthread_t thread;
      s.owner = create(h.group, threads);
      assert_int_equal(team_slots(s.owner), threads + helpers);
      assert_int_equal(team_size(s.owner), threads); // nobody lends yet
      assert_int_equal(pthread_create(&thread, NULL, helper, &h), 0);
      while (!atomic_load(&h.ready)) sched_yield();
      int jobs = 0;
      for (; jobs < 200 || (jobs < 200000 && atomic_load(&h.helped) < 20); jobs++)
        team_each(s.owner, jobs % MOST, shared_unit, &s);
      for (int i = 0; i < MOST; i++) {
        int expected = 0;
        for (int j = 0; j < jobs; j++) expected += i < j % MOST;
        assert_int_equal(s.count[i], expected);
      }
      assert_false(s.doubled);
      assert_true(atomic_load(&h.helped) >= 20 && s.slots_seen >> threads); // it did help, in slots of its own
      assert_int_equal(team_size(s.owner), threads + (threads < helpers ? threads : helpers));
      atomic_store(&h.stop, 1);
      pthread_join(thread, NULL);
      team_destroy(s.owner);
      team_group_destroy(h.group);
    }
}

static void unused_team(void **state) { // destroyed before its threads have begun to wait
  for (int j = 0; j < 100; j++) team_destroy(create(NULL, 3));
  team_destroy(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_task_once), cmocka_unit_test(many_jobs),
                                     cmocka_unit_test(really_parallel), cmocka_unit_test(several_teams),
                                     cmocka_unit_test(teams_that_help), cmocka_unit_test(unused_team)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
