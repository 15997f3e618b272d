// tier 1
// Machines that find, serve and lose their store, with time that the test moves (hosts.h): who serves it, who is lost,
// which job is theirs, when they wait.
#include "base/error.h"
#include "base/file.h"
#include "elastic/job_store.h"
#include "hosts.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void says(const Life *l, int code, const char *words) {
  assert_int_equal(l->code, code);
  if (!strstr(l->error.message, words)) fail_msg("\"%s\" lacks \"%s\"", l->error.message, words);
}

static void no_state(void **state) {
  static const char *const texts[] = {"{}", "what is not JSON"};
  for (int t = 0; t < 2; t++) {
    Hosts h;
    MemberOptions o = hosts_options("127.0.0.1:1", NULL, 1);
    hosts_begin(&h);
    hosts_serve(&h, 0, "1", texts[t]);
    Life *l = hosts_start(&h, 1, &o);
    UNTIL(&h, 10, l->code);
    says(l, PLAIT_BAD_INPUT, "--rdzv-id job: what the store at 127.0.0.1:1 has of the job is not a state that plait");
    assert_string_equal(hosts_value(&h, 0, "state"), texts[t]); // it is left as it was
    hosts_end(&h);
  }
}

// A machine that serves a store without a state begins the job; the first round waits 3 s for more than the least.
static void a_new_job(void **state) {
  Hosts h;
  MemberOptions o = hosts_options("127.0.0.1:1", NULL, 2);
  o.nproc = 2;
  hosts_begin(&h);
  hosts_start(&h, 0, &o);
  UNTIL(&h, 1, hosts_is_in(&h, 0));
  assert_int_equal(job_machine(h.host[0].life->state, member_id(h.host[0].life->member))->nproc, 2);
  hosts_pass(&h, 30);
  assert_true(hosts_work(&h, 0));
  hosts_start(&h, 1, &o);
  hosts_pass(&h, 2.5);
  assert_true(hosts_work(&h, 0));
  hosts_start(&h, 2, &o);
  UNTIL(&h, 2, hosts_work(&h, 3));
  hosts_start(&h, 3, &o);
  UNTIL(&h, 2, hosts_work(&h, 4) && hosts_round(&h) == 1);
  hosts_end(&h);
}

static void serve_start(Hosts *h, int host, const char *epoch, const char *job, int round, int count) {
  JobState s = {.round = round, .failure = {.round = -1}, .recipe = "r", .version = PLAIT_VERSION, .count = count,
                .phase = count ? JOB_RUNS : JOB_GATHERS};
  snprintf(s.job, sizeof s.job, "%s", job);
  for (int i = 0; i < count; i++) {
    s.machine[i] = (Machine){.nproc = 1, .node_rank = -1, .first = i, .ranks = 1, .pid = 1 + i, .port = 20001};
    snprintf(s.machine[i].id, sizeof s.machine[i].id, "machine%d", i);
    snprintf(s.machine[i].host, sizeof s.machine[i].host, "host%d", i);
  }
  char *text = job_state_print(&s);
  hosts_serve(h, host, epoch, text);
  free(text);
}

static JobState *state_at(Hosts *h, int host) {
  const char *text = hosts_value(h, host, "state");
  JobState *s = text ? job_state_parse(text, strlen(text)) : NULL;
  assert_non_null(s);
  return s;
}

// A machine takes part in round 4 of a start, and loses its store. At the endpoint before that one is the store of
// another start by then, which has come to `round`. (At the same endpoint the machine could have served one itself.)
static void meet_another_start(int round) {
  Hosts h;
  MemberOptions o = hosts_options("127.0.0.1:1,127.0.0.1:2", NULL, 1);
  bool over = round >= 0;
  hosts_begin(&h);
  serve_start(&h, 1, "1", "the first", 3, 0);
  Life *l = hosts_start(&h, 2, &o);
  UNTIL(&h, 10, hosts_work(&h, 1) && hosts_round(&h) == 4);
  serve_start(&h, 0, "2", "the second", round, 0);
  hosts_end_store(&h, 1);
  hosts_pass(&h, 10);
  JobState *s = state_at(&h, 0);
  if (over) says(l, PLAIT_FAILED, "--rdzv-id job: the job was started again");
  else assert_int_equal(l->code, PLAIT_OK);
  assert_string_equal(s->job, over ? "the second" : "the first");
  assert_true(over ? s->round == round : s->round >= 4);
  free(s);
  hosts_end(&h);
}

static void another_start(void **state) {
  meet_another_start(0);
  meet_another_start(7);
  meet_another_start(-1); // it has not begun, so the machine reminds it of its own
}

// The host of the store that a machine has lost says that nothing listens there any more, and the lease in run.dir is
// not renewed: the machine serves the job itself, without waiting for --silence. A host that is silent is waited for.
static void a_refusal(void **state) {
  for (int silent = 0; silent < 2; silent++) {
    Hosts h;
    hosts_begin(&h);
    hosts_make_folder("127.0.0.1:2");
    MemberOptions o = hosts_options("127.0.0.1:1,127.0.0.1:2", hosts_folder, 1);
    o.silence = 100;
    serve_start(&h, 1, "1", "first", 3, 0);
    hosts_start(&h, 0, &o);
    UNTIL(&h, 10, hosts_is_in(&h, 0));
    if (silent) h.host[1].cut = true;
    else hosts_end_store(&h, 1);
    if (silent) hosts_pass(&h, 99);
    assert_null(h.host[0].table);
    UNTIL(&h, silent ? 60 : 10, h.host[0].table && hosts_value(&h, 0, "state"));
    JobState *s = state_at(&h, 0);
    assert_string_equal(s->job, "first");
    free(s);
    hosts_end(&h);
    hosts_remove_folder();
  }
}

// The only machine that can serve the store was killed and is started again: it has not joined, and serves where the
// store was last. Where that was another endpoint it waits for the machine of that one.
static void a_store_that_comes_back(void **state) {
  for (int here = 0; here < 2; here++) {
    Hosts h;
    hosts_begin(&h);
    hosts_make_folder(here ? "127.0.0.1:1" : "127.0.0.1:4");
    MemberOptions o = hosts_options("127.0.0.1:4,127.0.0.1:1", hosts_folder, 1);
    o.silence = 1;
    h.host[3].cut = true;
    Life *l = hosts_start(&h, 0, &o);
    hosts_pass(&h, 299);
    assert_int_equal(here, hosts_is_in(&h, 0) && h.host[0].table);
    hosts_pass(&h, 5);
    if (here) assert_int_equal(l->code, PLAIT_OK);
    else says(l, PLAIT_FAILED, "no store answers at 127.0.0.1:4,127.0.0.1:1 within 300 s");
    hosts_end(&h);
    hosts_remove_folder();
  }
}

// A machine that is new to the job comes to a store that has moved before the machines of round 4 do: it does not take
// them for lost until they have had time to come.
static void a_newcomer_before_the_others(void **state) {
  Hosts h;
  MemberOptions o = hosts_options("127.0.0.1:1", NULL, 4);
  hosts_begin(&h);
  serve_start(&h, 0, "2", "first", 4, 3);
  double began = h.test.now;
  hosts_start(&h, 1, &o);
  UNTIL(&h, 1, hosts_is_in(&h, 1));
  hosts_pass(&h, 0.9 * job_store_reunion_seconds - (h.test.now - began));
  JobState *s = state_at(&h, 0);
  assert_int_equal(s->count, 4);
  free(s);
  hosts_pass(&h, 0.3 * job_store_reunion_seconds);
  s = state_at(&h, 0);
  assert_int_equal(s->count, 1);
  free(s);
  hosts_end(&h);
}

// The name of an endpoint can no longer be resolved, as that of a machine that is gone: the next endpoint is tried. Who
// has not found the job yet is told of it.
static void a_lost_name(void **state) {
  Hosts h;
  Error error = {0};
  char endpoints[100];
  memset(endpoints, 'a', 70); // longer than a part of a name may be: refused without a network
  strcpy(endpoints + 70, ":1,127.0.0.1:1");
  MemberOptions o = hosts_options(endpoints, NULL, 1);
  JobStore store;
  hosts_begin(&h);
  serve_start(&h, 0, "1", "first", 3, 0);
  job_store_open(&store, &o, &h.test.network);
  assert_true(job_store_find(&store, &error) < 0);
  store.epoch = 1;
  assert_int_equal(job_store_find(&store, &error), 1);
  job_store_close(&store, -1);
  hosts_end(&h);
}

// The state in the store is not of this machine's job, or that has just ended.
static void other_jobs_are_refused(void **state) {
  static const struct { const char *recipe, *version, *words; JobPhase phase; int code; } rows[] = {
      {"other", PLAIT_VERSION, "--rdzv-id job: the job at 127.0.0.1:1 runs another recipe, other key=value or other",
       JOB_RUNS, PLAIT_BAD_INPUT},
      {"r", "0.0.9", "--rdzv-id job: the other machines run plait 0.0.9, and this is plait " PLAIT_VERSION, JOB_RUNS,
       PLAIT_BAD_INPUT},
      {"r", PLAIT_VERSION, "--rdzv-id job: the job has just ended, with status 7", JOB_DONE, PLAIT_FAILED},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Hosts h;
    JobState s = {.round = 2, .failure = {.round = -1}, .phase = rows[i].phase, .job = "first", .status = 7};
    MemberOptions o = hosts_options("127.0.0.1:1", NULL, 1);
    hosts_begin(&h);
    snprintf(s.recipe, sizeof s.recipe, "%s", rows[i].recipe);
    snprintf(s.version, sizeof s.version, "%s", rows[i].version);
    char *text = job_state_print(&s);
    hosts_serve(&h, 0, "1", text);
    Life *l = hosts_start(&h, 1, &o);
    hosts_pass(&h, 2);
    says(l, rows[i].code, rows[i].words);
    assert_string_equal(hosts_value(&h, 0, "state"), text);
    free(text);
    hosts_end(&h);
  }
}

// The store says what its job runs, so that a machine is told what it has to change.
static void differences_are_named(void **state) {
  static const char first[] = "--nnodes\t2\nrun.dir\t/runs/a\nrun.seed\t7\nmesh.dp\t2\nmesh.tp\t1";
  static const struct { const char *what, *words;
  } rows[] = {
      {"--nnodes\t2\nrun.dir\t/runs/a\nrun.seed\t8\nmesh.dp\t2\nmesh.tp\t1",
       "runs something else: run.seed is 8 here and "
       "7 there; give all machines the same"},
      {"--nnodes\t3\nrun.dir\t/b\nrun.seed\t7\nmesh.dp\t2\nmesh.tp\t1",
       ": --nnodes is 3 here and 2 there; run.dir is /b "
       "here and /runs/a there; give"},
      {"--nnodes\t2\nrun.dir\t/runs/a\nrun.seed\t7\nmesh.dp\t2\nadded\t1 2",
       ": added is 1 2 here and not given there; "
       "mesh.tp is not given here and 1 there; give"},
      {"--nnodes\t1\nrun.dir\tb\nrun.seed\t8\nmesh.dp\t1\nmesh.tp\t1",
       "run.seed is 8 here and 7 there; and there is more; give"},
      {NULL, "runs another recipe, other key=value or other --nnodes"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Hosts h;
    MemberOptions o = hosts_options("127.0.0.1:1", NULL, 2), other = o;
    hosts_begin(&h);
    o.what = first;
    other.recipe = "another";
    other.what = rows[i].what;
    hosts_start(&h, 0, &o);
    UNTIL(&h, 2, hosts_is_in(&h, 0));
    Life *l = hosts_start(&h, 1, &other);
    hosts_pass(&h, 2);
    says(l, PLAIT_BAD_INPUT, rows[i].words);
    hosts_end(&h);
  }
}

// Of two machines each has a run.dir of its own: the one that comes later says so, when the other's files have had time
// to be seen. With one run.dir, another job is told of the one that has it.
static void another_folder(void **state) {
  Hosts h;
  char theirs[sizeof hosts_folder];
  hosts_begin(&h);
  hosts_make_folder(NULL);
  memcpy(theirs, hosts_folder, sizeof theirs);
  MemberOptions o = hosts_options("127.0.0.1:1", theirs, 2), other = o;
  hosts_start(&h, 0, &o);
  UNTIL(&h, 2, hosts_is_in(&h, 0));
  hosts_make_folder(NULL);
  o.folder = hosts_folder;
  Life *l = hosts_start(&h, 1, &o);
  hosts_pass(&h, 4.5);
  assert_true(!l->code && !l->here);
  hosts_pass(&h, 2);
  says(l, PLAIT_BAD_INPUT, "is not the folder that the other machines have under this name: it lacks the file "
                           "rendezvous-1, which was written at the start; all machines must share it");
  other.endpoints = "127.0.0.1:3";
  l = hosts_start(&h, 2, &other);
  hosts_pass(&h, 5);
  says(l, PLAIT_BAD_INPUT, "is in use by another job, whose store is at 127.0.0.1:1; set another run.dir");
  hosts_end(&h);
  hosts_remove_folder();
  memcpy(hosts_folder, theirs, sizeof theirs);
  hosts_remove_folder();
}

// Another program has the port and says nothing: that is told after 5 s, where another machine could serve after 15 s.
// A supervisor that is silent for a moment is not taken for another program.
static void a_taken_port(void **state) {
  for (int several = 0; several < 2; several++) {
    Hosts h;
    MemberOptions o = hosts_options(several ? "127.0.0.1:1,127.0.0.1:2" : "127.0.0.1:1", NULL, 1);
    double wait = several ? 15 : 5;
    hosts_begin(&h);
    h.host[0].foreign = true;
    Life *l = hosts_start(&h, 0, &o);
    hosts_pass(&h, wait - 0.5);
    assert_int_equal(l->code, PLAIT_OK);
    hosts_pass(&h, 5);
    says(l, PLAIT_BAD_INPUT, "--rdzv: 127.0.0.1:1 is taken by a program that does not answer as plait launch");
    h.host[1].foreign = true;
    o.endpoints = "127.0.0.1:2";
    l = hosts_start(&h, 1, &o);
    hosts_pass(&h, 4);
    h.host[1].foreign = false;
    UNTIL(&h, 5, hosts_is_in(&h, 1));
    assert_int_equal(l->code, PLAIT_OK);
    hosts_end(&h);
  }
}

// Three machines, of which two can serve. The one that is killed or stopped, with the store or without, is lost; the
// others continue. One that wakes ends its old work, and is in again.
static void losses(void **state) {
  for (int kind = 0; kind < 4; kind++) {
    Hosts h;
    bool stops = kind & 1, has_store = kind >> 1;
    int victim = has_store ? 0 : 2;
    hosts_begin(&h);
    hosts_make_folder(NULL);
    MemberOptions o = hosts_options("127.0.0.1:1,127.0.0.1:2", hosts_folder, 2);
    for (int i = 0; i < 3; i++) hosts_start(&h, i, &o);
    UNTIL(&h, 10, hosts_work(&h, 3));
    assert_int_equal(hosts_server(&h), 0);
    hosts_pass(&h, 20); // nobody is lost where nothing happens
    assert_int_equal(hosts_round(&h), 0);
    if (stops) hosts_stop(&h, victim, true);
    else hosts_kill(&h, victim);
    if (stops) hosts_pass(&h, 3); // less than --silence
    if (stops) assert_int_equal(hosts_round(&h), 0);
    int others = has_store ? 1 : 0;
    UNTIL(&h, 20, h.host[others].life->begun == 1 && h.host[others].life->working);
    assert_int_equal(h.host[others].life->state->count, 2);
    assert_int_equal(h.host[others].life->state->restarts, 0);
    assert_int_equal(h.host[1].table != NULL, has_store);
    if (stops) hosts_stop(&h, victim, false);
    else hosts_start(&h, victim, &o);
    UNTIL(&h, 20, hosts_work(&h, 3) && hosts_round(&h) == 2);
    assert_int_equal(hosts_server(&h), has_store);
    hosts_end(&h);
    hosts_remove_folder();
  }
}

// The network splits. If the half with the store has enough machines, it continues. If it has too few, it gives the
// store up to the other half. If that half cannot serve it, the first takes it again, and later gives it up once
// more.
static void halves(void **state) {
  Hosts h;
  hosts_begin(&h);
  hosts_make_folder(NULL);
  MemberOptions o = hosts_options("127.0.0.1:1,127.0.0.1:2", hosts_folder, 2);
  for (int i = 0; i < 4; i++) hosts_start(&h, i, &o);
  UNTIL(&h, 10, hosts_work(&h, 4) && hosts_only_server(&h, 0));
  h.host[2].half = h.host[3].half = 1;
  UNTIL(&h, 40, hosts_work(&h, 2) && !h.host[2].life->working && !h.host[3].life->working);
  assert_true(hosts_only_server(&h, 0));
  hosts_heal(&h);
  UNTIL(&h, 20, hosts_work(&h, 4));
  h.host[0].cut = true; // it has the store
  UNTIL(&h, 60, hosts_work(&h, 3) && hosts_only_server(&h, 1) && !h.host[0].life->working);
  hosts_heal(&h);
  UNTIL(&h, 20, hosts_work(&h, 4) && hosts_only_server(&h, 1));
  h.host[1].cut = true;
  hosts_stop(&h, 0, true); // nobody else can take it
  UNTIL(&h, 60, !h.host[1].life->working && !h.host[2].life->working && !h.host[1].table);
  UNTIL(&h, 60, h.host[1].table);
  hosts_stop(&h, 0, false);
  UNTIL(&h, 120, hosts_work(&h, 3) && hosts_only_server(&h, 0));
  hosts_heal(&h);
  UNTIL(&h, 20, hosts_work(&h, 4));
  assert_int_equal(h.host[0].life->state->restarts, 0);
  hosts_end(&h);
  hosts_remove_folder();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_state),
      cmocka_unit_test(a_new_job),
      cmocka_unit_test(another_start),
      cmocka_unit_test(a_refusal),
      cmocka_unit_test(a_lost_name),
      cmocka_unit_test(a_store_that_comes_back),
      cmocka_unit_test(a_taken_port),
      cmocka_unit_test(a_newcomer_before_the_others),
      cmocka_unit_test(another_folder),
      cmocka_unit_test(other_jobs_are_refused),
      cmocka_unit_test(differences_are_named),
      cmocka_unit_test(losses),
      cmocka_unit_test(halves),
  };
  atexit(hosts_remove_what_is_left);
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
