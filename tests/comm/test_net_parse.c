// tier 1
// Parsers of what ranks of net send each other: truncated messages and every malformed field are refused. The fuzz
// targets (tests/fuzz) give the same functions random bytes.
#include "base/error.h"
#include "comm/net_record.h"
#include "comm/rendezvous_parse.h"
#include "comm/watch_frame.h"
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS = 3, ADDRESS = 20 };

// The rendezvous ------------------------------------------------------------------------------------------------------

static void greetings(void **state) {
  Greeting mine = GREETING(RANKS, 7);
  const struct { Greeting theirs; const char *words; } cases[] = {
      {GREETING(RANKS, 7), NULL},
      {{"plaitnex", 2, RANKS, 7}, "what listens at host:1 is not plait"},
      {{"plaitnet", 1, RANKS, 7}, "at host:1 is another version of plait"},
      {GREETING(RANKS + 1, 7), "at host:1 is a run of 4 ranks, not 3"},
      {GREETING(RANKS, 8), "at host:1 is another run than \"id\""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char reason[RENDEZVOUS_REASON] = "";
    assert_int_equal(greeting_is_ours(&cases[i].theirs, &mine, "host:1", "id", reason), !cases[i].words);
    assert_string_equal(reason, cases[i].words ? cases[i].words : "");
  }
}

static void answers(void **state) {
  assert_true(answer_is_valid(&(Answer){1, 1}, RANKS));
  assert_true(answer_is_valid(&(Answer){RANKS - 1, RENDEZVOUS_RECORD}, RANKS));
  assert_false(answer_is_valid(&(Answer){0, 1}, RANKS));
  assert_false(answer_is_valid(&(Answer){RANKS, 1}, RANKS));
  assert_false(answer_is_valid(&(Answer){UINT32_MAX, 1}, RANKS));
  assert_false(answer_is_valid(&(Answer){1, 0}, RANKS));
  assert_false(answer_is_valid(&(Answer){1, RENDEZVOUS_RECORD + 1}, RANKS));
  assert_false(answer_is_valid(&(Answer){1, UINT32_MAX}, RANKS));
}

static void what_rank_0_tells(void **state) {
  assert_int_equal(told_by_root(0), TOLD_REASON);
  assert_int_equal(told_by_root(1), TOLD_RECORD);
  assert_int_equal(told_by_root(RENDEZVOUS_RECORD), TOLD_RECORD);
  assert_int_equal(told_by_root(RENDEZVOUS_RECORD + 1), TOLD_MALFORMED);
  assert_int_equal(told_by_root(UINT64_MAX), TOLD_MALFORMED);
  char reason[RENDEZVOUS_REASON] = "another process is rank 1 of this run already";
  assert_true(reason_is_valid(reason));
  reason[3] = '\n';
  assert_false(reason_is_valid(reason));
  reason[0] = 0;
  assert_false(reason_is_valid(reason));
  memset(reason, 'x', sizeof reason);
  assert_false(reason_is_valid(reason));
  reason[sizeof reason - 1] = 0;
  assert_true(reason_is_valid(reason));
}

// Records -------------------------------------------------------------------------------------------------------------

static Record *make_record(void) {
  Record *r = xcalloc(1, sizeof *r + ADDRESS);
  *r = (Record){.host = "node1", .boot = "0d1c", .token = 7, .watch_port = UINT16_MAX, .address_bytes = ADDRESS};
  return r;
}

static void records(void **state) {
  size_t bytes = sizeof(Record) + ADDRESS;
  Record *r = make_record();
  assert_true(record_is_valid(r, bytes));
  for (size_t n = 0; n < bytes; n++) { // of exactly so many bytes, for sanitizers
    void *part = memcpy(malloc(n + 1), r, n);
    assert_false(record_is_valid(part, n));
    free(part);
  }
  assert_false(record_is_valid(r, bytes - 1));
  r->watch_port++;
  assert_false(record_is_valid(r, bytes));
  free(r), r = make_record();
  r->address_bytes = 0; // then it listens, or is alone
  assert_true(record_is_valid(r, sizeof *r));
  assert_false(record_has(r, CARRIER_UCX));
  r->address_bytes = UINT32_MAX;
  assert_false(record_is_valid(r, bytes));
  free(r), r = make_record();
  memset(r->host, 'x', sizeof r->host);
  assert_false(record_is_valid(r, bytes));
  free(r), r = make_record();
  memset(r->boot, 'x', sizeof r->boot);
  assert_false(record_is_valid(r, bytes));
  free(r);
}

// Where a rank listens: nowhere, at a port of an address, at a path from the root.
static void link_addresses(void **state) {
  static const LinkAddress wrong[] = {{.family = 4}, {.family = 4, .port = 65536}, {.family = 5, .port = 9},
                                      {.port = 9},   {.path = "relative"},         {.zero = 1}};
  LinkAddress endless = {.path = "/"};
  memset(endless.path + 1, 'x', sizeof endless.path - 1);
  Record *r = make_record();
  size_t bytes = sizeof *r + ADDRESS;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    r->link = wrong[i];
    assert_false(record_is_valid(r, bytes));
  }
  r->link = endless;
  assert_false(record_is_valid(r, bytes));
  r->link = (LinkAddress){.family = 6, .port = 9};
  assert_true(record_is_valid(r, bytes) && record_has(r, CARRIER_TCP) && !record_has(r, CARRIER_UNIX));
  r->link = (LinkAddress){.path = "/tmp/x"};
  assert_true(record_is_valid(r, bytes) && !record_has(r, CARRIER_TCP) && record_has(r, CARRIER_UNIX));
  assert_true(record_has(r, CARRIER_SELF) && record_has(r, CARRIER_UCX));
  free(r);
  for (int i = 0; i < 2; i++) {
    NetAddress at, again;
    Error error = {0};
    assert_int_equal(net_resolve(i ? "::1" : "127.0.0.2", 1234, &at, &error), PLAIT_OK);
    LinkAddress told = {0};
    char first[80], second[80];
    link_address_set(&told, &at);
    assert_true(link_address_is_valid(&told));
    again = link_address_get(&told);
    net_describe(&at, first, sizeof first);
    net_describe(&again, second, sizeof second);
    assert_string_equal(first, second);
  }
}

static void machines(void **state) {
  Record *a = make_record(), *b = make_record();
  assert_true(record_same_machine(a, b));
  b->boot[0] = 'x';
  assert_false(record_same_machine(a, b));
  *b = *a;
  b->host[0] = 'x';
  assert_false(record_same_machine(a, b));
  free(a);
  free(b);
}

// Places --------------------------------------------------------------------------------------------------------------

static const NetPlace place = {.host = "node1", .boot = "0d1c", .processes = 4026531836, .segments = 4026531839,
                            .files = 4026531840, .user = 1000, .has_ucx = 1};

static void places(void **state) {
  assert_true(place_is_valid(&place, sizeof place));
  for (size_t n = 0; n < sizeof place; n++) { // of exactly so many bytes, for sanitizers
    void *part = memcpy(malloc(n + 1), &place, n);
    assert_false(place_is_valid(part, n));
    free(part);
  }
  struct { NetPlace place; char more; } longer = {.place = place};
  assert_false(place_is_valid(&longer, sizeof place + 1));
  NetPlace endless = place;
  memset(endless.host, 'x', sizeof endless.host);
  assert_false(place_is_valid(&endless, sizeof endless));
  endless = place;
  memset(endless.boot, 'x', sizeof endless.boot);
  assert_false(place_is_valid(&endless, sizeof endless));
  endless = place;
  endless.wire = NET_WIRE_MIXED + 1;
  assert_false(place_is_valid(&endless, sizeof endless));
  endless = place;
  endless.has_ucx = 2;
  assert_false(place_is_valid(&endless, sizeof endless));
}

// Ranks share memory where all of it is known and the same.
static void shared_memory(void **state) {
  enum { WAYS = 4 };
  NetPlace other[WAYS] = {place, place, place, place}, unknown[WAYS] = {place, place, place, place};
  other[0].host[0] = 'x'; // a clone of a machine has its boot's number
  other[1].boot[0] = 'x';
  other[2].processes++;   // containers of one machine
  other[3].segments++;
  unknown[1].boot[0] = 0;
  unknown[2].processes = 0;
  unknown[3].segments = 0;
  assert_true(places_share_memory(&place, &place));
  for (int i = 0; i < WAYS; i++) {
    assert_false(places_share_memory(&place, &other[i]));
    assert_false(places_share_memory(&other[i], &place));
    assert_true(places_share_memory(&other[i], &other[i]));
    if (i) assert_false(places_share_memory(&unknown[i], &unknown[i]));
  }
}

static NetCarrier carrier(NetPlace a, NetPlace b, NetWireChoice wire) {
  a.wire = b.wire = wire;
  assert_int_equal(carrier_between(&a, 1, &b, 3), carrier_between(&b, 3, &a, 1));
  return carrier_between(&a, 1, &b, 3);
}

// What carries messages: shared memory where it can, a Unix socket where that can, else TCP.
static void carriers(void **state) {
  NetPlace other = place, none = place, container = place, user = place;
  other.host[0] = 'x';
  none.has_ucx = 0;
  container.files++;
  user.user++;
  assert_int_equal(carrier(place, place, NET_WIRE_AUTO), CARRIER_UCX);
  assert_int_equal(carrier(place, container, NET_WIRE_AUTO), CARRIER_UCX);
  assert_int_equal(carrier(place, none, NET_WIRE_AUTO), CARRIER_UNIX);
  assert_int_equal(carrier(place, other, NET_WIRE_AUTO), CARRIER_TCP);
  assert_int_equal(carrier(place, place, NET_WIRE_SOCKETS), CARRIER_UNIX);
  assert_int_equal(carrier(place, container, NET_WIRE_SOCKETS), CARRIER_TCP);
  assert_int_equal(carrier(place, user, NET_WIRE_SOCKETS), CARRIER_TCP);
  assert_int_equal(carrier(place, other, NET_WIRE_SOCKETS), CARRIER_TCP);
  assert_int_equal(carrier(place, place, NET_WIRE_TCP), CARRIER_TCP);
  assert_int_equal(carrier(place, other, NET_WIRE_UCX), CARRIER_UCX);
  container.files = 0; // not known
  assert_int_equal(carrier(container, container, NET_WIRE_SOCKETS), CARRIER_TCP);
  assert_int_equal(carrier_between(&place, 1, &place, 1), CARRIER_SELF);
  other = place;
  other.wire = NET_WIRE_MIXED;
  assert_int_equal(carrier_between(&other, 1, &other, 3), CARRIER_UCX);
  assert_int_equal(carrier_between(&other, 1, &other, 2), CARRIER_TCP);
}

// The watch -----------------------------------------------------------------------------------------------------------

static void introductions(void **state) {
  assert_true(introduction_is_valid(&(Introduction){.rank = 1}, RANKS));
  assert_true(introduction_is_valid(&(Introduction){.rank = RANKS - 1}, RANKS));
  assert_false(introduction_is_valid(&(Introduction){.rank = 1}, 1));
  assert_false(introduction_is_valid(&(Introduction){.rank = 1, .zero = 1}, RANKS));
  static const uint32_t wrong[] = {0, RANKS, INT_MAX, UINT32_MAX};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_false(introduction_is_valid(&(Introduction){.rank = wrong[i]}, RANKS));
}

// What is taken of the first n bytes.
static int take(const unsigned char *data, size_t n, int from, Frame *f) {
  unsigned char *part = memcpy(malloc(n + 1), data, n);
  int bytes = frame_take(part, n, from, RANKS, f);
  free(part);
  return bytes;
}

// A frame is taken whole from this rank, and not before it is whole.
static void is_taken(const unsigned char *data, size_t bytes, int from, Frame *f) {
  for (size_t n = 0; n < bytes; n++) {
    assert_int_equal(take(data, n, from, f), 0);
    assert_int_equal(f->word, WORD_NONE);
  }
  assert_int_equal(take(data, bytes, from, f), bytes);
}

static void is_refused(Word word, const void *data, size_t bytes, int from) {
  unsigned char to[FRAME_BYTES];
  Frame f;
  size_t whole = frame_write(to, word, data, bytes);
  assert_int_equal(take(to, whole, from, &f), -1);
  assert_int_equal(f.word, WORD_NONE);
}

static void frames(void **state) {
  unsigned char to[FRAME_BYTES];
  uint64_t call = 1ULL << 40 | 5;
  Frame f;
  size_t bytes = frame_write(to, WORD_PULSE, &call, sizeof call);
  is_taken(to, bytes, 1, &f);
  assert_true(f.word == WORD_PULSE && f.call == call);
  is_taken(to, frame_write(to, WORD_LEAVE, NULL, 0), 1, &f);
  assert_int_equal(f.word, WORD_LEAVE);
  is_taken(to, frame_write(to, WORD_LEFT, NULL, 0), 0, &f);
  assert_int_equal(f.word, WORD_LEFT);
  is_refused(WORD_LEFT, NULL, 0, 1); // rank 0 alone knows that all have left
  is_refused(WORD_LEAVE, NULL, 0, 0);
  is_refused(WORD_NONE, NULL, 0, 1);
  is_refused((Word)(WORD_LEFT + 1), NULL, 0, 1);
  is_refused(WORD_PULSE, &call, 7, 1);
  is_refused(WORD_PULSE, NULL, 0, 1);
  is_refused(WORD_LEAVE, &call, 8, 1);
  FrameHead head = {WORD_NOTICE, UINT32_MAX}; // refused before more comes
  assert_int_equal(take((unsigned char *)&head, sizeof head, 1, &f), -1);
}

static void notices(void **state) {
  const Notice good = {.error = {.code = PLAIT_FAILED, .message = "rank 2 on node1 has died",
                                 .rank = {1, 2, "node1"}, .blamed = {1, 2, "node1"}}};
  unsigned char to[FRAME_BYTES];
  Frame f;
  for (int code = PLAIT_UNWRITABLE; code < 0; code++)
    for (int rank = -1; rank < RANKS; rank++) {
      Notice n = good;
      n.error.code = code, n.error.blamed = error_rank(rank, "node1"), n.silent = rank == 1;
      assert_int_equal(take(to, frame_write(to, WORD_NOTICE, &n, sizeof n), 1, &f), FRAME_BYTES);
      assert_memory_equal(&f.notice, &n, sizeof n);
    }
  is_taken(to, frame_write(to, WORD_NOTICE, &good, sizeof good), 0, &f);
  static const int codes[] = {0, 1, PLAIT_UNWRITABLE - 1, INT_MAX, INT_MIN}, ranks[] = {-1, RANKS, INT_MAX, INT_MIN};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    Notice n = good;
    n.error.code = codes[i];
    is_refused(WORD_NOTICE, &n, sizeof n, 1);
  }
  for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
    Notice n = good;
    n.error.blamed.rank = ranks[i];
    is_refused(WORD_NOTICE, &n, sizeof n, 1);
    n = good, n.error.rank.rank = ranks[i];
    is_refused(WORD_NOTICE, &n, sizeof n, 1);
  }
  Notice n = good;
  n.silent = 2;
  is_refused(WORD_NOTICE, &n, sizeof n, 1);
  n = good;
  n.error.blamed.known = 2;
  is_refused(WORD_NOTICE, &n, sizeof n, 1);
  char *const texts[] = {n.error.message, n.error.rank.host, n.error.blamed.host, n.error.key};
  const size_t sizes[] = {sizeof n.error.message, sizeof n.error.rank.host, sizeof n.error.blamed.host,
                          sizeof n.error.key};
  for (int i = 0; i < 4; i++) {
    n = good;
    memset(texts[i], 'x', sizes[i]);
    is_refused(WORD_NOTICE, &n, sizeof n, 1);
  }
  is_refused(WORD_NOTICE, &good, sizeof good - 1, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(greetings),     cmocka_unit_test(answers),       cmocka_unit_test(what_rank_0_tells),
      cmocka_unit_test(records),       cmocka_unit_test(machines),      cmocka_unit_test(link_addresses),
      cmocka_unit_test(carriers),      cmocka_unit_test(introductions), cmocka_unit_test(places),
      cmocka_unit_test(shared_memory), cmocka_unit_test(frames),
      cmocka_unit_test(notices),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
