// tier 1; threads
// The loop over connections, with time that the test moves: the other ends are sockets of this process.
#include "net/server.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "net/socket.h"
#include "net/tls.h"
#include "tier.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

// A message is a letter and three digits, and as many bytes as these say. `h` makes the connection proven, and each
// later message is answered with itself; `x` is malformed, `p` pauses, `q` finishes, `f` is answered with FLOOD bytes,
// `r` is released.
enum { HEAD = 4, MOST = 20, FLOOD = 1 << 20 };
static const Secret secret = {"the job's"}, other = {"a stranger's"};
static double now = 1000; // of the test

typedef struct Heard {
  Server *server;
  int taken, left[SERVER_ENDS], lines;
  char last[2000], line[400];
  Channel *released;
} Heard;

static int64_t take(void *context, Connection *c, const unsigned char *data, size_t bytes) {
  static const char flood[FLOOD];
  Heard *h = context;
  if (*data == 'x') return -1;
  if (bytes == HEAD && atoi((const char[]){(char)data[1], (char)data[2], (char)data[3], 0}))
    return atoi((const char[]){(char)data[1], (char)data[2], (char)data[3], 0});
  h->taken++;
  snprintf(h->last, sizeof h->last, "%.*s", (int)bytes, (const char *)data);
  if (*data == 'h') c->proven = true;
  else if (*data == 'p') connection_pause(c, true);
  else if (*data == 'f') connection_send(c, flood, sizeof flood);
  else if (*data == 'r') h->released = connection_release(c);
  else connection_send(c, data, bytes);
  if (*data == 'q') connection_finish(c, SERVER_MALFORMED);
  return 0;
}

static void leave(void *context, Connection *c) { ((Heard *)context)->left[c->end]++; }
static void tell(void *context, const char *sentence) {
  Heard *h = context;
  h->lines++;
  snprintf(h->line, sizeof h->line, "%s", sentence);
}

static ServerOptions options(Heard *h, int listener, const Secret *given) {
  *h = (Heard){0};
  return (ServerOptions){.name = "the port", .listener = listener, .secret = given, .meeting_seconds = 4,
                         .proof_seconds = 10, .most = MOST, .head = HEAD, .most_out = FLOOD, .context = h, .take = take,
                         .leave = leave, .tell = tell};
}

static Server *begin(Heard *h, const Secret *given) {
  Error error = {0};
  const ServerOptions o = options(h, -1, given);
  if (server_open(&o, &h->server, &error)) fail_msg("%s", error.message);
  return h->server;
}

// Somebody comes; returns the other end.
static int come(Server *s) {
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  server_add(s, pair[0], now);
  return pair[1];
}

static int come_proven(Server *s) {
  int fd = come(s);
  assert_int_equal(write(fd, "h000", HEAD), HEAD);
  server_turn(s, now);
  return fd;
}

// Turns as long as there is something to do at once.
static double turn(Server *s) {
  double due = now;
  for (int i = 0; i < 100 && due <= now; i++) due = server_turn(s, now);
  return due;
}

static void say(int fd, const char *text) { assert_int_equal(write(fd, text, strlen(text)), (int)strlen(text)); }
static void hears(int fd, const char *text) {
  char bytes[100] = "";
  assert_int_equal(read(fd, bytes, sizeof bytes - 1), (int)strlen(text));
  assert_string_equal(bytes, text);
}
static bool is_closed(int fd) {
  static char bytes[1 << 16];
  ssize_t n;
  while ((n = read(fd, bytes, sizeof bytes)) > 0) {}
  return n == 0 || errno == ECONNRESET;
}
static void told(const Heard *h, int lines, const char *line) {
  assert_int_equal(h->lines, lines);
  assert_string_equal(h->line, line);
}

static void messages_come_in_parts(void **state) {
  Heard h;
  Server *s = begin(&h, NULL);
  int a = come(s), b = come(s);
  static const char bytes[] = "h003abc";
  for (const char *at = bytes; *at; at++) {
    turn(s);
    assert_int_equal(h.taken, 0);
    assert_int_equal(write(a, at, 1), 1);
  }
  assert_true(turn(s) == now + 10); // b has to prove itself
  assert_string_equal(h.last, "h003abc");
  say(a, "e000e002xye001z");
  turn(s);
  hears(a, "e000e002xye001z");
  say(b, "h000q000e000"); // what comes after the end is not taken
  turn(s);
  assert_int_equal(h.taken, 6);
  hears(b, "q000");
  assert_true(is_closed(b));
  assert_int_equal(h.left[SERVER_MALFORMED], 1);
  close(a);
  assert_true(isinf(turn(s)));
  assert_int_equal(h.left[SERVER_LEFT], 1);
  assert_null(server_first(s));
  close(b);
  server_close(s);
  told(&h, 1, "the port has closed a connection: it sent what is not a message of this job");
}

// Of connections that do not belong here each kind is told once, and all when the server ends.
static void what_is_told(void **state) {
  Heard h;
  Server *s = begin(&h, NULL);
  int fd[5], proven = come_proven(s), half = come(s);
  for (int i = 0; i < 3; i++) say(fd[i] = come(s), "x000");
  close(come(s)); // nothing was wrong with it
  fd[3] = come(s);
  say(half, "h00");
  turn(s);
  told(&h, 1, "the port has closed a connection: it sent what is not a message of this job");
  for (int i = 0; i < 3; i++) assert_true(is_closed(fd[i]));
  now += 9;
  fd[4] = come(s);
  turn(s);
  assert_false(is_closed(fd[3]));
  now += 2; // what it has said of a message does not make the time longer; a proven one has as long as it likes
  turn(s);
  assert_true(is_closed(fd[3]) && is_closed(half));
  assert_false(is_closed(fd[4]) || is_closed(proven));
  told(&h, 2, "the port has closed a connection: it was silent for too long");
  assert_int_equal(server_closed(s, SERVER_SILENT), 2);
  server_close(s);
  told(&h, 3,
       "the port has closed 2 connections silent for too long, 3 connections with what is not a message of this job");
  for (int i = 0; i < 5; i++) close(fd[i]);
  close(proven);
  close(half);
}

// Silent ones, or such that say half of a message, are in nobody's way.
static void silent_ones_delay_nobody(void **state) {
  Heard h;
  Server *s = begin(&h, NULL);
  int silent[MOST];
  for (int i = 0; i < MOST - 1; i++) {
    silent[i] = come(s);
    if (i % 2) say(silent[i], "h00");
  }
  say(silent[MOST - 1] = come(s), "h000e000");
  server_turn(s, now);
  hears(silent[MOST - 1], "e000");
  server_close(s);
  for (int i = 0; i < MOST; i++) close(silent[i]);
}

static void the_oldest_unproven_gives_way(void **state) {
  Heard h;
  Server *s = begin(&h, NULL);
  int fd[2 * MOST];
  fd[0] = come_proven(s);
  for (int i = 1; i < MOST + 3; i++) fd[i] = come(s);
  for (int i = 1; i < MOST + 3; i++) assert_int_equal(is_closed(fd[i]), i <= 3);
  assert_false(is_closed(fd[0]));
  assert_int_equal(h.left[SERVER_CROWDED_OUT], 3);
  for (int i = 4; i < MOST + 3; i++) say(fd[i], "h000");
  turn(s);
  fd[MOST + 3] = come(s); // all have proved themselves
  assert_true(is_closed(fd[MOST + 3]));
  for (int i = 4; i < MOST + 3; i++) assert_false(is_closed(fd[i]));
  assert_int_equal(server_closed(s, SERVER_CROWDED_OUT), 4);
  close(fd[4]);
  turn(s);
  fd[MOST + 4] = come_proven(s);
  assert_false(is_closed(fd[MOST + 4]));
  server_close(s);
  told(&h, 2, "the port has closed 4 connections since there were too many");
  for (int i = 0; i < MOST + 5; i++)
    if (i != 4) close(fd[i]);
}

// Who does not read is not read, and does not fill the memory.
static void answers_wait_within_bounds(void **state) {
  Heard h;
  Server *s = begin(&h, NULL);
  int fd = come_proven(s);
  char bytes[1000];
  for (int i = 0; i < 50; i++) say(fd, "f000");
  turn(s);
  assert_int_equal(h.taken, 2); // the greeting, and one of these
  for (size_t all = 0; all < FLOOD;) {
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n < 0) turn(s);
    else all += (size_t)n;
  }
  turn(s);
  assert_int_equal(h.taken, 3);
  now += 59;
  assert_true(turn(s) == now + 1);
  assert_false(h.left[SERVER_UNREAD]);
  now += 2;
  turn(s);
  assert_int_equal(h.left[SERVER_UNREAD], 1);
  close(fd);
  fd = come_proven(s);
  Connection *c = server_first(s);
  for (int i = 0; i < 3; i++) connection_send(c, bytes, sizeof bytes); // these go at once
  turn(s);
  assert_false(h.left[SERVER_UNREAD] > 1);
  static const char large[FLOOD];
  connection_send(c, large, sizeof large);
  connection_send(c, large, sizeof large);
  turn(s);
  assert_int_equal(h.left[SERVER_UNREAD], 2);
  close(fd);
  server_close(s);
  told(&h, 2, "the port has closed 2 connections that did not read");
}

// A connection that pauses is not read, but its end is noticed.
static void pauses(void **state) {
  Heard h;
  Server *s = begin(&h, NULL);
  int a = come_proven(s), b = come_proven(s);
  Connection *first = server_first(s);
  say(a, "p000e000");
  say(b, "p000e000");
  assert_true(isinf(turn(s)));
  assert_int_equal(h.taken, 4);
  connection_pause(first, false);
  turn(s);
  hears(a, "e000");
  close(b);
  turn(s);
  assert_int_equal(h.left[SERVER_LEFT], 1);
  assert_ptr_equal(server_first(s), first);
  assert_null(first->next);
  server_close(s);
  close(a);
}

// Nothing is read of a connection beyond the message with which it is released.
static void releases(void **state) {
  Heard h;
  Server *s = begin(&h, NULL);
  int fd = come(s);
  char rest[8] = "";
  say(fd, "r002abnext");
  turn(s);
  assert_string_equal(h.last, "r002ab");
  assert_null(server_first(s));
  server_close(s);
  assert_int_equal(h.left[SERVER_LEFT], 0);
  assert_int_equal(channel_receive(h.released, rest, sizeof rest), 4);
  assert_string_equal(rest, "next");
  assert_false(is_closed(fd));
  channel_close(h.released);
  close(fd);
}

// With a secret: who says nothing has the time of a handshake, and delays nobody; who has another is told from him, and
// from one who goes in the midst of it.
static void handshakes(void **state) {
  Heard h;
  Error error = {0};
  if (!tls_is_built() || tls_check(&error)) skip();
  Server *s = begin(&h, &secret);
  int silent[MOST - 4];
  for (int i = 0; i < MOST - 4; i++) silent[i] = come(s);
  Channel *good = channel_open(come(s), false, &secret), *stranger = channel_open(come(s), false, &other),
          *goes = channel_open(come(s), false, &secret);
  int met = 0, strange = 0, why = 0;
  assert_int_equal(channel_greet(goes), 0); // it has said hello
  channel_close(goes);
  for (int turns = 0; turns < 100 && (!met || !strange); turns++) {
    if (!met) met = channel_greet(good);
    if (!strange && (strange = channel_greet(stranger)) < 0) why = errno;
    server_turn(s, now);
  }
  assert_int_equal(met, 1);
  assert_int_equal(strange, -1);
  assert_int_equal(why, EPROTO); // it has been told so
  assert_int_equal(h.left[SERVER_WITHOUT_SECRET], 1);
  assert_int_equal(h.left[SERVER_LEFT], 1);
  told(&h, 1, "the port has closed a connection: it does not have the secret");
  char back[HEAD + 1] = "";
  assert_int_equal(channel_send(good, "h000e000e000", 3 * HEAD), 3 * HEAD); // one record, of which poll knows nothing
  turn(s);
  assert_int_equal(channel_receive(good, back, HEAD), HEAD);
  assert_string_equal(back, "e000");
  assert_int_equal(h.taken, 3);
  Channel *late = channel_open(come(s), false, &secret);
  now += 4.5;
  turn(s);
  assert_int_equal(h.left[SERVER_SILENT], MOST - 3);
  for (int i = 0; i < MOST - 4; i++) assert_true(is_closed(silent[i]));
  assert_int_equal(channel_greet(late), -1); // nobody has said that it does not have the secret
  assert_int_equal(errno, ECONNRESET);
  server_close(s);
  for (int i = 0; i < MOST - 4; i++) close(silent[i]);
  channel_close(good);
  channel_close(stranger);
  channel_close(late);
}

// Descriptors --------------------------------------------------------------------------------------------------------

static int port_of(NetAddress *at) {
  assert_int_equal(net_resolve("127.0.0.1", 0, at, NULL), PLAIT_OK);
  int listener = net_listen(at);
  assert_true(listener >= 0);
  return listener;
}

enum { FEW = 128, LEFT = 10, CROWD = 100 };

// A client in a process of its own, with descriptors of its own: `silent` connections, then one that says hello and
// waits for an answer. Its exit status is 0 if that one was answered, else 1.
static pid_t crowd(const NetAddress *at, int silent) {
  pid_t pid = fork();
  if (pid) return pid;
  descriptors_raise();
  for (int fd = 3; fd < FEW; fd++) close(fd);
  double until = clock_seconds() + test_seconds(15);
  for (int i = 0; i < silent; i++)
    if (net_connect(at, until) < 0) _exit(2);
  char answer[HEAD];
  int fd = net_connect(at, until);
  bool good = fd >= 0 && net_write(fd, "h000e000", 2 * HEAD, until) && net_read(fd, answer, HEAD, until);
  _exit(!good);
}

static int status_of(Heard *h, pid_t pid) {
  int status = -1;
  double until = clock_seconds() + test_seconds(15);
  while (!waitpid(pid, &status, WNOHANG) && clock_seconds() < until) {
    server_wait(h->server, fmin(server_turn(h->server, clock_seconds()), clock_seconds() + 0.01));
  }
  return status;
}

// In a process of its own, whose limit on open files stays low.
static int without_descriptors(void) {
  Heard h;
  NetAddress at;
  Error error = {0};
  int listener = port_of(&at);
  if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){FEW / 2, FEW}) || descriptors_raise() != FEW) return 1;
  ServerOptions o = options(&h, listener, NULL);
  o.most = 1000;
  if (server_open(&o, &h.server, &error)) return 2;
  // Within half of the limit: strangers leave the process what it needs.
  if (status_of(&h, crowd(&at, CROWD))) return 3;
  if (server_closed(h.server, SERVER_CROWDED_OUT) != CROWD + 1 - FEW / 2) return 4;
  while (server_first(h.server)) server_turn(h.server, clock_seconds()); // the client has ended
  // The process itself has taken the others.
  int held[FEW], n = 0;
  while ((held[n] = open("/dev/null", O_RDONLY)) >= 0) n++;
  for (int i = 0; i < LEFT; i++) close(held[--n]);
  int before = server_closed(h.server, SERVER_CROWDED_OUT);
  if (status_of(&h, crowd(&at, CROWD))) return 6;
  if (server_closed(h.server, SERVER_CROWDED_OUT) - before < CROWD - LEFT) return 7;
  while (server_first(h.server)) server_turn(h.server, clock_seconds());
  while ((held[n] = open("/dev/null", O_RDONLY)) >= 0) n++;
  // None is left, and nobody could give way: the newcomer is closed, by the spare one.
  if (!WEXITSTATUS(status_of(&h, crowd(&at, 0)))) return 8;
  // Not even with that: the listener rests instead of keeping a core busy, and is heard again later.
  if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, FEW})) return 9;
  int fd = held[--n], turns = 0;
  close(fd);
  pid_t pid = crowd(&at, 0);
  for (double until = clock_seconds() + 0.3; clock_seconds() < until; turns++)
    server_wait(h.server, fmin(server_turn(h.server, clock_seconds()), until));
  if (turns > 20) return 10;
  if (descriptors_raise() != FEW || status_of(&h, pid)) return 11;
  server_close(h.server);
  return 0;
}

static void without_descriptors_in_a_process(void **state) {
  int status;
  pid_t pid = fork();
  if (!pid) _exit(without_descriptors());
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

// In a thread of the server's own.
static void in_a_thread(void **state) {
  Heard h;
  NetAddress at;
  Error error = {0};
  int listener = port_of(&at);
  double until = clock_seconds() + test_seconds(15);
  char answer[HEAD + 1] = "", byte;
  const ServerOptions o = options(&h, listener, NULL);
  assert_int_equal(server_open(&o, &h.server, &error), 0);
  assert_int_equal(server_start(h.server, &error, "a server"), 0);
  int fd = net_connect(&at, until), stranger = net_connect(&at, until);
  assert_true(fd >= 0 && stranger >= 0);
  assert_true(net_write(stranger, "x000", HEAD, until));
  assert_false(net_read(stranger, &byte, 1, until));
  assert_true(net_write(fd, "h000e000", 2 * HEAD, until) && net_read(fd, answer, HEAD, until));
  assert_string_equal(answer, "e000");
  assert_true(clock_seconds() < until);
  server_close(h.server);
  told(&h, 1, "the port has closed a connection from 127.0.0.1: it sent what is not a message of this job");
  close(fd);
  close(stranger);
  close(listener);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(messages_come_in_parts),
                                     cmocka_unit_test(what_is_told),
                                     cmocka_unit_test(silent_ones_delay_nobody),
                                     cmocka_unit_test(the_oldest_unproven_gives_way),
                                     cmocka_unit_test(answers_wait_within_bounds),
                                     cmocka_unit_test(pauses),
                                     cmocka_unit_test(releases),
                                     cmocka_unit_test(handshakes),
                                     cmocka_unit_test(without_descriptors_in_a_process),
                                     cmocka_unit_test(in_a_thread)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
