// Messages on a connection of the rendezvous. The first byte of the input chooses: g is rank 0's greeting, a the answer
// of another rank, t the list of records that rank 0 sends, p the place and r the record of a rank. What is accepted
// must be usable.
#include "comm/net_record.h"
#include "comm/rendezvous_parse.h"
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3 };

static void read_greeting(const uint8_t *data, size_t size) {
  Greeting theirs, mine = GREETING(RANKS, 7);
  char reason[RENDEZVOUS_REASON] = "";
  if (size < sizeof theirs) return;
  memcpy(&theirs, data, sizeof theirs);
  bool ours = greeting_is_ours(&theirs, &mine, "127.0.0.1:1", "run", reason);
  CHECK(ours == !memcmp(&theirs, &mine, sizeof mine) && ours == !*reason);
}

static void read_answer(const uint8_t *data, size_t size) {
  Answer a;
  if (size < sizeof a) return;
  memcpy(&a, data, sizeof a);
  if (answer_is_valid(&a, RANKS)) // rank 0 sends the record on, and others must take it for one
    CHECK(a.rank > 0 && a.rank < RANKS && told_by_root(a.bytes) == TOLD_RECORD);
}

static void read_record(const uint8_t *data, size_t size) {
  void *copy = malloc(size ? size : 1); // aligned
  CHECK(copy);
  if (size) memcpy(copy, data, size);
  const Record *r = copy;
  Record mine = {.host = "here", .boot = "boot"};
  if (record_is_valid(copy, size)) {
    CHECK(strlen(r->host) < sizeof r->host && strlen(r->boot) < sizeof r->boot && record_same_machine(r, r));
    CHECK(sizeof *r + r->address_bytes == size && r->watch_port <= 65535 && link_address_is_valid(&r->link));
    if (record_has(r, CARRIER_TCP)) link_address_get(&r->link);
    CHECK(strlen(r->link.path) < sizeof r->link.path);
    record_same_machine(r, &mine);
  }
  free(copy);
}

static void read_place(const uint8_t *data, size_t size) {
  NetPlace *p = calloc(1, size ? size : 1); // aligned
  CHECK(p);
  if (size) memcpy(p, data, size);
  if (place_is_valid(p, size)) {
    CHECK(size == sizeof *p && strlen(p->host) < sizeof p->host && strlen(p->boot) < sizeof p->boot);
    CHECK(places_share_memory(p, p) == (*p->boot && p->processes && p->segments));
    CHECK(carrier_between(p, 0, p, 1) == carrier_between(p, 1, p, 0));
  }
  free(p);
}

static void read_told(const uint8_t *data, size_t size) {
  for (uint64_t length; size >= sizeof length;) {
    memcpy(&length, data, sizeof length);
    data += sizeof length, size -= sizeof length;
    Told told = told_by_root(length);
    char reason[RENDEZVOUS_REASON];
    if (told == TOLD_REASON && size >= sizeof reason) {
      memcpy(reason, data, sizeof reason);
      if (reason_is_valid(reason)) {
        Error error = {0};
        error_set(&error, PLAIT_BAD_INPUT, "%s", reason);
        fuzz_check(error.code, &error);
      }
    }
    if (told != TOLD_RECORD || length > size) return;
    read_record(data, (size_t)length);
    data += length, size -= (size_t)length;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  switch (fuzz_byte(&data, &size)) {
  case 'g': read_greeting(data, size); break;
  case 'a': read_answer(data, size); break;
  case 't': read_told(data, size); break;
  case 'p': read_place(data, size); break;
  default: read_record(data, size);
  }
  return 0;
}
