// tier 1
// The table of a store, with time that the test moves: keys go with their leases, at their time, and versions never
// come again. SEED: of the random calls.
#include "base/error.h"
#include "elastic/store_table.h"
#include "tier.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static uint64_t version(const StoreTable *t, const char *key) {
  const StoreValue *v = store_table_get(t, key);
  return v ? v->version : 0;
}

static void leases(void **state) {
  StoreTable *t = store_table_create();
  assert_true(isinf(store_table_next_lapse(t)));
  uint64_t a = store_table_lease(t, 0, 10), b = store_table_lease(t, 0, 20);
  assert_true(a && b && a != b);
  assert_true(store_table_next_lapse(t) == 10);
  assert_true(store_table_set(t, "here/a", 0, "A", 1, a) && store_table_set(t, "here/b", 0, "B", 1, b));
  assert_true(store_table_set(t, "also/a", 0, "", 0, a) && store_table_set(t, "state", 0, "S", 1, 0));
  assert_int_equal(store_table_lapse(t, 9.9), 0);
  assert_true(store_table_lease(t, a, 15) == a); // renewed
  assert_int_equal(store_table_lapse(t, 14.9), 0);
  assert_int_equal(store_table_lapse(t, 15), 2);
  assert_true(!version(t, "here/a") && !version(t, "also/a") && version(t, "here/b") && version(t, "state"));
  assert_true(store_table_lease(t, a, 100) == 0);                  // it does not come again
  assert_false(store_table_set(t, "here/a", 0, "A", 1, a));        // nor does what had it
  uint64_t of_b = version(t, "here/b");
  assert_false(store_table_set(t, "here/b", of_b + 1, "C", 1, 0)); // another version
  assert_true(store_table_set(t, "here/b", of_b, "C", 1, 0));      // without a lease from here on
  assert_int_equal(store_table_lapse(t, 1000), 0);
  assert_true(version(t, "here/b") > of_b);
  assert_true(isinf(store_table_next_lapse(t)));
  store_table_destroy(t);
}

enum { KEYS = 8, LEASES = 5 };

// Against what is known of each key and lease.
static void random_calls(void **state) {
  const char *given = getenv("SEED");
  unsigned seed = given ? (unsigned)atoi(given) : (unsigned)time(NULL) ^ (unsigned)getpid() << 16;
  printf("SEED=%u\n", seed);
  srandom(seed);
  StoreTable *t = store_table_create();
  struct { uint64_t version; int lease; char value; } key[KEYS] = {{0}};
  struct { uint64_t id; double until; } lease[LEASES + 1] = {{0}}; // 0: none
  uint64_t last = 0;
  double now = 0;
  for (int i = 0; i < 20000; i++) {
    int k = (int)(random() % KEYS), l = (int)(random() % (LEASES + 1));
    char name[8], value = (char)('a' + random() % 26);
    snprintf(name, sizeof name, "key%d", k);
    switch (random() % 4) {
    case 0: {
      uint64_t from = random() % 4 ? key[k].version : last;
      bool good = from == key[k].version && (!l || lease[l].id);
      if (l && !lease[l].id) break; // id 0 says: without one
      assert_int_equal(store_table_set(t, name, from, &value, 1, lease[l].id), good);
      if (!good) break;
      assert_true(version(t, name) > last);
      key[k].version = last = version(t, name), key[k].lease = l, key[k].value = value;
      break;
    }
    case 1:
      if (!l) break;
      double until = now + (double)(random() % 100) / 10;
      uint64_t id = store_table_lease(t, lease[l].id, until);
      assert_true(lease[l].id ? id == lease[l].id : id > last);
      if (!lease[l].id) last = id;
      lease[l].id = id, lease[l].until = until;
      break;
    case 2:
      now += (double)(random() % 20) / 10;
      int gone = 0;
      for (int other = 1; other <= LEASES; other++) {
        if (!lease[other].id || lease[other].until > now) continue;
        lease[other].id = 0;
        for (int q = 0; q < KEYS; q++)
          if (key[q].version && key[q].lease == other) key[q].version = 0, gone++;
      }
      assert_int_equal(store_table_lapse(t, now), gone);
      break;
    default:
      assert_true(version(t, name) == key[k].version);
      if (key[k].version) assert_true(*(char *)store_table_get(t, name)->data == key[k].value);
    }
  }
  store_table_destroy(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(leases), cmocka_unit_test(random_calls)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
