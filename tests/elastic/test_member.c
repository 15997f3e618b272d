// tier 2; rooms comm; threads
// A machine that finds a state which is not its job's: one that cannot be read, or of another start of the job.
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "elastic/job_store.h"
#include "elastic/member.h"
#include "elastic/store.h"
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void set(Store *store, const char *key, const char *text) {
  StoreValue now;
  Error error = {0};
  bool done;
  assert_int_equal(store->compare_and_set(store, key, 0, text, strlen(text), 0, &done, &now, &error), PLAIT_OK);
  assert_true(done);
  store_value_free(&now);
}

enum { ENDPOINT = 80 };

// An address at which nobody listens.
static void find_endpoint(NetAddress *at, char text[ENDPOINT]) {
  assert_int_equal(net_resolve("127.0.0.1", 0, at, NULL), PLAIT_OK);
  int fd = net_listen(at);
  assert_true(fd >= 0);
  close(fd);
  net_describe(at, text, ENDPOINT);
}

static MemberOptions options_of(const char *endpoint) {
  return (MemberOptions){.endpoints = endpoint, .id = "job", .silence = 5, .patience = 20,
                         .limits = {.least = 1, .most = 1, .unit = 1}, .recipe = "r", .nproc = 2, .node_rank = -1};
}

static void give_up_at(const char *text) {
  NetAddress at;
  Error error = {0};
  StoreServer *server;
  Store *store;
  StoreValue now;
  Member *member;
  JobState *s;
  Machine *here;
  char endpoint[ENDPOINT];
  find_endpoint(&at, endpoint);
  assert_int_equal(store_serve(&at, "job", false, &server, &error), PLAIT_OK);
  assert_int_equal(store_connect(&at, "job", 5, &store, NULL, &error), 1);
  set(store, "epoch", "1");
  set(store, "state", text);
  MemberOptions options = options_of(endpoint);
  assert_int_equal(member_open(&options, &member, &error), PLAIT_OK);
  int code = PLAIT_OK;
  for (double until = clock_seconds() + 10; !code && clock_seconds() < until;) {
    poll(&(struct pollfd){member_event(member), POLLIN, 0}, 1, 1000);
    code = member_look(member, &s, &here, &error);
    assert_null(s);
  }
  assert_int_equal(code, PLAIT_BAD_INPUT);
  if (!strstr(error.message, "--rdzv-id job: what the store at") || !strstr(error.message, "is not a state that plait"))
    fail_msg("%s", error.message);
  Error unused = {0};
  assert_int_equal(store->get(store, "state", &now, &unused), PLAIT_OK); // and it is left as it was
  assert_true(now.bytes == strlen(text) && !memcmp(now.data, text, now.bytes));
  store_value_free(&now);
  member_close(member);
  store->close(store);
  store_server_stop(server);
}

static void no_state(void **state) {
  give_up_at("{}");
  give_up_at("what is not JSON");
}

// A machine that serves a store without a state begins the job.
static void a_new_job(void **state) {
  NetAddress at;
  Error error = {0};
  Member *member;
  JobState *s = NULL;
  Machine *here = NULL;
  char endpoint[ENDPOINT];
  find_endpoint(&at, endpoint);
  MemberOptions options = options_of(endpoint);
  assert_int_equal(member_open(&options, &member, &error), PLAIT_OK);
  for (double until = clock_seconds() + 30; !here && clock_seconds() < until;) {
    free(s);
    poll(&(struct pollfd){member_event(member), POLLIN, 0}, 1, 1000);
    assert_int_equal(member_look(member, &s, &here, &error), PLAIT_OK);
  }
  assert_non_null(here);
  assert_int_equal(here->nproc, 2);
  free(s);
  member_close(member);
}

// A store at the address with the state of a start of the job that has come to that round.
static StoreServer *serve_start(const NetAddress *at, const char *epoch, const char *job, int round) {
  Error error = {0};
  StoreServer *server;
  Store *store;
  JobState s = {.round = round, .failure = {.round = -1}, .recipe = "r", .version = PLAIT_VERSION};
  snprintf(s.job, sizeof s.job, "%s", job);
  char *text = job_state_print(&s);
  assert_int_equal(store_serve(at, "job", false, &server, &error), PLAIT_OK);
  assert_int_equal(store_connect(at, "job", 5, &store, NULL, &error), 1);
  set(store, "state", text);
  set(store, "epoch", epoch);
  store->close(store);
  free(text);
  return server;
}

// The job in the store at the address. The caller frees it.
static JobState *state_at(const NetAddress *at) {
  Error error = {0};
  Store *store;
  StoreValue now;
  assert_int_equal(store_connect(at, "job", 5, &store, NULL, &error), 1);
  assert_int_equal(store->get(store, "state", &now, &error), PLAIT_OK);
  JobState *s = job_state_parse(now.data, now.bytes);
  assert_non_null(s);
  store_value_free(&now);
  store->close(store);
  return s;
}

// Until the machine is in the state, or gives up with that code.
static int await_member(Member *member, int code, Error *error) {
  for (double until = clock_seconds() + 30; clock_seconds() < until;) {
    JobState *s;
    Machine *here;
    poll(&(struct pollfd){member_event(member), POLLIN, 0}, 1, 100);
    int now = member_look(member, &s, &here, error);
    bool is_in = here != NULL;
    free(s);
    if (now || (is_in && !code)) return now;
  }
  fail_msg("the machine has neither joined nor given up");
  return 0;
}

// A machine takes part in round 4 of a start, and loses its store. At the endpoint before that one is the store of
// another start by then, which has come to `round`. (At the same endpoint the machine could have served one itself.)
static void meet_another_start(int round) {
  NetAddress at, first_at;
  Error error = {0};
  Member *member;
  char endpoint[ENDPOINT], first_endpoint[ENDPOINT], endpoints[2 * ENDPOINT];
  bool over = round >= 0;
  find_endpoint(&at, endpoint);
  find_endpoint(&first_at, first_endpoint);
  snprintf(endpoints, sizeof endpoints, "%s,%s", endpoint, first_endpoint);
  StoreServer *first = serve_start(&first_at, "1", "the first", 3);
  MemberOptions options = options_of(endpoints);
  assert_int_equal(member_open(&options, &member, &error), PLAIT_OK);
  assert_int_equal(await_member(member, 0, &error), PLAIT_OK);
  StoreServer *server = serve_start(&at, "2", "the second", round);
  store_server_stop(first);
  if (over) {
    assert_int_equal(await_member(member, PLAIT_FAILED, &error), PLAIT_FAILED);
    if (!strstr(error.message, "--rdzv-id job: the job was started again")) fail_msg("%s", error.message);
  }
  JobState *s = state_at(&at);
  for (double until = clock_seconds() + 30; !over && strcmp(s->job, "the first") && clock_seconds() < until;) {
    poll(NULL, 0, 20);
    free(s);
    s = state_at(&at);
  }
  assert_string_equal(s->job, over ? "the second" : "the first");
  assert_true(over ? s->round == round : s->round >= 4);
  free(s);
  member_close(member);
  store_server_stop(server);
}

static void another_start(void **state) {
  meet_another_start(0);
  meet_another_start(7);
  meet_another_start(-1); // it has not begun, so the machine reminds it of its own
}

// The host of the store that a machine has lost says that nothing listens there any more, and the lease in run.dir is
// not renewed: the machine serves the job itself, without waiting for --silence.
static void a_refusal(void **state) {
  char folder[] = "/tmp/test_member_XXXXXX", endpoint[ENDPOINT];
  NetAddress at;
  Error error = {0};
  Member *member;
  assert_non_null(mkdtemp(folder));
  find_endpoint(&at, endpoint);
  char *path = xformat("%s/rendezvous-1", folder);
  FILE *lease = fopen(path, "w");
  fprintf(lease, "first 7 1 elsewhere/pid:[1]/boot %s\n", endpoint);
  fclose(lease);
  StoreServer *server = serve_start(&at, "1", "first", 3);
  MemberOptions options = options_of(endpoint);
  options.silence = 1000;
  options.folder = folder;
  assert_int_equal(member_open(&options, &member, &error), PLAIT_OK);
  assert_int_equal(await_member(member, 0, &error), PLAIT_OK);
  store_server_stop(server);
  StoreValue now = {0};
  for (double until = clock_seconds() + 60; !now.version && clock_seconds() < until; poll(NULL, 0, 20)) {
    Store *store = NULL; // it answers before it knows the job
    if (store_connect(&at, "job", 1, &store, NULL, &error) <= 0) continue;
    store->get(store, "state", &now, &error);
    store->close(store);
  }
  assert_true(now.version > 0);
  store_value_free(&now);
  JobState *s = state_at(&at);
  assert_string_equal(s->job, "first");
  free(s);
  member_close(member);
  free(path);
  assert_int_equal(folder_remove(folder, &error), PLAIT_OK);
}

// The only machine that can serve the store was killed and is started again: it has not joined, and serves where the
// store was last. Where that was another endpoint it waits for the machine of that one.
static void a_store_that_comes_back(void **state) {
  for (int here = 0; here < 2; here++) {
    char folder[] = "/tmp/test_member_XXXXXX", endpoint[ENDPOINT], endpoints[2 * ENDPOINT];
    static const char other[] = "192.0.2.7:29400"; // of no machine
    NetAddress at;
    Error error = {0};
    Member *member;
    assert_non_null(mkdtemp(folder));
    find_endpoint(&at, endpoint);
    snprintf(endpoints, sizeof endpoints, "%s,%s", other, endpoint);
    char *path = xformat("%s/rendezvous-1", folder);
    FILE *lease = fopen(path, "w");
    fprintf(lease, "first 7 1 elsewhere/pid:[1]/boot %s\n", here ? endpoint : other);
    fclose(lease);
    MemberOptions options = options_of(endpoints);
    options.insecure = true;
    options.silence = 1;
    options.patience = here ? 60 : 4;
    options.folder = folder;
    assert_int_equal(member_open(&options, &member, &error), PLAIT_OK);
    assert_int_equal(await_member(member, here ? PLAIT_OK : PLAIT_FAILED, &error), here ? PLAIT_OK : PLAIT_FAILED);
    assert_int_equal(member_serves(member), here);
    member_close(member);
    free(path);
    assert_int_equal(folder_remove(folder, &error), PLAIT_OK);
  }
}

// What a store that has moved holds before the machines of round 4 have come to it: their state, and nobody's lease.
static StoreServer *serve_before_they_come(const NetAddress *at) {
  Error error = {0};
  StoreServer *server;
  Store *store;
  JobState s = {.round = 4, .phase = JOB_RUNS, .failure = {.round = -1}, .recipe = "r", .version = PLAIT_VERSION,
                .job = "first", .count = 3};
  for (int i = 0; i < s.count; i++) {
    s.machine[i] = (Machine){.nproc = 1, .node_rank = -1, .first = i, .ranks = 1, .pid = 1 + i, .port = 20001};
    snprintf(s.machine[i].id, sizeof s.machine[i].id, "machine%d", i);
    snprintf(s.machine[i].host, sizeof s.machine[i].host, "host%d", i);
  }
  char *text = job_state_print(&s);
  assert_int_equal(store_serve(at, "job", false, &server, &error), PLAIT_OK);
  assert_int_equal(store_connect(at, "job", 5, &store, NULL, &error), 1);
  set(store, "state", text);
  set(store, "epoch", "2");
  store->close(store);
  free(text);
  return server;
}

// A machine that is new to the job comes to the new store before the others do: it does not take them for lost.
static void a_newcomer_before_the_others(void **state) {
  NetAddress at;
  Error error = {0};
  Member *member;
  char endpoint[ENDPOINT];
  int left = 0;
  for (double seconds = INFINITY; seconds >= job_store_reunion_seconds;) { // a machine that is too busy says nothing
    find_endpoint(&at, endpoint);
    StoreServer *server = serve_before_they_come(&at);
    MemberOptions options = options_of(endpoint);
    options.limits.least = options.limits.most = 4;
    double began = clock_seconds();
    assert_int_equal(member_open(&options, &member, &error), PLAIT_OK);
    assert_int_equal(await_member(member, PLAIT_OK, &error), PLAIT_OK);
    JobState *s = state_at(&at);
    left = s->count;
    free(s);
    seconds = clock_seconds() - began;
    member_close(member);
    store_server_stop(server);
  }
  assert_int_equal(left, 4);
}

// The name of an endpoint can no longer be resolved, as that of a machine that is gone: the next endpoint is tried. Who
// has not found the job yet is told of it.
static void a_lost_name(void **state) {
  char name[70], endpoint[ENDPOINT], endpoints[2 * ENDPOINT];
  NetAddress at;
  Error error = {0};
  memset(name, 'a', sizeof name); // longer than a part of a name may be: refused without a network
  find_endpoint(&at, endpoint);
  snprintf(endpoints, sizeof endpoints, "%.*s:1,%s", (int)sizeof name, name, endpoint);
  StoreServer *server = serve_start(&at, "1", "first", 3);
  MemberOptions options = options_of(endpoints);
  JobStore store;
  job_store_open(&store, &options, &store_network);
  assert_true(job_store_find(&store, &error) < 0);
  store.epoch = 1;
  assert_int_equal(job_store_find(&store, &error), 1);
  job_store_close(&store, -1);
  store_server_stop(server);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_state), cmocka_unit_test(a_new_job),
                                     cmocka_unit_test(another_start), cmocka_unit_test(a_refusal),
                                     cmocka_unit_test(a_lost_name), cmocka_unit_test(a_store_that_comes_back),
                                     cmocka_unit_test(a_newcomer_before_the_others)};
  unsetenv("PLAIT_SECRET");
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
