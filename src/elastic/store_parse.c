// Checks what comes over a connection of the store: to its server a greeting and requests, to a client replies.
#include "elastic/store_protocol.h"
#include "base/fault.h"
#include <string.h>

int store_take_greeting(const uint8_t *data, size_t bytes, uint64_t job, bool *good) {
  StoreGreeting mine = STORE_GREETING(job);
  if (bytes < sizeof mine) return 0;
  *good = memcmp(data, &mine, sizeof mine) == 0;
  return sizeof mine;
}

int store_take_request(const uint8_t *data, size_t bytes, StoreRequest *r, char key[STORE_KEY + 1],
                       const uint8_t **value) {
  if (bytes < sizeof *r) return 0;
  memcpy(r, data, sizeof *r);
  if (r->call > STORE_LEASE || r->key_bytes > STORE_KEY || r->value_bytes > STORE_VALUE) return -1;
  size_t all = sizeof *r + r->key_bytes + r->value_bytes;
  if (bytes < all) return 0;
  memcpy(key, data + sizeof *r, r->key_bytes);
  key[r->key_bytes] = 0;
  *value = data + sizeof *r + r->key_bytes;
  return (int)all;
}

// A client reads no value of what does not exist: its bytes would be taken for the next reply.
bool store_reply_is_valid(const StoreReply *r) {
  bool is_value = FAULT(values_without_a_version, r->version || !r->value_bytes, true);
  return r->done <= 1 && is_value && r->value_bytes <= STORE_VALUE;
}

StoreAnswerer store_who_answers(const StoreGreeting *mine, const StoreGreeting *theirs) {
  if (!memcmp(mine, theirs, sizeof *mine)) return STORE_OURS;
  if (memcmp(mine->magic, theirs->magic, sizeof mine->magic)) return STORE_NOT_PLAIT;
  return mine->version != theirs->version ? STORE_OTHER_VERSION : STORE_OTHER_JOB;
}
