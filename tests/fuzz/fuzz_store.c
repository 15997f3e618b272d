// What comes over a connection to the store: a greeting, then requests, as its server takes them. Any bytes are
// requests within the limits, or none.
#include "elastic/store_protocol.h"
#include "elastic/store_table.h"
#include "fuzz.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  StoreTable *table = store_table_create();
  bool good = false;
  int bytes = store_take_greeting(data, size, 1, &good);
  CHECK(bytes >= 0 && (size_t)bytes <= size);
  for (double now = 0; bytes > 0; now++) {
    StoreRequest r;
    char key[STORE_KEY + 1];
    const uint8_t *value;
    data += bytes;
    size -= (size_t)bytes;
    bytes = store_take_request(data, size, &r, key, &value);
    if (bytes <= 0) break;
    CHECK((size_t)bytes <= size && strlen(key) <= STORE_KEY && value + r.value_bytes == data + bytes);
    if (r.call == STORE_SET) store_table_set(table, key, r.version, value, r.value_bytes, r.lease);
    if (r.call == STORE_LEASE) store_table_lease(table, r.lease, now + 3);
    const StoreValue *v = store_table_get(table, key);
    CHECK(!v || v->bytes <= STORE_VALUE);
    store_table_lapse(table, now);
  }
  store_table_destroy(table);
  return 0;
}
