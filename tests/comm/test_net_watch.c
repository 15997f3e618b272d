// tier 1; threads
// The watch of rank 0 of a world of net, without its thread: the test plays the other ranks and moves the time. What is
// silent, who is named, what is passed on; malformed messages close the connection and are told in one sentence.
#include "base/clock.h"
#include "base/error.h"
#include "comm/net_watch.h"
#include "net/channel.h"
#include "net/tls.h"
#include "comm/watch_frame.h"
#include "tier.h"
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

enum { MOST = 4 };
static const double silence = 20;
static const Wire wire = {.name = "by hand"};
static const char hosts[MOST][HOST_NAME] = {"here", "there", "elsewhere", "nowhere"};

typedef struct Watched {
  ProcessWorld world;
  NetWatch *watch;
  int ranks, fd[MOST]; // of the ranks after 0
  double now;
} Watched;

static double soon(void) { return clock_seconds() + test_seconds(20); } // of what takes no time

static int listen_here(NetAddress *at) {
  assert_int_equal(net_resolve("127.0.0.1", 0, at, NULL), PLAIT_OK);
  int fd = net_listen(at);
  assert_true(fd >= 0);
  return fd;
}

static const Secret ours = {.key = "the world's"}, other = {.key = "a stranger's"};

// A rank, or who says that it is one, beside rank 0's thread. fd -1: it was not let in, or talks by TLS.
typedef struct Guest { pthread_t thread; NetAddress at; int rank, fd; Secret secret; Channel *channel; } Guest;

static void *introduce(void *argument) {
  Guest *g = argument;
  Introduction me = {.rank = (uint32_t)g->rank};
  int fd = net_connect(&g->at, soon());
  Channel *channel = fd < 0 ? NULL : channel_open(fd, false, &g->secret);
  g->fd = -1;
  if (channel && channel_meet(channel, soon()) && channel_write(channel, &me, sizeof me, soon())) {
    if (g->secret.encrypts) g->channel = channel;
    else g->fd = channel_release(channel);
  } else channel_close(channel);
  return NULL;
}

static void come(Guest *g, const NetAddress *at, int rank, const Secret *secret) {
  *g = (Guest){.at = *at, .rank = rank, .secret = *secret};
  assert_int_equal(pthread_create(&g->thread, NULL, introduce, g), 0);
}

static void begin(Watched *w, int ranks) {
  NetAddress at;
  Error error = {0};
  Guest guests[MOST];
  int listener = listen_here(&at);
  *w = (Watched){.ranks = ranks};
  process_world_init(&w->world, &wire, 0, ranks, ranks);
  for (int r = 1; r < ranks; r++) come(&guests[r], &at, r, &ours);
  assert_int_equal(net_watch_create(&w->world, listener, &at, &ours, hosts, silence, soon(), &w->watch, &error),
                   PLAIT_OK);
  for (int r = 1; r < ranks; r++) {
    pthread_join(guests[r].thread, NULL);
    assert_true((w->fd[r] = guests[r].fd) >= 0);
  }
  w->now = clock_seconds();
  net_watch_turn(w->watch, w->now);
  close(listener);
}

static void end(Watched *w) {
  net_watch_destroy(w->watch);
  process_world_free(&w->world);
  for (int r = 1; r < w->ranks; r++)
    if (w->fd[r] >= 0) close(w->fd[r]);
}

static void say(Watched *w, int rank, Word word, const void *data, size_t bytes) {
  unsigned char frame[FRAME_BYTES];
  size_t whole = frame_write(frame, word, data, bytes);
  assert_true(net_write(w->fd[rank], frame, whole, soon()));
}

static void pulse(Watched *w, int rank) {
  uint64_t call = 0;
  say(w, rank, WORD_PULSE, &call, sizeof call);
}

// What rank 0 says next to this rank, pulses aside.
static Frame hear(Watched *w, int rank) {
  unsigned char came[FRAME_BYTES];
  size_t have = 0;
  Frame frame;
  for (;;) {
    int taken = frame_take(came, have, 0, w->ranks, &frame);
    assert_true(taken >= 0);
    if (taken && frame.word != WORD_PULSE) return frame;
    if (taken) have = 0;
    else assert_true(net_read(w->fd[rank], came + have++, 1, soon()));
  }
}

static int code_of(Watched *w) { return abort_code(&w->world.base.abort); }
static const char *sentence(Watched *w) { return w->world.base.abort.error.message; }

// Turns that take no time, until the world has failed with words about this rank.
static void fails(Watched *w, int rank, const char *words) {
  for (double until = soon(); !code_of(w) && clock_seconds() < until;) net_watch_turn(w->watch, w->now);
  assert_int_equal(code_of(w), PLAIT_FAILED);
  if (!strstr(sentence(w), words)) fail_msg("\"%s\" lacks \"%s\"", sentence(w), words);
  const ErrorRank *blamed = &w->world.base.abort.error.blamed;
  assert_int_equal(blamed->known ? blamed->rank : -1, rank);
}

static void pass(Watched *w, double seconds) {
  for (int i = 1; i <= 10; i++) net_watch_turn(w->watch, w->now += seconds / 10);
}

static void silence_is_noticed(void **state) {
  Watched w;
  begin(&w, 3);
  for (int i = 0; i < 40; i++) { // both say something, in turns
    pulse(&w, 1 + i % 2);
    pass(&w, 5);
    assert_int_equal(code_of(&w), 0);
  }
  for (int i = 0; i < 3; i++) pulse(&w, 1), pass(&w, 5); // of rank 2 the last was heard 4.5 s before
  assert_int_equal(code_of(&w), 0);
  pulse(&w, 1);
  net_watch_turn(w.watch, w.now += 0.6);
  fails(&w, 2, "rank 2 on elsewhere is silent: nothing has come of it for 20 s (run.silence); ");
  assert_true(net_watch_met_silence(w.watch));
  assert_true(net_watch_is_gone(w.watch, 2));
  assert_false(net_watch_is_gone(w.watch, 1));
  Frame told = hear(&w, 1);
  assert_int_equal(told.word, WORD_NOTICE);
  assert_int_equal(told.notice.error.blamed.rank, 2);
  assert_true(told.notice.silent);
  end(&w);
}

// This process was stopped itself for longer than the silence: it does not know whether others were silent.
static void a_watch_that_was_stopped(void **state) {
  Watched w;
  begin(&w, 2);
  net_watch_turn(w.watch, w.now += 100);
  assert_int_equal(code_of(&w), 0);
  pass(&w, 9);
  pass(&w, 9);
  assert_int_equal(code_of(&w), 0);
  pass(&w, 9);
  fails(&w, 1, "rank 1 on there is silent");
  end(&w);
}

// Whatever the silence, many pulses go within it; and with a long one still ten in a second.
static void pulses(void **state) {
  static const double silences[] = {0.5, 5, 500};
  for (int s = 0; s < 3; s++) {
    Watched w;
    unsigned char came[64 * FRAME_BYTES];
    begin(&w, 2);
    net_watch_set_silence(w.watch, silences[s]);
    double period = silences[s] < 1 ? silences[s] / 10 : 0.1, head = sizeof(FrameHead) + sizeof(uint64_t);
    for (int i = 0; i < 200; i++) {
      if (i % 20 == 0) pulse(&w, 1);
      net_watch_turn(w.watch, w.now += period / 10);
    }
    ssize_t n = recv(w.fd[1], came, sizeof came, 0);
    assert_in_range(n, 19 * head, 22 * head);
    assert_int_equal(code_of(&w), 0);
    end(&w);
  }
}

// Rank 1 knows why rank 2 has failed; rank 0 passes it on to rank 3, and names neither itself nor rank 1.
static void the_cause_is_passed_on(void **state) {
  Watched w;
  Notice notice = {.error = {.code = PLAIT_FAILED, .message = "the disk is full", .blamed = {1, 2, ""}}},
         later = notice;
  begin(&w, 4);
  say(&w, 1, WORD_NOTICE, &notice, sizeof notice);
  fails(&w, 2, "the disk is full");
  later.error.blamed.rank = 1;
  say(&w, 3, WORD_NOTICE, &later, sizeof later); // the first one counts
  close(w.fd[1]);
  w.fd[1] = -1;
  pass(&w, 1);
  assert_int_equal(w.world.base.abort.error.blamed.rank, 2);
  for (int r = 2; r < 4; r++) {
    Frame told = hear(&w, r);
    assert_int_equal(told.word, WORD_NOTICE);
    assert_int_equal(told.notice.error.blamed.rank, 2);
    assert_string_equal(told.notice.error.message, "the disk is full");
  }
  end(&w);
}

// What a rank says before its end counts, though both come at once.
static void words_before_the_end(void **state) {
  Watched w;
  Notice notice = {.error = {.code = PLAIT_FAILED, .message = "the disk is full", .blamed = {1, 1, ""}}};
  begin(&w, 2);
  say(&w, 1, WORD_NOTICE, &notice, sizeof notice);
  close(w.fd[1]);
  w.fd[1] = -1;
  fails(&w, 1, "the disk is full");
  end(&w);
}

static void all_leave(void **state) {
  Watched w;
  begin(&w, 3);
  net_watch_leave(w.watch);
  say(&w, 1, WORD_LEAVE, NULL, 0);
  say(&w, 1, WORD_LEAVE, NULL, 0); // twice is once
  pass(&w, 1);
  assert_false(net_watch_left(w.watch));
  say(&w, 2, WORD_LEAVE, NULL, 0);
  for (double until = soon(); !net_watch_left(w.watch) && clock_seconds() < until;) net_watch_turn(w.watch, w.now);
  assert_true(net_watch_left(w.watch));
  for (int r = 1; r < 3; r++) {
    assert_int_equal(hear(&w, r).word, WORD_LEFT);
    close(w.fd[r]);
    w.fd[r] = -1;
  }
  pass(&w, 5);
  assert_int_equal(code_of(&w), 0); // who goes now has not died
  end(&w);
}

static void refuses(Word word, const void *data, size_t bytes) {
  Watched w;
  char rest[4096];
  begin(&w, 2);
  say(&w, 1, word, data, bytes);
  fails(&w, 1, "rank 1 on there has sent what is not a message of the watch, so its connection was closed");
  assert_int_equal(net_watch_left(w.watch), 0);
  ssize_t n = 1;
  while (n > 0 && net_ready(w.fd[1], POLLIN, soon())) n = read(w.fd[1], rest, sizeof rest);
  assert_int_equal(n, 0); // the end, after pulses of rank 0
  end(&w);
}

static void malformed_frames(void **state) {
  Notice notice = {.error = {.code = -77, .message = "what no rank says"}};
  refuses(WORD_NOTICE, &notice, sizeof notice);
  notice.error.code = PLAIT_FAILED, notice.error.blamed = error_rank(2, NULL);
  refuses(WORD_NOTICE, &notice, sizeof notice);
  refuses(WORD_LEFT, NULL, 0);
  refuses((Word)77, NULL, 0);
}

static void a_notice_in_two_parts(void **state) {
  Watched w;
  unsigned char frame[FRAME_BYTES];
  Notice notice = {.error = {.code = PLAIT_FAILED, .message = "a sentence"}};
  begin(&w, 2);
  size_t bytes = frame_write(frame, WORD_NOTICE, &notice, sizeof notice);
  assert_true(net_write(w.fd[1], frame, 100, soon()));
  pass(&w, 1);
  assert_int_equal(code_of(&w), 0);
  assert_true(net_write(w.fd[1], frame + 100, bytes - 100, soon()));
  fails(&w, -1, "a sentence");
  end(&w);
}

// Nothing but the end of the connection tells of it here: no time passes. Once by the thread, which the other tests do
// without.
static void deaths(void **state) {
  for (int thread = 0; thread < 2; thread++) {
    Watched w;
    Error error = {0};
    begin(&w, 2);
    net_watch_set_silence(w.watch, 1e6);
    if (thread) assert_int_equal(net_watch_start(w.watch, &error), PLAIT_OK);
    assert_false(net_watch_is_gone(w.watch, 1));
    close(w.fd[1]);
    w.fd[1] = -1;
    for (double until = soon(); !net_watch_is_gone(w.watch, 1) && clock_seconds() < until;)
      if (!thread) net_watch_turn(w.watch, w.now);
    assert_true(net_watch_is_gone(w.watch, 1));
    fails(&w, 1, "rank 1 on there has died: its connection has ended");
    end(&w);
  }
}

// Who does not prove to have the secret of the world is not let in, nor who has it and is not another rank. Connections
// that say nothing, or what is not a proof, are in nobody's way (test_arrivals.c).
static void strangers(void **state) {
  NetAddress at;
  ProcessWorld world = {.rank = 0};
  NetWatch *watch;
  Error error = {0};
  Guest guests[3];
  char byte;
  int listener = listen_here(&at), silent[20];
  process_world_init(&world, &wire, 0, 2, 2);
  for (int i = 0; i < 20; i++) {
    assert_true((silent[i] = net_connect(&at, soon())) >= 0);
    if (i % 2) assert_true(net_write(silent[i], "half", 4, soon()));
  }
  come(&guests[0], &at, 1, &other);
  come(&guests[1], &at, 2, &ours);
  poll(NULL, 0, 300); // these come first
  come(&guests[2], &at, 1, &ours);
  assert_int_equal(net_watch_create(&world, listener, &at, &ours, hosts, silence, soon(), &watch, &error), PLAIT_OK);
  for (int i = 0; i < 3; i++) pthread_join(guests[i].thread, NULL);
  assert_int_equal(guests[0].fd, -1);
  assert_true(guests[1].fd < 0 || (net_ready(guests[1].fd, POLLIN, soon()) && recv(guests[1].fd, &byte, 1, 0) <= 0));
  assert_true(guests[2].fd >= 0);
  assert_false(net_watch_is_gone(watch, 1));
  net_watch_turn(watch, clock_seconds() + 1); // it has rank 1's connection, and no stranger's
  assert_true(net_ready(guests[2].fd, POLLIN, soon()) && recv(guests[2].fd, &byte, 1, 0) == 1);
  net_watch_destroy(watch);
  process_world_free(&world);
  for (int i = 0; i < 20; i++) close(silent[i]);
  for (int i = 1; i < 3; i++)
    if (guests[i].fd >= 0) close(guests[i].fd);
  close(listener);
}

// With the user's secret: what rank 1 and rank 0 say goes by TLS. A frame may fill a connection that nobody reads; it
// follows, and is whole, when it is read.
static void by_tls(void **state) {
  const Secret tls = {.key = "the user's", .encrypts = true};
  const Notice notice = {.error = {.code = PLAIT_FAILED, .message = "a sentence", .blamed = {1, 1, ""}}};
  NetAddress at;
  ProcessWorld world = {.rank = 0};
  NetWatch *watch;
  Error error = {0};
  Guest one;
  unsigned char frame[FRAME_BYTES], came[FRAME_BYTES];
  if (!tls_is_built() || tls_check(&error)) skip();
  int listener = listen_here(&at);
  process_world_init(&world, &wire, 0, 2, 2);
  come(&one, &at, 1, &tls);
  assert_int_equal(net_watch_create(&world, listener, &at, &tls, hosts, 1e9, soon(), &watch, &error), PLAIT_OK);
  pthread_join(one.thread, NULL);
  assert_non_null(one.channel);
  double now = clock_seconds(), until = soon();
  for (int i = 0; i < 100000; i++) net_watch_turn(watch, now += 0.2); // pulses, until no more go
  size_t pulses = 0, have = 0, whole = frame_write(frame, WORD_NOTICE, &notice, sizeof notice);
  assert_true(channel_write(one.channel, frame, whole, soon()));
  while (!abort_code(&world.base.abort) && clock_seconds() < until) net_watch_turn(watch, now);
  assert_string_equal(world.base.abort.error.message, "a sentence");
  for (ssize_t n = 1; clock_seconds() < until;) { // all of the pulses are whole
    Frame f;
    int taken = frame_take(came, have, 0, 2, &f);
    assert_true(taken >= 0);
    if (taken) memmove(came, came + taken, have -= (size_t)taken), pulses++;
    else if (n < 0 && pulses > 5000) break;
    else if ((n = channel_receive(one.channel, came + have, sizeof came - have)) > 0) have += (size_t)n;
    else net_watch_turn(watch, now += 0.2);
  }
  assert_true(pulses > 5000);
  assert_int_equal(have, 0);
  net_watch_destroy(watch);
  process_world_free(&world);
  channel_close(one.channel);
  close(listener);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(silence_is_noticed),  cmocka_unit_test(a_watch_that_was_stopped), cmocka_unit_test(pulses),
      cmocka_unit_test(the_cause_is_passed_on), cmocka_unit_test(words_before_the_end),  cmocka_unit_test(all_leave),
      cmocka_unit_test(malformed_frames),    cmocka_unit_test(a_notice_in_two_parts),    cmocka_unit_test(deaths),
      cmocka_unit_test(strangers),           cmocka_unit_test(by_tls),
  };
  unsetenv("PLAIT_SECRET");
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
