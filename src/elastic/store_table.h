// What a store holds: keys, versions, leases. No sockets, no threads; the caller brings the time.
#pragma once
#include "elastic/store.h"

typedef struct StoreTable StoreTable;
StoreTable *store_table_create(void);
void store_table_destroy(StoreTable *table);

// NULL: the key does not exist. Borrowed until the next call.
const StoreValue *store_table_get(const StoreTable *table, const char *key);
void store_table_copy(const StoreTable *table, const char *key, StoreValue *now); // version 0: it does not exist
// 1: it is set; 0: the version is another one, or the lease has lapsed.
int store_table_set(StoreTable *table, const char *key, uint64_t version, const void *data, size_t bytes,
                    uint64_t lease);
// Makes (lease 0) or renews a lease until the time `until`; 0: it has lapsed.
uint64_t store_table_lease(StoreTable *table, uint64_t lease, double until);
// Removes the leases that have lapsed at `now`, and their keys. Returns how many keys.
int store_table_lapse(StoreTable *table, double now);
double store_table_next_lapse(const StoreTable *table); // when the next lease lapses; INFINITY: no leases
