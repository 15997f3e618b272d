// tier 2; threads
// The rendezvous of ranks of net: malformed messages are refused in one sentence, and connections that say nothing are
// in nobody's way. The test plays the other side.
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/thread.h"
#include "comm/net_watch.h"
#include "comm/rendezvous.h"
#include "comm/rendezvous_parse.h"
#include "net/tls.h"
#include "comm/watch_frame.h"
#include "tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static const double limit = 20; // seconds, of what takes none; times PLAIT_PATIENCE

static int listen_here(NetAddress *at) {
  assert_int_equal(net_resolve("127.0.0.1", 0, at, NULL), PLAIT_OK);
  int fd = net_listen(at);
  assert_true(fd >= 0);
  return fd;
}

static int connect_to(const NetAddress *at) {
  int fd = net_connect(at, clock_seconds() + test_seconds(limit));
  assert_true(fd >= 0);
  return fd;
}

static void put(int fd, const void *data, size_t bytes) {
  assert_true(net_write(fd, data, bytes, clock_seconds() + test_seconds(limit)));
}

static void has(const Error *error, const char *words) {
  if (!strstr(error->message, words)) fail_msg("\"%s\" lacks \"%s\"", error->message, words);
}

// The rendezvous: rank 0 ----------------------------------------------------------------------------------------------

static void root_refuses_answers(void **state) {
  static const Answer wrong[] = {{0, 8}, {2, 8}, {1, 0}, {1, RENDEZVOUS_RECORD + 1}};
  enum { COUNT = sizeof wrong / sizeof *wrong };
  NetAddress at;
  Error error = {0};
  Rendezvous *r;
  void *records[2];
  size_t lengths[2];
  int stranger[COUNT];
  close(listen_here(&at));
  NetOptions options = {.rank = 0, .ranks = 2, .host = "127.0.0.1", .id = "run", .patience = 2};
  assert_int_equal(rendezvous_tcp(&options, &at, NULL, &r, &error), PLAIT_OK);
  for (int i = 0; i < COUNT; i++) {
    stranger[i] = connect_to(&at);
    put(stranger[i], &wrong[i], sizeof wrong[i]);
  }
  assert_int_equal(r->exchange(r, "mine", 4, records, lengths, &error), PLAIT_FAILED);
  has(&error, "of 2 ranks 1 did not come to 127.0.0.1:");
  has(&error, "rank 1; 4 connections with an answer that no rank gives were closed");
  for (int i = 0; i < COUNT; i++) {
    Greeting greeting;
    char byte;
    assert_true(net_read(stranger[i], &greeting, sizeof greeting, clock_seconds() + test_seconds(limit)));
    assert_false(net_read(stranger[i], &byte, 1, clock_seconds() + test_seconds(limit)));
    close(stranger[i]);
  }
  r->close(r);
}

// Rank 1 has met rank 0, and then goes, or sends what is not its next record.
static void root_refuses_further_answers(void **state) {
  static const char gone[] = "rank 0: rank 1 has gone before the world was made",
                    malformed[] = "rank 0: what rank 1 sends is not its record";
  static const struct { Answer answer; size_t bytes; const char *words; } wrong[] = {
      {{0}, 0, gone},
      {{1, 4}, sizeof(Answer) - 1, gone},
      {{1, 4}, sizeof(Answer), gone},
      {{2, 4}, sizeof(Answer), malformed}, // another rank's
      {{0, 4}, sizeof(Answer), malformed},
      {{1, 0}, sizeof(Answer), malformed},
      {{1, RENDEZVOUS_RECORD + 1}, sizeof(Answer), malformed},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    NetAddress at;
    Error error = {0};
    Rendezvous *r;
    void *records[3];
    size_t lengths[3];
    int fd[2];
    close(listen_here(&at));
    NetOptions options = {.rank = 0, .ranks = 3, .host = "127.0.0.1", .id = "run", .patience = test_seconds(limit)};
    assert_int_equal(rendezvous_tcp(&options, &at, NULL, &r, &error), PLAIT_OK);
    for (uint32_t rank = 1; rank <= 2; rank++) {
      fd[rank - 1] = connect_to(&at);
      put(fd[rank - 1], &(Answer){rank, 4}, sizeof(Answer));
      put(fd[rank - 1], "mine", 4);
    }
    put(fd[0], &wrong[i].answer, wrong[i].bytes);
    shutdown(fd[0], SHUT_WR);
    assert_int_equal(r->exchange(r, "mine", 4, records, lengths, &error), PLAIT_OK);
    for (int rank = 0; rank < 3; rank++) free(records[rank]);
    assert_int_equal(r->exchange(r, "mine", 4, records, lengths, &error), PLAIT_FAILED);
    has(&error, wrong[i].words);
    for (int rank = 0; rank < 3; rank++) assert_null(records[rank]);
    r->close(r);
    close(fd[0]), close(fd[1]);
  }
}

// The rendezvous: another rank ----------------------------------------------------------------------------------------

typedef struct Rank1 { NetAddress at; const Secret *secret; int code; Error error; } Rank1;

static void *be_rank_1(void *argument) {
  Rank1 *me = argument;
  Rendezvous *r;
  void *records[2] = {NULL};
  size_t lengths[2];
  NetOptions options = {.rank = 1, .ranks = 2, .host = "127.0.0.1", .id = "run", .patience = test_seconds(limit)};
  me->code = rendezvous_tcp(&options, &me->at, me->secret, &r, &me->error);
  if (me->code) return NULL;
  for (int i = 0; i < 2 && !me->code; i++) {
    me->code = r->exchange(r, i ? "next" : "mine", 4, records, lengths, &me->error);
    if (!me->code && memcmp(records[0], i ? "then" : "mine", 4))
      me->code = error_set(&me->error, PLAIT_FAILED, "exchange %d brings something else", i);
    if (records[0]) free(records[0]), free(records[1]);
  }
  r->close(r);
  return NULL;
}

// The error of a rank to which rank 0 sends this instead of records.
static void told(const void *data, size_t bytes, int code, const char *words) {
  Rank1 rank = {.code = 0};
  pthread_t thread;
  Greeting greeting = GREETING(2, hash_text("run"));
  Answer answer;
  char record[4];
  int listener = listen_here(&rank.at);
  assert_int_equal(thread_start(&thread, be_rank_1, &rank, &rank.error, "rank 1"), PLAIT_OK);
  int fd = net_accept(listener, clock_seconds() + test_seconds(limit));
  assert_true(fd >= 0);
  put(fd, &greeting, sizeof greeting);
  assert_true(net_read(fd, &answer, sizeof answer, clock_seconds() + test_seconds(limit)));
  assert_true(answer.rank == 1 && answer.bytes == sizeof record);
  assert_true(net_read(fd, record, sizeof record, clock_seconds() + test_seconds(limit)));
  put(fd, data, bytes);
  shutdown(fd, SHUT_WR); // nothing follows
  pthread_join(thread, NULL);
  close(fd);
  close(listener);
  assert_int_equal(rank.code, code);
  has(&rank.error, words);
}

static void ranks_refuse_lists(void **state) {
  static const char malformed[] = "rank 1: what rank 0 sends is not a list of the ranks' records";
  struct { uint64_t length; char reason[RENDEZVOUS_REASON]; } list = {0, "another process is rank 1"};
  size_t bytes = sizeof list.length + sizeof list.reason;
  told(&list, bytes, PLAIT_BAD_INPUT, "another process is rank 1");
  told(&list, bytes - 1, PLAIT_FAILED, "rank 0 has gone");
  memset(list.reason, 0, sizeof list.reason);
  told(&list, bytes, PLAIT_FAILED, malformed);
  memset(list.reason, 'x', sizeof list.reason);
  told(&list, bytes, PLAIT_FAILED, malformed);
  list.length = RENDEZVOUS_RECORD + 1;
  told(&list, sizeof list.length, PLAIT_FAILED, malformed);
}

// Others that say nothing (test_arrivals.c shows that they delay nobody) ----------------------------------------------

enum { SILENT = 20 };

static void beside_silent_ones(const Secret *secret) {
  NetAddress at;
  Error error = {0};
  Rendezvous *r;
  void *records[2];
  size_t lengths[2];
  int silent[SILENT];
  pthread_t thread;
  close(listen_here(&at));
  Rank1 rank = {.at = at, .secret = secret};
  NetOptions options = {.rank = 0, .ranks = 2, .host = "127.0.0.1", .id = "run", .patience = test_seconds(limit)};
  assert_int_equal(rendezvous_tcp(&options, &at, secret, &r, &error), PLAIT_OK);
  for (int i = 0; i < SILENT; i++) {
    silent[i] = connect_to(&at);
    if (i % 2) put(silent[i], "half", 4); // it begins an answer
  }
  assert_int_equal(thread_start(&thread, be_rank_1, &rank, &rank.error, "rank 1"), PLAIT_OK);
  for (int i = 0; i < 2; i++) { // twice over the same connections
    assert_int_equal(r->exchange(r, i ? "then" : "mine", 4, records, lengths, &error), PLAIT_OK);
    assert_memory_equal(records[1], i ? "next" : "mine", 4);
    free(records[0]), free(records[1]);
  }
  pthread_join(thread, NULL);
  assert_int_equal(rank.code, PLAIT_OK);
  for (int i = 0; i < SILENT; i++) close(silent[i]);
  r->close(r);
}

static void rank_comes_beside_silent_ones(void **state) { beside_silent_ones(NULL); }

static void rank_with_a_secret_comes_beside_silent_ones(void **state) {
  static const Secret proved = {"the job's"};
  beside_silent_ones(&proved);
  static const Secret secret = {"the job's", .encrypts = true};
  Error error = {0};
  if (!tls_is_built() || tls_check(&error)) skip();
  beside_silent_ones(&secret);
}

// The watch: what is closed before the world is made is counted (test_net_watch.c has the rest).
static void watch_counts_strangers(void **state) {
  static const Wire wire = {.name = "by hand"};
  static const char hosts[2][HOST_NAME] = {"here", "there"};
  NetAddress at;
  Error error = {0};
  ProcessWorld world = {.rank = 0};
  NetWatch *watch;
  int listener = listen_here(&at);
  static const Secret secret = {.key = "the world's"};
  static const char http[] = "GET / HTTP/1.1\r\nHost: here\r\nUser-Agent: what is not plait\r\n\r\n";
  process_world_init(&world, &wire, 0, 2, 2);
  int a = connect_to(&at), b = connect_to(&at), c = connect_to(&at);
  put(a, "half", 4);
  put(b, http, sizeof http);
  close(c); // says nothing
  int code = net_watch_create(&world, listener, &at, &secret, hosts, limit, clock_seconds() + 2, &watch, &error);
  assert_int_equal(code, PLAIT_FAILED);
  has(&error, "another rank has gone before the world was made (connections closed that did not come from a rank: 3)");
  net_watch_destroy(watch);
  process_world_free(&world);
  close(a);
  close(b);
  close(listener);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(root_refuses_answers), cmocka_unit_test(root_refuses_further_answers),
      cmocka_unit_test(ranks_refuse_lists),
      cmocka_unit_test(watch_counts_strangers),
      cmocka_unit_test(rank_comes_beside_silent_ones), cmocka_unit_test(rank_with_a_secret_comes_beside_silent_ones),
  };
  unsetenv("PLAIT_SECRET");
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
