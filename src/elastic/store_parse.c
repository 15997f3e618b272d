// What a stranger's bytes are to the store's server: a greeting, requests, or neither.
#include "elastic/store_protocol.h"
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
