// Keys and leases of a store: a few hundred, so rows of them.
#include "elastic/store_table.h"
#include "base/fault.h"
#include "base/vec.h"
#include <math.h>
#include <string.h>

typedef struct Entry { char *key; StoreValue value; uint64_t lease; } Entry;
typedef struct Lease { uint64_t id; double until; } Lease;

struct StoreTable {
  Vec(Entry) entries;
  Vec(Lease) leases;
  uint64_t last; // version or lease that was given out last
};

StoreTable *store_table_create(void) { return xcalloc(1, sizeof(StoreTable)); }

void store_value_free(StoreValue *value) {
  free(value->data);
  *value = (StoreValue){0};
}

static void remove_entry(StoreTable *t, int i) {
  free(t->entries.data[i].key);
  store_value_free(&t->entries.data[i].value);
  t->entries.data[i] = t->entries.data[--t->entries.count];
}

void store_table_destroy(StoreTable *t) {
  if (!t) return;
  while (t->entries.count) remove_entry(t, t->entries.count - 1);
  vec_free(&t->entries);
  vec_free(&t->leases);
  free(t);
}

static Entry *find(const StoreTable *t, const char *key) {
  for (int i = 0; i < t->entries.count; i++)
    if (!strcmp(t->entries.data[i].key, key)) return &t->entries.data[i];
  return NULL;
}

static Lease *find_lease(const StoreTable *t, uint64_t id) {
  for (int i = 0; i < t->leases.count; i++)
    if (t->leases.data[i].id == id) return &t->leases.data[i];
  return NULL;
}

const StoreValue *store_table_get(const StoreTable *t, const char *key) {
  const Entry *e = find(t, key);
  return e ? &e->value : NULL;
}

void store_table_copy(const StoreTable *t, const char *key, StoreValue *now) {
  const StoreValue *v = store_table_get(t, key);
  *now = (StoreValue){0};
  if (!v) return;
  *now = (StoreValue){xcalloc(v->bytes + 1, 1), v->bytes, v->version};
  if (v->bytes) memcpy(now->data, v->data, v->bytes);
}

int store_table_set(StoreTable *t, const char *key, uint64_t version, const void *data, size_t bytes, uint64_t lease) {
  Entry *e = find(t, key);
  if (FAULT(store_sets_any_version, (e ? e->value.version : 0) != version, 0) || (lease && !find_lease(t, lease)))
    return 0;
  if (!e) {
    vec_push(&t->entries, (Entry){.key = xstrdup(key)});
    e = &t->entries.data[t->entries.count - 1];
  }
  store_value_free(&e->value);
  e->value = (StoreValue){xcalloc(bytes + 1, 1), bytes, ++t->last};
  if (bytes) memcpy(e->value.data, data, bytes);
  e->lease = lease;
  return 1;
}

uint64_t store_table_lease(StoreTable *t, uint64_t id, double until) {
  Lease *lease = id ? find_lease(t, id) : NULL;
  if (id && !lease) return 0;
  if (lease) return lease->until = until, id;
  vec_push(&t->leases, (Lease){++t->last, until});
  return t->last;
}

int store_table_lapse(StoreTable *t, double now) {
  int removed = 0;
  for (int l = t->leases.count - 1; l >= 0; l--) {
    Lease lease = t->leases.data[l];
    if (lease.until > now) continue;
    t->leases.data[l] = t->leases.data[--t->leases.count];
    for (int i = t->entries.count - 1; i >= 0; i--)
      if (FAULT(keys_outlive_leases, t->entries.data[i].lease == lease.id, 0)) remove_entry(t, i), removed++;
  }
  return removed;
}

double store_table_next_lapse(const StoreTable *t) {
  double next = INFINITY;
  for (int l = 0; l < t->leases.count; l++) next = fmin(next, t->leases.data[l].until);
  return next;
}
