// tier 2; rooms comm; threads
// A machine by real sockets and threads: it begins a job, and serves it again when its store has gone. What is decided,
// and when, test_member.c shows with time of its own.
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "elastic/member.h"
#include "elastic/store.h"
#include "tier.h"
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
  return (MemberOptions){.endpoints = endpoint, .id = "job", .silence = 5, .patience = test_seconds(20),
                         .limits = {.least = 1, .most = 1, .unit = 1}, .recipe = "r", .nproc = 2, .node_rank = -1};
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
  for (double until = clock_seconds() + test_seconds(30); !here && clock_seconds() < until;) {
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
  for (double until = clock_seconds() + test_seconds(30); clock_seconds() < until;) {
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
  for (double until = clock_seconds() + test_seconds(60); !now.version && clock_seconds() < until; poll(NULL, 0, 20)) {
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_new_job), cmocka_unit_test(a_refusal)};
  unsetenv("PLAIT_SECRET");
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
