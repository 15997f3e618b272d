// tier 2; threads
// A rank of net that receives malformed messages closes the connection and reports it in one sentence. The test plays
// the other side.
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/thread.h"
#include "comm/net_watch.h"
#include "comm/rendezvous.h"
#include "comm/rendezvous_parse.h"
#include "comm/tls.h"
#include "comm/watch_frame.h"
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static const double limit = 20; // seconds, of what takes none
static const double no_delay = 4; // less than the limits of a handshake and of an answer

static int listen_here(NetAddress *at) {
  assert_int_equal(net_resolve("127.0.0.1", 0, at, NULL), PLAIT_OK);
  int fd = net_listen(at);
  assert_true(fd >= 0);
  return fd;
}

static int connect_to(const NetAddress *at) {
  int fd = net_connect(at, clock_seconds() + limit);
  assert_true(fd >= 0);
  return fd;
}

static void put(int fd, const void *data, size_t bytes) {
  assert_true(net_write(fd, data, bytes, clock_seconds() + limit));
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
  NetOptions options = {.rank = 0, .ranks = 2, .host = "127.0.0.1", .id = "run", .patience = 1};
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
    assert_true(net_read(stranger[i], &greeting, sizeof greeting, clock_seconds() + limit));
    assert_false(net_read(stranger[i], &byte, 1, clock_seconds() + limit));
    close(stranger[i]);
  }
  r->close(r);
}

// The rendezvous: another rank ----------------------------------------------------------------------------------------

typedef struct Rank1 { NetAddress at; const Secret *secret; int code; Error error; } Rank1;

static void *be_rank_1(void *argument) {
  Rank1 *me = argument;
  Rendezvous *r;
  void *records[2] = {NULL};
  size_t lengths[2];
  NetOptions options = {.rank = 1, .ranks = 2, .host = "127.0.0.1", .id = "run", .patience = limit};
  me->code = rendezvous_tcp(&options, &me->at, me->secret, &r, &me->error);
  if (me->code) return NULL;
  me->code = r->exchange(r, "mine", 4, records, lengths, &me->error);
  if (!me->code) free(records[0]), free(records[1]);
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
  int fd = net_accept(listener, clock_seconds() + limit);
  assert_true(fd >= 0);
  put(fd, &greeting, sizeof greeting);
  assert_true(net_read(fd, &answer, sizeof answer, clock_seconds() + limit));
  assert_true(answer.rank == 1 && answer.bytes == sizeof record);
  assert_true(net_read(fd, record, sizeof record, clock_seconds() + limit));
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

// Others that say nothing ---------------------------------------------------------------------------------------------

enum { SILENT = 20 };

// So many connections, of which every second one begins an answer.
static void be_silent(const NetAddress *at, int fds[SILENT]) {
  for (int i = 0; i < SILENT; i++) {
    fds[i] = connect_to(at);
    if (i % 2) put(fds[i], "half", 4);
  }
}

static void rank_comes_beside_silent_ones(const Secret *secret) {
  NetAddress at;
  Error error = {0};
  Rendezvous *r;
  void *records[2];
  size_t lengths[2];
  int silent[SILENT];
  pthread_t thread;
  close(listen_here(&at));
  Rank1 rank = {.at = at, .secret = secret};
  NetOptions options = {.rank = 0, .ranks = 2, .host = "127.0.0.1", .id = "run", .patience = limit};
  assert_int_equal(rendezvous_tcp(&options, &at, secret, &r, &error), PLAIT_OK);
  be_silent(&at, silent);
  double began = clock_seconds();
  assert_int_equal(thread_start(&thread, be_rank_1, &rank, &rank.error, "rank 1"), PLAIT_OK);
  assert_int_equal(r->exchange(r, "mine", 4, records, lengths, &error), PLAIT_OK);
  assert_true(clock_seconds() - began < no_delay);
  pthread_join(thread, NULL);
  assert_int_equal(rank.code, PLAIT_OK);
  for (int i = 0; i < 2; i++) free(records[i]);
  for (int i = 0; i < SILENT; i++) close(silent[i]);
  r->close(r);
}

static void silent_ones_delay_nobody(void **state) {
  static const Secret secret = {"the job's"};
  Error error = {0};
  rank_comes_beside_silent_ones(NULL);
  if (tls_is_built() && !tls_check(&error)) rank_comes_beside_silent_ones(&secret);
}

// The watch -----------------------------------------------------------------------------------------------------------

static const Wire wire = {.name = "by hand"};
static const char hosts[2][HOST_NAME] = {"here", "there"};

typedef struct Watched { // rank 0 of two
  ProcessWorld world;
  NetWatch *watch;
  int fd;      // of rank 1
} Watched;

static void begin(Watched *w) {
  NetAddress at;
  Error error = {0};
  int listener = listen_here(&at);
  Introduction me = introduction_of(1, 7, NULL);
  process_world_init(&w->world, &wire, 0, 2, 2);
  w->fd = connect_to(&at);
  put(w->fd, &me, sizeof me);
  assert_int_equal(net_watch_create(&w->world, listener, &at, 7, NULL, hosts, limit, clock_seconds() + limit, &w->watch,
                                    &error), PLAIT_OK);
  assert_int_equal(net_watch_start(w->watch, &error), PLAIT_OK);
  close(listener);
}

static void end(Watched *w) {
  net_watch_destroy(w->watch);
  process_world_free(&w->world);
  if (w->fd >= 0) close(w->fd);
}

static const char *failure(Watched *w) {
  Abort *abort = &w->world.base.abort;
  for (double until = clock_seconds() + limit; !abort_code(abort) && clock_seconds() < until;) poll(NULL, 0, 5);
  assert_int_equal(abort_code(abort), PLAIT_FAILED);
  return abort->error.message;
}

static void watch_refuses(Word word, const void *data, size_t bytes) {
  Watched w = {.fd = -1};
  unsigned char frame[FRAME_BYTES];
  char rest[4096];
  begin(&w);
  put(w.fd, frame, frame_write(frame, word, data, bytes));
  const char *sentence = failure(&w);
  if (!strstr(sentence, "rank 1 on there has sent what is not a message of the watch, so its connection was closed"))
    fail_msg("%s", sentence);
  assert_int_equal(w.world.base.abort.rank, 1);
  assert_int_equal(net_watch_left(w.watch), 0);
  double until = clock_seconds() + limit; // pulses of rank 0, then the end
  for (ssize_t n = 1; n > 0;) assert_true(net_ready(w.fd, POLLIN, until) && (n = read(w.fd, rest, sizeof rest), true));
  end(&w);
}

static void watch_refuses_frames(void **state) {
  Notice notice = {.code = -77, .rank = 0, .message = "what no rank says"};
  watch_refuses(WORD_NOTICE, &notice, sizeof notice);
  notice.code = PLAIT_FAILED, notice.rank = 2;
  watch_refuses(WORD_NOTICE, &notice, sizeof notice);
  watch_refuses(WORD_LEFT, NULL, 0);
  watch_refuses((Word)77, NULL, 0);
}

static void watch_takes_notices(void **state) {
  Watched w = {.fd = -1};
  unsigned char frame[FRAME_BYTES];
  Notice notice = {.code = PLAIT_FAILED, .rank = -1, .message = "a sentence"};
  begin(&w);
  size_t bytes = frame_write(frame, WORD_NOTICE, &notice, sizeof notice);
  put(w.fd, frame, 100); // in two parts
  poll(NULL, 0, 30);
  put(w.fd, frame + 100, bytes - 100);
  assert_string_equal(failure(&w), "a sentence");
  end(&w);
}

// Nothing but the end of the connection tells of it here: there is no UCX, and the silence is longer than the wait.
static void watch_sees_deaths(void **state) {
  Watched w = {.fd = -1};
  begin(&w);
  net_watch_set_silence(w.watch, 10 * limit);
  assert_int_equal(net_watch_is_gone(w.watch, 1), 0);
  close(w.fd);
  w.fd = -1;
  const char *sentence = failure(&w);
  if (!strstr(sentence, "rank 1 on there has died: its connection has ended")) fail_msg("%s", sentence);
  assert_int_equal(w.world.base.abort.rank, 1);
  for (double until = clock_seconds() + limit; !net_watch_is_gone(w.watch, 1) && clock_seconds() < until;)
    poll(NULL, 0, 5);
  assert_int_equal(net_watch_is_gone(w.watch, 1), 1);
  end(&w);
}

static void watch_refuses_strangers(void **state) {
  NetAddress at;
  Error error = {0};
  ProcessWorld world = {.rank = 0};
  NetWatch *watch;
  int listener = listen_here(&at);
  Introduction other = introduction_of(2, 7, NULL), stranger = introduction_of(1, 8, NULL);
  process_world_init(&world, &wire, 0, 2, 2);
  int a = connect_to(&at), b = connect_to(&at), c = connect_to(&at);
  put(a, &other, sizeof other);
  put(b, &stranger, sizeof stranger);
  close(c); // says nothing
  assert_int_equal(
      net_watch_create(&world, listener, &at, 7, NULL, hosts, limit, clock_seconds() + 0.5, &watch, &error),
      PLAIT_FAILED);
  has(&error, "another rank has gone before the world was made (connections closed that did not come from a rank: 3)");
  net_watch_destroy(watch);
  process_world_free(&world);
  close(a);
  close(b);
  close(listener);
}

static void silent_ones_delay_no_watch(void **state) {
  Watched w = {.fd = -1};
  NetAddress at;
  Error error = {0};
  int listener = listen_here(&at), silent[SILENT];
  Introduction me = introduction_of(1, 7, NULL);
  process_world_init(&w.world, &wire, 0, 2, 2);
  be_silent(&at, silent);
  w.fd = connect_to(&at);
  put(w.fd, &me, sizeof me);
  double began = clock_seconds();
  assert_int_equal(net_watch_create(&w.world, listener, &at, 7, NULL, hosts, limit, clock_seconds() + limit, &w.watch,
                                    &error), PLAIT_OK);
  assert_true(clock_seconds() - began < no_delay);
  for (int i = 0; i < SILENT; i++) close(silent[i]);
  close(listener);
  end(&w);
}

// The secret's holder is let in, the holder of another is not.
static void watch_wants_proofs(void **state) {
  static const Secret secret = {"the job's"}, other = {"a stranger's"};
  NetAddress at;
  Error error = {0};
  ProcessWorld world = {.rank = 0};
  NetWatch *watch;
  if (!tls_is_built()) return;
  assert_int_equal(tls_check(&error), PLAIT_OK);
  int listener = listen_here(&at);
  Introduction rank = introduction_of(1, 7, &secret), stranger = introduction_of(1, 7, &other);
  process_world_init(&world, &wire, 0, 2, 2);
  int a = connect_to(&at), b = connect_to(&at);
  put(a, &stranger, sizeof stranger);
  put(b, &rank, sizeof rank);
  assert_int_equal(
      net_watch_create(&world, listener, &at, 7, &secret, hosts, limit, clock_seconds() + limit, &watch, &error),
      PLAIT_OK);
  char byte;
  assert_true(net_ready(a, POLLIN, clock_seconds() + limit) && recv(a, &byte, 1, 0) == 0); // it was closed
  net_watch_destroy(watch);
  process_world_free(&world);
  close(a);
  close(b);
  close(listener);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(root_refuses_answers),   cmocka_unit_test(ranks_refuse_lists),
      cmocka_unit_test(watch_refuses_frames),   cmocka_unit_test(watch_takes_notices),
      cmocka_unit_test(watch_refuses_strangers), cmocka_unit_test(watch_sees_deaths),
      cmocka_unit_test(watch_wants_proofs),
      cmocka_unit_test(silent_ones_delay_nobody), cmocka_unit_test(silent_ones_delay_no_watch),
  };
  unsetenv("PLAIT_SECRET");
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
