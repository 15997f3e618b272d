// One connection between two ranks: any order of sends and receives against what was sent, what is stored and what is
// not, and bytes that no rank sends, in every state.
#include "base/error.h"
#include "comm/link.h"
#include "net/secret.h"
#include "draw.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 400, PIECES = 3, LARGEST = 600000 };

static unsigned draw(unsigned n) {
  static uint64_t seed = DRAW_SEED;
  return (unsigned)draw_below(&seed, n);
}

typedef struct Pair {
  LinkOut *out;
  LinkIn *in;
  Match *match;
  int raw;
} Pair; // raw: in the place of out; -1: there is one

static Pair pair_open(bool is_raw, const Secret *secret, int buffer) {
  int fd[2];
  Pair p = {.match = xcalloc(1, sizeof *p.match), .raw = -1};
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
  if (buffer) setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  Channel *server = channel_open(fd[1], true, secret);
  if (is_raw) p.raw = fd[0];
  else {
    Channel *client = channel_open(fd[0], false, secret);
    for (int met = 0; met < 2;) met = (channel_greet(client) > 0) + (channel_greet(server) > 0);
    p.out = link_out_create(client, secret != NULL, 1);
  }
  p.in = link_in_create(server, secret != NULL, 0, p.match);
  return p;
}

static void pair_close(Pair *p) {
  link_out_destroy(p->out);
  link_in_destroy(p->in);
  if (p->raw >= 0) close(p->raw);
  free(p->match);
}

// Until nothing moves any more.
static void turn(Pair *p) {
  for (unsigned moves = 1; moves;) {
    moves = p->out ? link_out_write(p->out) : 0;
    moves += link_in_read(p->in) + link_in_write(p->in);
    moves += p->out ? link_out_read(p->out) : 0;
  }
}

// A message and the receive that it is for.
typedef struct Item {
  LinkMessage send, receive;
  WirePiece from[PIECES], to[PIECES];
  unsigned char *data, *got;
  size_t bytes;
  uint64_t tag;
  bool posted, received;
} Item;

static void cut(WirePiece *pieces, unsigned char *data, size_t bytes) {
  size_t first = bytes ? draw((unsigned)bytes + 1) : 0,
         second = bytes - first ? draw((unsigned)(bytes - first) + 1) : 0;
  pieces[0] = (WirePiece){data, first};
  pieces[1] = (WirePiece){data + first, second};
  pieces[2] = (WirePiece){data + first + second, bytes - first - second};
}

static void item_make(Item *item, uint64_t tag, size_t bytes) {
  *item = (Item){.data = xcalloc(bytes + 1, 1), .got = xcalloc(bytes + 1, 1), .bytes = bytes, .tag = tag};
  for (size_t i = 0; i < bytes; i++) item->data[i] = (unsigned char)(draw(256));
  cut(item->from, item->data, bytes);
  cut(item->to, item->got, bytes);
  item->send = link_message(item->from, PIECES);
  item->receive = link_message(item->to, PIECES);
}

static void post_send(Pair *p, Item *item, bool answer) {
  item->posted = true;
  item->send.tag = item->tag;
  item->send.answer = answer;
  link_send(p->out, &item->send);
}

static void post_receive(Pair *p, Item *item) {
  item->received = true;
  link_receive(p->match, &item->receive, item->tag, draw(3) ? 0 : MATCH_ANY);
}

static size_t draw_bytes(void) {
  static const size_t edges[] = {0, 1, LINK_SHORT, LINK_SHORT + 1, LINK_FIRST, LINK_FIRST + 1, LINK_FIRST + LINK_CHUNK,
                                 LARGEST};
  return draw(3) ? draw(300) : draw(4) ? draw(100000) : edges[draw(8)];
}

// Sends in one order, receives in another; of one tag both are in order.
static void mix(const Secret *secret, int buffer, int count) {
  Pair p = pair_open(false, secret, buffer);
  Item *items = xcalloc((size_t)count, sizeof *items);
  int sent = 0, left = count;
  for (int i = 0; i < count; i++) item_make(&items[i], draw((unsigned)count / 4 + 1), draw_bytes());
  while (left || sent < count) {
    int k = (int)draw((unsigned)count);
    if (sent < count && draw(2)) post_send(&p, &items[sent], draw(4) == 0), sent++;
    for (int before = 0; before <= k && left; before++) // the first of its tag
      if (!items[before].received && items[before].tag == items[k].tag) {
        post_receive(&p, &items[before]);
        left--;
        break;
      }
    if (draw(3) == 0) turn(&p);
  }
  turn(&p);
  for (int i = 0; i < count; i++) {
    if (!(items[i].send.done && items[i].receive.done && !items[i].receive.status))
      fail_msg("item %d of %zu bytes, tag %d: %d %d %d moved %zu %zu sent; out %s in %s", i, items[i].bytes,
               (int)items[i].tag, items[i].send.done, items[i].receive.done, items[i].receive.status,
               items[i].send.moved, items[i].receive.moved, p.out->end.broken, link_in_end(p.in)->broken);
    assert_memory_equal(items[i].data, items[i].got, items[i].bytes);
    free(items[i].data);
    free(items[i].got);
  }
  assert_true(link_out_is_idle(p.out) && link_in_is_idle(p.in) && !*p.out->end.broken && !*link_in_end(p.in)->broken);
  pair_close(&p);
  free(items);
}

static void test_mix(void **context) {
  for (int round = 0; round < 8; round++) mix(NULL, round % 2 ? 4096 : 0, 40 + 50 * round);
}

static void test_mix_encrypted(void **context) {
  Secret secret = {{1, 2, 3}};
  if (!tls_is_built()) skip();
  for (int round = 0; round < 3; round++) mix(&secret, 0, 100);
}

// Who waits for its receiver is not done before; who does not is, as long as the receiver stores it.
static void test_when_sends_are_done(void **context) {
  Pair p = pair_open(false, NULL, 0);
  static Item items[LINK_SHORTS + 20];
  int count = LINK_SHORTS + 20;
  for (int i = 0; i < count; i++) {
    item_make(&items[i], (uint64_t)i, 10);
    post_send(&p, &items[i], i == 3);
  }
  turn(&p);
  for (int i = 0; i < count; i++) assert_int_equal(items[i].send.done, i != 3 && i < LINK_SHORTS);
  for (int i = 0; i < count; i++) post_receive(&p, &items[i]);
  turn(&p);
  for (int i = 0; i < count; i++) {
    assert_true(items[i].send.done && items[i].receive.done);
    assert_memory_equal(items[i].data, items[i].got, items[i].bytes);
    free(items[i].data);
    free(items[i].got);
  }
  assert_int_equal(p.out->heads, LINK_HEADS);
  assert_true(p.out->shorts > LINK_SHORTS / 2);
  pair_close(&p);
}

// Of another length than the receive: no byte of it is written, and what follows comes.
static void test_lengths(void **context) {
  for (int longer = 0; longer < 2; longer++)
    for (int early = 0; early < 2; early++) {
      Pair p = pair_open(false, NULL, 0);
      Item message, receive, next;
      size_t bytes = 200000;
      item_make(&message, 7, bytes + (longer ? 1 : 0));
      item_make(&receive, 7, bytes + (longer ? 0 : 1));
      item_make(&next, 8, 300);
      memset(receive.got, 0xee, receive.bytes);
      if (early) post_receive(&p, &receive), turn(&p);
      post_send(&p, &message, false);
      turn(&p);
      if (!early) post_receive(&p, &receive);
      post_send(&p, &next, false);
      post_receive(&p, &next);
      turn(&p);
      assert_true(receive.receive.done && receive.receive.status == LINK_LENGTH);
      for (size_t i = 0; i < receive.bytes; i++) assert_int_equal(receive.got[i], 0xee);
      assert_true(next.receive.done);
      assert_memory_equal(next.data, next.got, next.bytes);
      Item *all[] = {&message, &receive, &next};
      for (int i = 0; i < 3; i++) free(all[i]->data), free(all[i]->got);
      pair_close(&p);
    }
}

static void test_to_itself(void **context) {
  Match *match = xcalloc(1, sizeof *match);
  for (int early = 0; early < 2; early++) {
    Item item;
    item_make(&item, 5, 100000);
    if (early) link_receive(match, &item.receive, 5, 2);
    link_send_self(match, &item.send, 5, 2);
    assert_int_equal(item.send.done, early);
    if (!early) link_receive(match, &item.receive, 5, MATCH_ANY);
    assert_true(item.send.done && item.receive.done);
    assert_memory_equal(item.data, item.got, item.bytes);
    free(item.data);
    free(item.got);
  }
  free(match);
}

// What no rank sends -------------------------------------------------------------------------------------------------

static void say(const Pair *p, LinkFrame f) { assert_int_equal(write(p->raw, &f, sizeof f), sizeof f); }

static void expect_closed(Pair *p) {
  turn(p);
  assert_true(link_in_end(p->in)->malformed);
  assert_non_null(strstr(link_in_end(p->in)->broken, "what no rank of this version sends"));
}

// A head that is wrong by itself.
static void test_wrong_heads(void **context) {
  static const LinkFrame heads[] = {
      {.word = 0},
      {.word = 9},
      {.word = LINK_READY},
      {.word = LINK_TAKEN},
      {.word = LINK_CREDIT, .count = 1},
      {.word = LINK_MESSAGE, .tag = (uint64_t)1 << LINK_TAG_BITS, .bytes = 8, .count = 8},
      {.word = LINK_MESSAGE, .bytes = (uint64_t)LINK_LARGEST + 1, .count = 8, .flags = LINK_ANSWER},
      {.word = LINK_MESSAGE, .bytes = (uint64_t)1 << 40, .flags = LINK_ANSWER},
      {.word = LINK_MESSAGE, .bytes = LINK_FIRST + 1, .count = LINK_FIRST + 1},
      {.word = LINK_MESSAGE, .bytes = 8, .count = 9},
      {.word = LINK_MESSAGE, .bytes = 8, .count = 7},
      {.word = LINK_MESSAGE, .bytes = 8, .count = 8, .flags = 2},
      {.word = LINK_MESSAGE, .bytes = 8, .count = 8, .zero = 1},
      {.word = LINK_MESSAGE},
      {.word = LINK_DATA, .count = 8},
      {.word = LINK_DATA},
      {.word = LINK_DATA, .count = LINK_CHUNK + 1},
  };
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
    Pair p = pair_open(true, NULL, 0);
    say(&p, heads[i]);
    expect_closed(&p);
    pair_close(&p);
  }
}

// Frames that would be right if something else had come before.
static void test_wrong_order(void **context) {
  static unsigned char memory[LINK_FIRST + 100];
  for (int i = 0; i < 4; i++) {
    Pair p = pair_open(true, NULL, 0);
    WirePiece piece = {memory, 100};
    LinkMessage m = link_message(&piece, 1);
    memset(memory, 0xee, sizeof memory);
    link_receive(p.match, &m, 1, 0);
    say(&p, (LinkFrame){.word = LINK_MESSAGE, .id = 5, .tag = 1, .bytes = 100, .flags = LINK_ANSWER});
    turn(&p);
    LinkFrame ready;
    assert_int_equal(read(p.raw, &ready, sizeof ready), sizeof ready);
    assert_true(ready.word == LINK_READY && ready.id == 5 && !m.done);
    if (i == 0) say(&p, (LinkFrame){.word = LINK_DATA, .id = 5, .count = 101}); // beyond the memory
    if (i == 1) say(&p, (LinkFrame){.word = LINK_DATA, .id = 6, .count = 100}); // of another message
    if (i == 2)
      say(&p, (LinkFrame){.word = LINK_DATA, .id = 5, .count = 100}), assert_int_equal(write(p.raw, memory, 100), 100);
    if (i == 2) say(&p, (LinkFrame){.word = LINK_DATA, .id = 5, .count = 1}); // after its end
    if (i == 3)
      say(&p, (LinkFrame){.word = LINK_DATA, .id = 5, .count = 60}), assert_int_equal(write(p.raw, memory, 60), 60);
    if (i == 3) say(&p, (LinkFrame){.word = LINK_DATA, .id = 5, .count = 41});
    expect_closed(&p);
    assert_int_equal(m.done, i == 2);
    for (size_t k = 0; k < sizeof memory; k++) assert_int_equal(memory[k], 0xee);
    pair_close(&p);
  }
}

// More than the receiver stores of a sender.
static void test_limits(void **context) {
  static const LinkFrame each[] = {{.word = LINK_MESSAGE, .bytes = 8, .count = 8},
                                   {.word = LINK_MESSAGE, .bytes = LINK_SHORT + 8, .count = LINK_SHORT + 8},
                                   {.word = LINK_MESSAGE, .bytes = 8, .flags = LINK_ANSWER}};
  static const int most[] = {LINK_SHORTS, LINK_LONGS, LINK_HEADS};
  static const unsigned char data[LINK_SHORT + 8];
  for (int k = 0; k < 3; k++) {
    Pair p = pair_open(true, NULL, 0);
    for (int i = 0; i <= most[k]; i++) {
      assert_false(*link_in_end(p.in)->broken);
      LinkFrame f = each[k];
      f.tag = (uint64_t)i;
      say(&p, f);
      assert_int_equal(write(p.raw, data, f.count), f.count);
      turn(&p);
    }
    expect_closed(&p);
    pair_close(&p);
  }
}

// Any bytes, also after a good beginning: memory of a receive that nobody was ready for is never written.
static void test_any_bytes(void **context) {
  static unsigned char memory[1000], noise[4000];
  for (int round = 0; round < 3000; round++) {
    Pair p = pair_open(true, NULL, 0);
    WirePiece piece = {memory, sizeof memory};
    LinkMessage m = link_message(&piece, 1);
    memset(memory, 0xee, sizeof memory);
    link_receive(p.match, &m, 1, 0);
    if (round % 2) {
      say(&p, (LinkFrame){.word = LINK_MESSAGE, .id = 5, .tag = 2, .bytes = 10, .count = 10});
      assert_int_equal(write(p.raw, noise, 10), 10);
    }
    size_t n = draw(sizeof noise - 1) + 1;
    for (size_t i = 0; i < n; i++) noise[i] = (unsigned char)draw(256);
    assert_int_equal(write(p.raw, noise, n), (ssize_t)n);
    turn(&p);
    if (n >= sizeof(LinkFrame)) assert_true(link_in_end(p.in)->malformed);
    for (size_t k = 0; k < sizeof memory; k++) assert_int_equal(memory[k], 0xee);
    pair_close(&p);
  }
}

// And what a receiver may answer.
static void test_wrong_answers(void **context) {
  static unsigned char memory[LINK_FIRST + 100];
  static const LinkFrame answers[] = {
      {.word = LINK_READY, .id = 1},                   // of no message
      {.word = LINK_TAKEN, .id = 0},                   // it has not got all
      {.word = LINK_CREDIT, .count = 1},               // nothing was taken away
      {.word = LINK_CREDIT, .bytes = 2},
      {.word = LINK_CREDIT, .count = LINK_SHORTS + 1},
      {.word = LINK_MESSAGE, .bytes = 8, .count = 8},  // it does not send
      {.word = LINK_DATA, .id = 0, .count = 8},
      {.word = LINK_READY, .id = 0, .tag = 1},
      {.word = 77},
  };
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    int fd[2];
    WirePiece piece = {memory, sizeof memory};
    LinkMessage m = link_message(&piece, 1);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    LinkOut *o = link_out_create(channel_open(fd[0], false, NULL), false, 1);
    link_send(o, &m);
    link_out_write(o);
    assert_int_equal(write(fd[1], &answers[i], sizeof answers[i]), sizeof answers[i]);
    link_out_read(o);
    assert_true(o->end.malformed && !m.done);
    link_out_destroy(o);
    close(fd[1]);
  }
}

// A connection that ends, and messages that are given up.
static void test_ends(void **context) {
  Pair p = pair_open(false, NULL, 0);
  Item item, other;
  item_make(&item, 1, 300000);
  item_make(&other, 2, 100);
  post_send(&p, &item, false);
  post_send(&p, &other, false);
  link_out_forget(p.out, &other.send); // it has not begun
  turn(&p);
  post_receive(&p, &other);
  link_forget(&other.receive, p.in);
  assert_false(*p.out->end.broken || *link_in_end(p.in)->broken);
  link_out_forget(p.out, &item.send); // it has
  assert_true(*p.out->end.broken);
  assert_int_equal(link_out_write(p.out), 0);
  link_out_destroy(p.out);
  p.out = NULL;
  turn(&p);
  assert_non_null(strstr(link_in_end(p.in)->broken, "its connection has ended"));
  assert_false(link_in_end(p.in)->malformed);
  Item *all[] = {&item, &other};
  for (int i = 0; i < 2; i++) free(all[i]->data), free(all[i]->got);
  pair_close(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mix),         cmocka_unit_test(test_mix_encrypted),
      cmocka_unit_test(test_when_sends_are_done), cmocka_unit_test(test_lengths),
      cmocka_unit_test(test_to_itself),   cmocka_unit_test(test_wrong_heads),
      cmocka_unit_test(test_wrong_order), cmocka_unit_test(test_limits),
      cmocka_unit_test(test_any_bytes),   cmocka_unit_test(test_wrong_answers),
      cmocka_unit_test(test_ends),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
