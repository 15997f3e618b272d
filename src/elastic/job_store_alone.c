// The store of a job of one machine: a table in this process. Nobody else reaches it, so its leases do not lapse, no
// call waits, and there is neither a port nor a file in run.dir.
#include "elastic/job_store.h"
#include "elastic/store_table.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Alone { Store base; StoreTable *table; } Alone;

static StoreTable *table_of(Store *store) { return ((Alone *)store)->table; }

static int get(Store *store, const char *key, StoreValue *now, Error *error) {
  store_table_copy(table_of(store), key, now);
  return PLAIT_OK;
}

static int compare_and_set(Store *store, const char *key, uint64_t version, const void *data, size_t bytes,
                           uint64_t lease, bool *done, StoreValue *now, Error *error) {
  *done = store_table_set(table_of(store), key, version, data, bytes, lease);
  return get(store, key, now, error);
}

// Nobody else changes anything meanwhile.
static int wait_for(Store *store, const char *key, uint64_t version, double seconds, StoreValue *now, Error *error) {
  return get(store, key, now, error);
}

static int lease(Store *store, uint64_t *lease, double seconds, Error *error) {
  *lease = store_table_lease(table_of(store), *lease, INFINITY);
  return PLAIT_OK;
}

static void own_address(const Store *store, char *text, size_t size) {
  snprintf(text, size, "127.0.0.1");
}

static void close_store(Store *store) {
  store_table_destroy(table_of(store));
  free(store);
}

static int check(const char *endpoints, bool insecure, Error *error) {
  return PLAIT_OK;
}

static int find(JobStore *j, Error *error) {
  Alone *alone = xcalloc(1, sizeof *alone);
  *alone = (Alone){{get, compare_and_set, wait_for, lease, own_address, close_store, 0}, store_table_create()};
  j->store = &alone->base;
  return 1;
}

static int keep(JobStore *j, double now, Error *error) {
  return 1;
}

const JobStoreKind job_store_alone = {
    .check = check, .find = find, .keep = keep, .server = "plait launch", .anybody_begins = true, .at_once = true};
