// tier 1 2
// Many faults at random, with time that the test moves (hosts.h): of machines, their stores and their network, and of
// workers, whose restarts are counted against a model. SEED: which; FAULTS: how many.
#include "base/error.h"
#include "hosts.h"
#include "tier.h"
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static uint64_t number;

static int draw(int n) {
  number = number * 6364136223846793005u + 1442695040888963407u;
  return (int)((number >> 33) % (uint64_t)n);
}

static int begin(int sample, int all) {
  const char *seed = getenv("SEED"), *count = getenv("FAULTS");
  number = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
  int faults = count ? atoi(count) : test_tier() == 1 ? sample : all;
  printf("SEED=%llu FAULTS=%d\n", (unsigned long long)number, faults);
  return faults;
}

// Whatever happens: when all are together again all work in one round, at one store. hosts.c compares what they see: of
// each round the same machines, and never another start of the job.
static void many_faults(void **state) {
  int faults = begin(20, 100);
  Hosts h;
  hosts_begin(&h);
  hosts_make_folder(NULL);
  MemberOptions o = hosts_options("127.0.0.1:1,127.0.0.1:2", hosts_folder, 2);
  for (int i = 0; i < HOSTS; i++) hosts_start(&h, i, &o);
  UNTIL(&h, 20, hosts_work(&h, HOSTS));
  for (int f = 0; f < faults; f++) {
    bool stopped[HOSTS] = {false};
    for (int more = 1 + draw(2); more > 0; more--) { // perhaps two at a time
      int victim = draw(HOSTS), other = draw(HOSTS);
      switch (draw(5)) {
      case 0:
        if (!h.host[victim].stopped) hosts_kill(&h, victim);
        break;
      case 1: hosts_stop(&h, victim, stopped[victim] = true); break;
      case 2: h.host[victim].cut = true; break;
      case 3: h.host[victim].half = h.host[other].half = 1; break;
      default: hosts_pass(&h, draw(100) / 10.); // between two, or none at all
      }
    }
    hosts_pass(&h, draw(3) ? draw(300) / 10. : draw(10) / 10.);
    hosts_heal(&h);
    for (int i = 0; i < HOSTS; i++) {
      if (stopped[i]) hosts_stop(&h, i, false);
      if (!h.host[i].life) hosts_start(&h, i, &o);
    }
    UNTIL(&h, 120, hosts_work(&h, HOSTS) && (hosts_only_server(&h, 0) || hosts_only_server(&h, 1)));
    assert_int_equal(h.host[0].life->state->restarts, 0);
  }
  printf("%d rounds in %.0f s\n", hosts_round(&h) + 1, h.test.now - 1000);
  hosts_end(&h);
  hosts_remove_folder();
}

// Restarts ------------------------------------------------------------------------------------------------------------

static void start_all(Hosts *h, int most_restarts) {
  hosts_begin(h);
  hosts_make_folder(NULL);
  MemberOptions o = hosts_options("127.0.0.1:1,127.0.0.1:2", hosts_folder, 2);
  o.limits.restarts = most_restarts;
  for (int i = 0; i < HOSTS; i++) hosts_start(h, i, &o);
  UNTIL(h, 20, hosts_work(h, HOSTS));
}

// Strikes the round that runs on all hosts. Returns whether it uses up a restart: a worker has failed by itself, and
// what a lost machine makes of the others' workers does not count. *lasts: it must last until the machine is lost, and
// until the others have another store where they need one: who cannot say how its worker ended is lost itself.
static bool strike(Hosts *h, bool *lasts) {
  int victim = draw(HOSTS), other = (victim + 1 + draw(HOSTS - 1)) % HOSTS, kind = draw(10);
  switch (kind) {
  case 0: // a worker, and perhaps what the others' workers say of it
  case 1:
  case 2: hosts_fail(h, victim, 1 + draw(3), false); break;
  default: // a machine or its store, and perhaps workers
    if (kind < 6) hosts_kill(h, victim);
    else if (kind < 8) h->host[victim].cut = true;
    else hosts_stop(h, victim, true);
  }
  int also = draw(3);
  *lasts = kind >= 6 && also;
  if (also == 1) hosts_fail(h, other, 2, true);
  if (also == 2) hosts_fail(h, other, 3, false);
  return kind < 3 || also == 2;
}

static void mend(Hosts *h, int most_restarts) {
  MemberOptions o = hosts_options("127.0.0.1:1,127.0.0.1:2", hosts_folder, 2);
  o.limits.restarts = most_restarts;
  hosts_heal(h);
  for (int i = 0; i < HOSTS; i++) {
    if (h->host[i].stopped) hosts_stop(h, i, false);
    if (!h->host[i].life) hosts_start(h, i, &o);
  }
}

// The state as a machine sees it that is neither cut off nor stopped. NULL: there is none.
static const JobState *state_of(const Hosts *h) {
  for (int i = 0; i < HOSTS; i++) {
    const Host *at = &h->host[i];
    if (at->life && at->life->state && !at->cut && !at->stopped) return at->life->state;
  }
  return NULL;
}

static bool is_done(const Hosts *h) {
  const JobState *s = state_of(h);
  return s && s->phase == JOB_DONE;
}

static void restarts_are_counted(void **state) {
  int faults = begin(20, 200), jobs = 0;
  for (int f = 0; f < faults; jobs++) {
    Hosts h;
    int most = draw(20), restarts = 0;
    start_all(&h, most);
    for (bool over = false; f < faults && !over; f++) {
      int round = hosts_round(&h);
      hosts_pass(&h, draw(3) ? draw(200) / 100. : 0);
      bool lasts, counts = strike(&h, &lasts);
      over = counts && restarts == most;
      restarts += counts && !over;
      if (over) UNTIL(&h, 120, is_done(&h));
      else hosts_pass(&h, lasts || draw(2) ? 20 : draw(70) / 10.); // it may be mended before it was noticed
      if (over) assert_in_range(state_of(&h)->status, 100, 100 + HOSTS - 1);
      if (over) assert_int_equal(state_of(&h)->restarts, most);
      if (over) break;
      mend(&h, most);
      hosts_pass(&h, 10); // what was hardly noticed may have its effect only now
      UNTIL(&h, 120, hosts_work(&h, HOSTS));
      for (int i = 0; i < HOSTS; i++) assert_int_equal(h.host[i].life->state->restarts, restarts);
      assert_true(hosts_round(&h) >= round + counts);
    }
    hosts_end(&h);
    hosts_remove_folder();
  }
  printf("%d jobs\n", jobs);
}

// One machine ---------------------------------------------------------------------------------------------------------

static JobState *look(Member *m) {
  JobState *s = NULL;
  Error error = {0};
  struct pollfd p = {member_event(m), POLLIN, 0};
  do {
    Machine *here;
    free(s);
    assert_int_equal(member_look(m, &s, &here, &error), PLAIT_OK);
    assert_non_null(here);
  } while (poll(&p, 1, 0) > 0);
  return s;
}

// A round of a job of one machine ends. Returns whether the job continues, as the model has it; *status: how it ends.
static bool end_round(Member *m, const JobState *s, int most, int *restarts, int *status) {
  JobRoundEnd end = {.round = s->round};
  JobFailure *f = &end.failure;
  int stop = draw(12) == 0 ? SIGTERM : 0, how = draw(8), own = 1 + draw(255);
  if (how < 6) *f = (JobFailure){.round = s->round, .weight = 1 + draw(3), .status = own, .wrong_input = draw(20) == 0};
  else if (how == 6) end.finished = true;
  else if (!stop) return true; // nothing happens
  if (stop) member_stop(m, stop);
  if (f->weight && draw(2)) member_failing(m, s->round);
  if (draw(2)) free(look(m)); // before it says how they ended, or not
  member_ended(m, &end);
  *status = f->weight ? own : end.finished ? 0 : 128 + stop;
  if (!f->weight || stop || f->wrong_input || *restarts == most) return false;
  ++*restarts;
  return true;
}

static void one_machine(void **state) {
  int faults = begin(200, 2000), jobs = 0;
  for (int f = 0; f < faults; jobs++) {
    int most = draw(20), restarts = 0, status = 0;
    MemberOptions o = hosts_options(NULL, NULL, 1);
    o.limits.most = 1;
    o.limits.restarts = most;
    Member *m;
    Error error = {0};
    assert_int_equal(member_open(&o, &m, &error), PLAIT_OK);
    JobState *s = look(m);
    for (bool goes_on = true; goes_on && f < faults; f++) {
      assert_true(s->phase == JOB_RUNS && s->round == restarts && s->restarts == restarts && job_ranks(s) == 1);
      goes_on = end_round(m, s, most, &restarts, &status);
      free(s);
      s = look(m);
      if (!goes_on) assert_true(s->phase == JOB_DONE && s->status == status && s->restarts == restarts);
    }
    free(s);
    member_close(m);
  }
  printf("%d jobs\n", jobs);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(many_faults),
      cmocka_unit_test(restarts_are_counted),
      cmocka_unit_test(one_machine),
  };
  atexit(hosts_remove_what_is_left);
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
