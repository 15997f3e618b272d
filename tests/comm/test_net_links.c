// tier 1; threads
// Links of several ranks in one process: messages over TCP and Unix sockets, and strangers at their ports, in every
// state of a connection.
#include "base/clock.h"
#include "base/error.h"
#include "comm/net_links.h"
#include "net/proof.h"
#include "tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 3, LONG = 300000 };

static const char hosts[MOST][HOST_NAME] = {"a", "b", "c"};
static const Secret secret = {{7, 7, 7}};

typedef struct Ranks { int n; Links *links[MOST]; LinkAddress address[MOST]; bool is_near; } Ranks;

static NetAddress loopback(void) {
  NetAddress at;
  Error error = {0};
  assert_int_equal(net_resolve("127.0.0.1", 0, &at, &error), PLAIT_OK);
  return at;
}

static Ranks ranks_open(int n, bool is_near, bool encrypts) {
  Ranks r = {.n = n, .is_near = is_near};
  NetAddress at = loopback();
  Error error = {0};
  for (int i = 0; i < n; i++) {
    r.links[i] = links_create(i, n);
    int code = is_near ? links_listen_unix(r.links[i], &r.address[i], &error)
                       : links_listen_tcp(r.links[i], &at, &r.address[i], &error);
    if (code) fail_msg("%s", error.message);
  }
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < n; k++) links_set_peer(r.links[i], k, &r.address[k], is_near);
    links_begin(r.links[i], &secret, encrypts, hosts);
  }
  return r;
}

static void ranks_close(Ranks *r) {
  for (int i = 0; i < r->n; i++) links_destroy(r->links[i]);
}

static void turn(Ranks *r) {
  for (int i = 0; i < r->n; i++) links_progress(r->links[i]);
}

static void until_done(Ranks *r, const LinkMessage *m) {
  double end = clock_seconds() + test_seconds(10);
  while (!m->done && clock_seconds() < end) turn(r);
  assert_true(m->done);
}

// All send all a message, short or long, and receive it.
static void exchange(Ranks *r, size_t bytes) {
  unsigned char *memory = xcalloc(2 * MOST * MOST, bytes);
  LinkMessage sent[MOST][MOST], got[MOST][MOST];
  WirePiece from[MOST][MOST], to[MOST][MOST];
  for (int i = 0; i < r->n; i++)
    for (int k = 0; k < r->n; k++) {
      from[i][k] = (WirePiece){memory + (size_t)(MOST * i + k) * bytes, bytes};
      to[i][k] = (WirePiece){memory + (size_t)(MOST * MOST + MOST * i + k) * bytes, bytes};
      memset(from[i][k].data, 1 + MOST * i + k, bytes);
      sent[i][k] = link_message(&from[i][k], 1);
      got[i][k] = link_message(&to[i][k], 1);
      links_send(r->links[i], &sent[i][k], k, 5, k == i);
      if ((i + k) % 2) links_receive(r->links[k], &got[i][k], i, 5);
    }
  for (int i = 0; i < r->n; i++)
    for (int k = 0; k < r->n; k++) {
      if (!((i + k) % 2)) links_receive(r->links[k], &got[i][k], i, 5);
      until_done(r, &got[i][k]);
      until_done(r, &sent[i][k]);
      assert_memory_equal(from[i][k].data, to[i][k].data, bytes);
    }
  free(memory);
}

static void exchange_all(bool is_near, bool encrypts) {
  Ranks r = ranks_open(MOST, is_near, encrypts);
  exchange(&r, 8);
  exchange(&r, LONG);
  for (int i = 0; i < MOST; i++) assert_true(links_are_idle(r.links[i]) && links_strangers(r.links[i]) == 0);
  ranks_close(&r);
}

static void tcp(void **state) { exchange_all(false, false); }

static void unix_sockets(void **state) { exchange_all(true, false); }

static int connect_to(const LinkAddress *address) {
  NetAddress at = link_address_get(address);
  int fd = net_connect(&at, clock_seconds() + test_seconds(5));
  assert_true(fd >= 0);
  return fd;
}

// Without TLS a rank says a hello in clear at once. With it, it says nothing to who does not talk TLS.
static bool speaks_in_clear(bool encrypts) {
  char hello[8] = "";
  Ranks r = ranks_open(2, false, encrypts);
  int fd = connect_to(&r.address[0]);
  for (int i = 0; i < 50; i++) turn(&r), poll(NULL, 0, 1);
  ssize_t n = recv(fd, hello, sizeof hello, MSG_DONTWAIT);
  close(fd);
  ranks_close(&r);
  assert_true(n == -1 || (n == 8 && !memcmp(hello, "plaitprf", 8)));
  return n == 8;
}

static void encrypted(void **state) {
  if (!tls_is_built()) skip();
  exchange_all(false, true);
  assert_true(speaks_in_clear(false));
  assert_false(speaks_in_clear(true));
}

// The folder is this user's alone, and goes with the links, or with the next ones where a process has died.
static void folders(void **state) {
  Ranks r = ranks_open(2, true, false);
  char folder[LINK_PATH], left[LINK_PATH];
  struct stat s;
  snprintf(folder, sizeof folder, "%s", r.address[0].path);
  *strrchr(folder, '/') = 0;
  assert_int_equal(stat(folder, &s), 0);
  assert_int_equal(s.st_mode & 0777, 0700);
  ranks_close(&r);
  assert_int_equal(stat(folder, &s), -1);
  int way[2];
  assert_int_equal(pipe(way), 0);
  pid_t child = fork();
  if (!child) {
    char path[LINK_PATH];
    link_folder_listen(path);
    _exit(write(way[1], path, sizeof path) != sizeof path);
  }
  assert_int_equal(read(way[0], left, sizeof left), sizeof left);
  waitpid(child, NULL, 0);
  assert_int_equal(stat(left, &s), 0);
  r = ranks_open(2, true, false);
  assert_int_equal(stat(left, &s), -1);
  exchange(&r, 8);
  ranks_close(&r);
  close(way[0]);
  close(way[1]);
}

// Strangers -----------------------------------------------------------------------------------------------------------

static bool is_closed(int fd) {
  char byte[4096];
  ssize_t n = recv(fd, byte, sizeof byte, MSG_DONTWAIT);
  while (n > 0) n = recv(fd, byte, sizeof byte, MSG_DONTWAIT);
  return n == 0 || (errno != EAGAIN && errno != EINTR);
}

static void until_closed(Ranks *r, int fd) {
  double end = clock_seconds() + test_seconds(10);
  while (!is_closed(fd) && clock_seconds() < end) turn(r);
  assert_true(is_closed(fd));
  close(fd);
}

// Proves to be what the words say, with this secret. Turns the ranks meanwhile.
static ProofState come_as(Ranks *r, int fd, const Secret *with, uint64_t rank, uint64_t to) {
  ProofTerms terms = {.secret = with, .purpose = "plait: messages between two ranks", .words = {rank, to}};
  Proof proof;
  ProofState state = PROOF_READS;
  proof_begin(&proof, &terms, false);
  double end = clock_seconds() + test_seconds(10);
  while ((state == PROOF_READS || state == PROOF_WRITES) && clock_seconds() < end) {
    turn(r);
    state = proof_advance(&proof, fd);
  }
  return state;
}

// Whoever does not have the secret is turned away, whatever comes; ranks do not notice.
static void strangers(void **state) {
  static const char garbage[][40] = {"GET / HTTP/1.1\r\n\r\n", "\x78\x56\x34\x12\xbe\xba\xfe\xca\xff\xff\xff\xff\xff",
                                     "plaitprf\1", ""};
  Ranks r = ranks_open(2, false, false);
  const Secret other = {{7, 7, 8}};
  exchange(&r, 8);
  for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
    char long_one[400] = {0};
    memcpy(long_one, garbage[i], sizeof garbage[i]);
    int fd = connect_to(&r.address[0]);
    assert_int_equal(send(fd, long_one, sizeof long_one, MSG_NOSIGNAL), sizeof long_one);
    until_closed(&r, fd);
    exchange(&r, LONG);
  }
  int fd = connect_to(&r.address[1]);
  assert_int_equal(come_as(&r, fd, &other, 0, 1), PROOF_REFUSED);
  until_closed(&r, fd);
  fd = connect_to(&r.address[1]); // it ends at once
  close(fd);
  exchange(&r, LONG);
  assert_int_equal(links_strangers(r.links[0]) + links_strangers(r.links[1]), 6);
  ranks_close(&r);
}

// Who has the secret, too: only as a rank of the world, for this one, and once.
static void twice(void **state) {
  Ranks r = ranks_open(2, false, false);
  exchange(&r, 8);
  static const uint64_t words[][2] = {{0, 1}, {1, 1}, {2, 1}, {UINT64_MAX, 1}, {0, 0}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    int fd = connect_to(&r.address[1]);
    if (come_as(&r, fd, &secret, words[i][0], words[i][1]) != PROOF_REFUSED) fail_msg("words %zu are taken", i);
    until_closed(&r, fd);
  }
  exchange(&r, LONG);
  ranks_close(&r);
}

// What was recorded of a connection proves nothing on another one.
static void replays(void **state) {
  Ranks r = ranks_open(2, false, false);
  ProofTerms terms = {.secret = &secret, .purpose = "plait: messages between two ranks", .words = {0, 1}};
  Proof proof;
  unsigned char recorded[PROOF_MOST];
  size_t have = 0;
  int fd = connect_to(&r.address[1]);
  proof_begin(&proof, &terms, false);
  for (ProofState now = PROOF_READS; now != PROOF_DONE; now = proof_state(&proof)) {
    size_t bytes;
    turn(&r);
    if (now == PROOF_WRITES) {
      const void *out = proof_output(&proof, &bytes);
      memcpy(recorded + have, out, bytes);
      have += bytes;
      assert_int_equal(send(fd, out, bytes, MSG_NOSIGNAL), bytes);
      proof_sent(&proof, bytes);
    } else {
      void *in = proof_input(&proof, &bytes);
      ssize_t n = recv(fd, in, bytes, MSG_DONTWAIT);
      if (n > 0) proof_received(&proof, (size_t)n);
      assert_true(n > 0 || errno == EAGAIN);
    }
    assert_int_not_equal(proof_state(&proof), PROOF_REFUSED);
  }
  close(fd);
  int again = connect_to(&r.address[1]);
  assert_int_equal(send(again, recorded, have, MSG_NOSIGNAL), have);
  until_closed(&r, again);
  assert_int_equal(links_strangers(r.links[1]), 1);
  ranks_close(&r);
}

// More connections that say nothing than there is room for: the oldest are closed, and a rank comes in.
static void flood(void **state) {
  Ranks r = ranks_open(2, false, false);
  enum { SILENT = LINKS_GUESTS + 40 };
  int fd[SILENT], closed = 0;
  for (int i = 0; i < SILENT; i++) fd[i] = connect_to(&r.address[1]), turn(&r);
  exchange(&r, 8);
  for (int i = 0; i < SILENT; i++) {
    bool gone = is_closed(fd[i]);
    closed += gone;
    if (i < 40) assert_true(gone);
    close(fd[i]);
  }
  assert_in_range(closed, 40, 42);
  turn(&r);
  exchange(&r, LONG);
  ranks_close(&r);
}

// After its proof, too, who sends what no rank sends ends the connection, is named, and writes nothing.
static void malformed(void **state) {
  Ranks r = ranks_open(2, false, false);
  unsigned char memory[64] = {0};
  WirePiece piece = {memory, sizeof memory};
  LinkMessage m = link_message(&piece, 1);
  links_receive(r.links[1], &m, 0, 5);
  int fd = connect_to(&r.address[1]), rank = 1;
  assert_int_equal(come_as(&r, fd, &secret, 0, 1), PROOF_DONE);
  LinkFrame f = {.word = LINK_DATA, .count = 64};
  assert_int_equal(send(fd, &f, sizeof f, MSG_NOSIGNAL), sizeof f);
  memset(memory, 0, sizeof memory);
  for (double end = clock_seconds() + test_seconds(10);
       !links_broken(r.links[1], &rank, false) && clock_seconds() < end;)
    turn(&r);
  assert_non_null(strstr(links_broken(r.links[1], &rank, false), "what no rank of this version sends"));
  assert_int_equal(rank, 0);
  assert_false(m.done);
  close(fd);
  ranks_close(&r);
}

// A rank sends nothing to who listens where another should, though that has the secret and lets anybody in.
static void another_listens(void **state) {
  Ranks r = {.n = 1, .links = {links_create(0, 3)}};
  NetAddress at = loopback();
  LinkAddress told = {0};
  unsigned char memory[64] = {0};
  WirePiece piece = {memory, sizeof memory};
  LinkMessage m = link_message(&piece, 1);
  ProofTerms terms = {.secret = &secret, .purpose = "plait: messages between two ranks", .words = {2, 0}};
  Proof proof;
  int rank = 1, listener = net_listen(&at);
  assert_true(listener >= 0);
  link_address_set(&told, &at);
  links_set_peer(r.links[0], 1, &told, false);
  links_begin(r.links[0], &secret, false, hosts);
  links_send(r.links[0], &m, 1, 5, false);
  int fd = net_accept(listener, clock_seconds() + test_seconds(10));
  proof_begin(&proof, &terms, true);
  double end = clock_seconds() + test_seconds(10);
  while (!links_broken(r.links[0], &rank, false) && !m.done && clock_seconds() < end)
    turn(&r), proof_advance(&proof, fd);
  assert_non_null(links_broken(r.links[0], &rank, false));
  assert_non_null(strstr(links_broken(r.links[0], &rank, false), "is not whom this connection is for"));
  assert_false(m.done);
  close(fd);
  close(listener);
  ranks_close(&r);
}

static void nobody_listens(void **state) {
  Ranks r = ranks_open(2, false, false);
  unsigned char memory[64] = {0};
  WirePiece piece = {memory, sizeof memory};
  LinkMessage m = link_message(&piece, 1);
  int rank = 1;
  links_destroy(r.links[1]);
  r.n = 1;
  links_send(r.links[0], &m, 1, 5, false);
  double end = clock_seconds() + test_seconds(10);
  while (!links_broken(r.links[0], &rank, false) && clock_seconds() < end) turn(&r);
  assert_non_null(strstr(links_broken(r.links[0], &rank, false), "Connection refused"));
  ranks_close(&r);
}

// Who has been busy for so long that the other side has given up its greeting tries again.
static void busy(void **state) {
  Ranks r = ranks_open(2, false, false);
  unsigned char from[64] = {1}, to[64] = {0};
  WirePiece out = {from, sizeof from}, in = {to, sizeof to};
  LinkMessage sent = link_message(&out, 1), got = link_message(&in, 1);
  int fd[LINKS_GUESTS];
  links_send(r.links[0], &sent, 1, 5, false);
  for (int i = 0; i < 3; i++) links_progress(r.links[1]);
  for (int i = 0; i < LINKS_GUESTS; i++) fd[i] = connect_to(&r.address[1]), links_progress(r.links[1]);
  links_receive(r.links[1], &got, 0, 5);
  until_done(&r, &got);
  assert_memory_equal(from, to, sizeof to);
  for (int i = 0; i < LINKS_GUESTS; i++) close(fd[i]);
  ranks_close(&r);
}

// A Unix socket is this user's alone, though the folder were open.
static void another_user(void **state) {
  if (geteuid()) skip(); // only root may be another
  Ranks r = ranks_open(2, true, false);
  char folder[LINK_PATH];
  snprintf(folder, sizeof folder, "%s", r.address[1].path);
  *strrchr(folder, '/') = 0;
  assert_int_equal(chmod(folder, 0777) || chmod(r.address[1].path, 0777), 0);
  int way[2], status = 0;
  assert_int_equal(pipe(way), 0);
  pid_t child = fork();
  if (!child) {
    if (setgid(65534) || setuid(65534)) _exit(2);
    int fd = net_connect_begin_unix(r.address[1].path);
    char byte;
    if (fd < 0 || write(way[1], "x", 1) != 1) _exit(3);
    struct pollfd p = {fd, POLLIN, 0};
    _exit(poll(&p, 1, (int)(1000 * test_seconds(10))) != 1 || recv(fd, &byte, 1, 0) > 0); // closed, and not greeted
  }
  char byte;
  assert_int_equal(read(way[0], &byte, 1), 1);
  for (double end = clock_seconds() + test_seconds(10); !links_strangers(r.links[1]) && clock_seconds() < end;)
    turn(&r);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  close(way[0]);
  close(way[1]);
  ranks_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tcp),       cmocka_unit_test(unix_sockets),    cmocka_unit_test(encrypted),
      cmocka_unit_test(folders),   cmocka_unit_test(strangers),       cmocka_unit_test(twice),
      cmocka_unit_test(replays),   cmocka_unit_test(flood),           cmocka_unit_test(malformed),
      cmocka_unit_test(another_listens), cmocka_unit_test(nobody_listens), cmocka_unit_test(busy),
      cmocka_unit_test(another_user),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
