// tier 2 3; rooms comm elastic
// Strangers at the ports of a job: the store's, rank 0's rendezvous and watch, and a rank's for messages. Each is
// closed in time, nothing that it says has an effect, and who belongs to the job is served meanwhile and afterwards. In
// tier 3 there are 100,000 connections. With arguments, HOST PORT COUNT [SECONDS]: strangers at a port of a job that
// runs; status 1 if one was kept.
#include "base/clock.h"
#include "base/thread.h"
#include "comm/net_links.h"
#include "comm/net_watch.h"
#include "comm/rendezvous.h"
#include "comm/watch_frame.h"
#include "elastic/store.h"
#include "net/channel.h"
#include "net/secret.h"
#include "strangers.h"
#include "tier.h"
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const double close_seconds = 11; // of the slowest: ten for a record of a rank
static const Secret secret = {.key = "the job's"};

static long count(void) { return test_tier() < 3 ? 2000 : 100000; }
static double patience(void) { return test_seconds(600); }

static NetAddress free_address(void) {
  NetAddress at;
  assert_int_equal(net_resolve("127.0.0.1", 0, &at, NULL), PLAIT_OK);
  int fd = net_listen(&at);
  assert_true(fd >= 0);
  close(fd);
  return at;
}

// In a thread of their own.
typedef struct Crowd { pthread_t thread; Strangers strangers; StrangersSeen seen; volatile int over; } Crowd;

static void *crowd_in(void *argument) {
  Crowd *c = argument;
  c->seen = strangers_come(&c->strangers);
  c->over = 1;
  return NULL;
}

static void crowd_begin(Crowd *c, const NetAddress *at, long n) {
  Error error = {0};
  *c = (Crowd){.strangers = {.at = *at, .count = n, .most = 100, .seed = (unsigned)getpid(),
                             .seconds = test_seconds(close_seconds)}};
  printf("seed %u\n", c->strangers.seed);
  assert_int_equal(thread_start(&c->thread, crowd_in, c, &error, "strangers"), PLAIT_OK);
}

static void crowd_end(Crowd *c, long least) {
  pthread_join(c->thread, NULL);
  strangers_print(&c->seen, stdout);
  assert_int_equal(c->seen.kept, 0);
  assert_true(c->seen.came >= least);
}

// The store -----------------------------------------------------------------------------------------------------------

static void at_the_store(void **state) {
  NetAddress at = free_address();
  StoreServer *server;
  Store *store;
  StoreValue v = {0};
  Error error = {0};
  Crowd crowd;
  bool done;
  uint64_t lease = 0, version = 0;
  assert_int_equal(store_serve(&at, "job", false, &server, &error), PLAIT_OK);
  assert_int_equal(store_connect(&at, "job", test_seconds(10), &store, NULL, &error), 1);
  store->patience = test_seconds(10);
  assert_int_equal(store->lease(store, &lease, test_seconds(20), &error), PLAIT_OK);
  crowd_begin(&crowd, &at, count());
  for (int i = 0; !crowd.over || i < 10; i++) { // a member of the job meanwhile
    char text[24];
    uint64_t before = lease;
    snprintf(text, sizeof text, "%d", i);
    if (store->compare_and_set(store, "key", version, text, strlen(text), lease, &done, &v, &error))
      fail_msg("%s", error.message);
    assert_true(done && v.version > version);
    assert_string_equal(v.data, text);
    version = v.version;
    store_value_free(&v);
    assert_int_equal(store->lease(store, &lease, test_seconds(20), &error), PLAIT_OK);
    assert_int_equal(lease, before); // it has not lapsed
    poll(NULL, 0, 20);
  }
  crowd_end(&crowd, count());
  store->close(store);
  assert_int_equal(store_connect(&at, "job", test_seconds(10), &store, NULL, &error), 1); // and a new one afterwards
  store->close(store);
  store_server_stop(server);
}

// Rank 0 --------------------------------------------------------------------------------------------------------------

typedef struct Rank0 { NetAddress at; const Secret *secret; int code; Error error; } Rank0;

static void *be_rank_0(void *argument) {
  Rank0 *r = argument;
  Rendezvous *rendezvous;
  void *records[2] = {NULL};
  size_t lengths[2];
  const NetOptions options = {.rank = 0, .ranks = 2, .host = "127.0.0.1", .id = "job", .patience = patience(),
                              .notice = patience()};
  r->code = rendezvous_tcp(&options, &r->at, r->secret, &rendezvous, &r->error);
  if (r->code) return NULL;
  r->code = rendezvous->exchange(rendezvous, "of 0", 4, records, lengths, &r->error);
  if (!r->code && (lengths[1] != 4 || memcmp(records[1], "of 1", 4)))
    r->code = error_set(&r->error, PLAIT_FAILED, "the record of rank 1 is somebody else's");
  for (int i = 0; i < 2 && !r->code; i++) free(records[i]);
  rendezvous->close(rendezvous);
  return NULL;
}

// With a secret no stranger can be taken for rank 1. Without, any random answer that looks like one is; so only with
// it.
static void at_the_rendezvous(void **state) {
  Rank0 zero = {.at = free_address(), .secret = &secret};
  pthread_t thread;
  Crowd crowd;
  Rendezvous *rendezvous;
  void *records[2];
  size_t lengths[2];
  Error error = {0};
  const NetOptions options = {.rank = 1, .ranks = 2, .host = "127.0.0.1", .id = "job", .patience = test_seconds(60)};
  assert_int_equal(thread_start(&thread, be_rank_0, &zero, &error, "rank 0"), PLAIT_OK);
  int first = -1;
  for (double until = clock_seconds() + test_seconds(20); first < 0 && clock_seconds() < until; poll(NULL, 0, 5))
    first = net_connect(&zero.at, until);
  assert_true(first >= 0); // rank 0 listens
  close(first);
  crowd_begin(&crowd, &zero.at, count());
  crowd_end(&crowd, count());
  assert_int_equal(rendezvous_tcp(&options, &zero.at, &secret, &rendezvous, &error), PLAIT_OK);
  if (rendezvous->exchange(rendezvous, "of 1", 4, records, lengths, &error)) fail_msg("%s", error.message);
  assert_memory_equal(records[0], "of 0", 4);
  free(records[0]), free(records[1]);
  pthread_join(thread, NULL);
  if (zero.code) fail_msg("%s", zero.error.message);
  rendezvous->close(rendezvous);
}

typedef struct Rank1 { NetAddress at; const volatile int *go; bool met; int fd; } Rank1;

static void *be_rank_1(void *argument) {
  Rank1 *r = argument;
  const Introduction me = {.rank = 1};
  while (!*r->go) poll(NULL, 0, 10);
  double until = clock_seconds() + test_seconds(60);
  int fd = net_connect(&r->at, until);
  Channel *channel = fd < 0 ? NULL : channel_open(fd, false, &secret);
  r->met = channel && channel_meet(channel, until) && channel_write(channel, &me, sizeof me, until);
  if (r->met) r->fd = channel_release(channel);
  else channel_close(channel);
  return NULL;
}

static void at_the_watch(void **state) {
  static const Wire wire = {.name = "by hand"};
  static const char hosts[2][HOST_NAME] = {"here", "there"};
  ProcessWorld world = {.rank = 0};
  NetWatch *watch;
  Error error = {0};
  Crowd crowd;
  pthread_t thread;
  NetAddress at;
  assert_int_equal(net_resolve("127.0.0.1", 0, &at, NULL), PLAIT_OK);
  int listener = net_listen(&at);
  process_world_init(&world, &wire, 0, 2, 2);
  crowd_begin(&crowd, &at, count());
  Rank1 one = {.at = at, .go = &crowd.over, .fd = -1};
  assert_int_equal(thread_start(&thread, be_rank_1, &one, &error, "rank 1"), PLAIT_OK);
  if (net_watch_create(&world, listener, &at, &secret, hosts, 1e6, clock_seconds() + patience(), &watch, &error))
    fail_msg("%s", error.message);
  pthread_join(thread, NULL);
  crowd_end(&crowd, count());
  assert_true(one.met);
  net_watch_turn(watch, clock_seconds());
  assert_false(net_watch_is_gone(watch, 1));
  assert_int_equal(abort_code(&world.base.abort), 0);
  net_watch_destroy(watch);
  process_world_free(&world);
  close(one.fd);
  close(listener);
}

// Messages ------------------------------------------------------------------------------------------------------------

// Two ranks that have connected pass a message back and forth, and a third one comes afterwards.
static void at_the_links(void **state) {
  enum { RANKS = 3, BYTES = 200000 };
  static const char hosts[RANKS][HOST_NAME] = {"a", "b", "c"};
  Links *links[RANKS];
  LinkAddress told[RANKS] = {0};
  NetAddress at;
  Error error = {0};
  Crowd crowd;
  unsigned char *from = xcalloc(BYTES, 1), *to = xcalloc(BYTES, 1);
  WirePiece out = {from, BYTES}, in = {to, BYTES};
  assert_int_equal(net_resolve("127.0.0.1", 0, &at, NULL), PLAIT_OK);
  for (int r = 0; r < RANKS; r++) {
    links[r] = links_create(r, RANKS);
    assert_int_equal(links_listen_tcp(links[r], &at, &told[r], &error), PLAIT_OK);
  }
  for (int r = 0; r < RANKS; r++) {
    for (int p = 0; p < RANKS; p++) links_set_peer(links[r], p, &told[p], false);
    links_begin(links[r], &secret, false, hosts);
  }
  NetAddress port = link_address_get(&told[1]);
  crowd_begin(&crowd, &port, count());
  for (int i = 0; !crowd.over || i < 10; i++) {
    int sender = crowd.over && i % 2 ? 2 : 0; // to whom they go
    LinkMessage sent = link_message(&out, 1), got = link_message(&in, 1);
    memset(from, i, BYTES);
    links_receive(links[1], &got, sender, 1);
    links_send(links[sender], &sent, 1, 1, false);
    double end = clock_seconds() + test_seconds(30);
    while (!(sent.done && got.done) && clock_seconds() < end)
      for (int r = 0; r < RANKS; r++) links_progress(links[r]);
    assert_true(sent.done && got.done);
    assert_memory_equal(from, to, BYTES);
  }
  crowd_end(&crowd, count());
  assert_true(links_strangers(links[1]) > 0);
  for (int r = 0; r < RANKS; r++) links_destroy(links[r]);
  free(from);
  free(to);
}

static int visit(int argc, char **argv) {
  Strangers s = {.count = atol(argv[3]), .most = 100, .seed = (unsigned)getpid(),
                 .seconds = argc > 4 ? atof(argv[4]) : close_seconds};
  Error error = {0};
  if (net_resolve(argv[1], atoi(argv[2]), &s.at, &error)) return fprintf(stderr, "%s\n", error.message), 2;
  StrangersSeen seen = strangers_come(&s);
  printf("seed %u: ", s.seed);
  strangers_print(&seen, stdout);
  return seen.kept ? 1 : 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(at_the_store), cmocka_unit_test(at_the_rendezvous),
                                     cmocka_unit_test(at_the_watch), cmocka_unit_test(at_the_links)};
  if (argc > 3) return visit(argc, argv);
  unsetenv("PLAIT_SECRET");
  unsetenv(secret_drawn_variable);
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
