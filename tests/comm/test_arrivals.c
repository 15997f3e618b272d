// tier 1; threads
// Connections that have to say who they are, with time that the test moves: the other ends are sockets of this process.
#include "comm/arrivals.h"
#include "net/tls.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

enum { HEAD = 8, MOST = 20 };
static double now = 1000; // of the test

// An answer's head is a letter, and a digit that says how many bytes follow.
static int64_t rest(const void *head, const void *context) {
  const char *h = head;
  return *h == 'x' ? -1 : h[1] - '0';
}

static void begin(Arrivals *a, const Secret *given) {
  Error error = {0};
  const Welcome welcome = {.secret = given, .greeting = "hello", .greeting_bytes = 5, .head_bytes = HEAD, .rest = rest,
                           .meeting_seconds = 4, .answer_seconds = 10, .most = MOST};
  if (arrivals_begin(a, -1, &welcome, &error)) fail_msg("%s", error.message);
}

// Somebody comes; returns the other end.
static int come(Arrivals *a) {
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  server_add(a->server, pair[0], now);
  return pair[1];
}

static void say(int fd, const char *text) { assert_int_equal(write(fd, text, strlen(text)), (int)strlen(text)); }
static bool is_closed(int fd) {
  char bytes[64];
  ssize_t n;
  while ((n = read(fd, bytes, sizeof bytes)) > 0) {}
  return n == 0;
}

// Nobody has; returns when the next turn is.
static double nobody(Arrivals *a) {
  double due = now;
  Channel *channel;
  void *answer;
  for (int i = 0; i < 10 && due <= now; i++) assert_false(arrivals_turn(a, now, &due, &channel, &answer));
  return due;
}

static int here(const Arrivals *a) {
  int count = 0;
  for (const Connection *c = server_first(a->server); c; c = c->next) count++;
  return count;
}

// Who has given a whole answer.
static void next(Arrivals *a, const char *text) {
  Channel *channel;
  void *answer;
  double due;
  assert_true(arrivals_turn(a, now, &due, &channel, &answer));
  assert_memory_equal(answer, text, strlen(text));
  channel_close(channel);
  free(answer);
}

static void answers_come_in_parts(void **state) {
  Arrivals a;
  begin(&a, NULL);
  assert_true(isinf(nobody(&a)));
  int first = come(&a), second = come(&a);
  nobody(&a);
  char greeting[5];
  assert_int_equal(read(first, greeting, 5), 5);
  assert_memory_equal(greeting, "hello", 5);
  say(first, "a5......12");
  nobody(&a);
  say(second, "b0......");
  next(&a, "b0......");
  say(first, "345and more");
  next(&a, "a5......12345");
  nobody(&a);
  assert_int_equal(here(&a), 0);
  arrivals_end(&a);
  assert_int_equal(a.without_secret + a.unanswered + a.refused, 0);
  close(first);
  close(second);
}

// Each has its own time for an answer, and what it has said of one does not make it longer.
static void answers_have_a_limit(void **state) {
  Arrivals a;
  begin(&a, NULL);
  int early = come(&a), late, goes;
  assert_true(nobody(&a) == now + 10);
  now += 6;
  late = come(&a);
  goes = come(&a);
  say(early, "a5...");
  nobody(&a);
  now += 4.5;
  nobody(&a);
  assert_true(is_closed(early));
  assert_int_equal(a.unanswered, 1);
  close(goes);
  nobody(&a);
  assert_int_equal(a.unanswered, 2);
  assert_int_equal(here(&a), 1);
  now += 5;
  say(late, "b0......"); // in time
  next(&a, "b0......");
  int refused = come(&a);
  say(refused, "x0......");
  nobody(&a);
  assert_true(is_closed(refused));
  assert_int_equal(a.refused, 1);
  arrivals_end(&a);
  close(early);
  close(late);
  close(refused);
}

// So many that say nothing, or half of it, before one that says all: it is heard at once.
static void silent_ones_delay_nobody(void **state) {
  Arrivals a;
  begin(&a, NULL);
  int silent[MOST];
  for (int i = 0; i < MOST - 1; i++) {
    silent[i] = come(&a);
    if (i % 2) say(silent[i], "half");
  }
  silent[MOST - 1] = come(&a);
  say(silent[MOST - 1], "b0......");
  next(&a, "b0......");
  for (int i = 0; i < 3; i++) close(come(&a)); // two more than may be here: the first has waited longest
  assert_int_equal(here(&a), MOST);
  assert_true(is_closed(silent[0]) && is_closed(silent[1]));
  assert_false(is_closed(silent[2]));
  arrivals_end(&a);
  for (int i = 0; i < MOST; i++) close(silent[i]);
}

// With a secret: who says nothing has the time of a handshake, and delays nobody; who has another is told from him.
static void handshakes(bool encrypts) {
  const Secret secret = {"the job's", encrypts}, other = {"a stranger's", encrypts};
  Arrivals a;
  begin(&a, &secret);
  int silent = come(&a);
  Channel *rank = channel_open(come(&a), false, &secret), *stranger = channel_open(come(&a), false, &other);
  int met = 0, strange = 0;
  for (int turns = 0; turns < 100 && (!met || !strange || here(&a) > 2); turns++) {
    if (!met) met = channel_greet(rank);
    if (!strange) strange = channel_greet(stranger);
    nobody(&a);
  }
  assert_int_equal(met, 1);
  assert_int_equal(a.without_secret, 1);
  assert_int_equal(here(&a), 2);
  assert_int_equal(channel_send(rank, "b0......", HEAD), HEAD);
  next(&a, "b0......");
  now += 4.5;
  nobody(&a);
  assert_true(is_closed(silent));
  assert_int_equal(a.without_secret, 2);
  assert_int_equal(a.unanswered, 0);
  arrivals_end(&a);
  channel_close(rank);
  channel_close(stranger);
  close(silent);
}

static void proofs(void **state) { handshakes(false); }

static void handshakes_of_tls(void **state) {
  Error error = {0};
  if (!tls_is_built() || tls_check(&error)) skip();
  handshakes(true);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(answers_come_in_parts), cmocka_unit_test(answers_have_a_limit),
                                     cmocka_unit_test(silent_ones_delay_nobody), cmocka_unit_test(proofs),
                                     cmocka_unit_test(handshakes_of_tls)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
