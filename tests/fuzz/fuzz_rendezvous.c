// What a rank reads from the root of the rendezvous, the root from an unknown process, and all from each other's record.
// The first byte chooses what is read.
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
  if (answer_is_one(&a, RANKS)) // rank 0 sends the record on, and others must take it for one
    CHECK(a.rank > 0 && a.rank < RANKS && told_by_root(a.bytes) == TOLD_RECORD);
}

static void read_told(const uint8_t *data, size_t size) {
  for (uint64_t length; size >= sizeof length;) {
    memcpy(&length, data, sizeof length);
    data += sizeof length, size -= sizeof length;
    Told told = told_by_root(length);
    char reason[RENDEZVOUS_REASON];
    if (told == TOLD_REASON && size >= sizeof reason) {
      memcpy(reason, data, sizeof reason);
      reason_end(reason);
      CHECK(strlen(reason) < sizeof reason);
    }
    if (told != TOLD_RECORD || length > size) return;
    data += length, size -= length;
  }
}

static void read_record(const uint8_t *data, size_t size) {
  void *copy = malloc(size ? size : 1);
  CHECK(copy);
  if (size) memcpy(copy, data, size);
  const Record *r = copy;
  Record mine = {.host = "here", .boot = "boot"};
  if (record_is_one(copy, size)) {
    CHECK(strlen(r->host) < sizeof r->host && strlen(r->boot) < sizeof r->boot && record_same_machine(r, r));
    record_same_machine(r, &mine);
  }
  free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  switch (fuzz_byte(&data, &size)) {
  case 'g': read_greeting(data, size); break;
  case 'a': read_answer(data, size); break;
  case 't': read_told(data, size); break;
  default: read_record(data, size);
  }
  return 0;
}
