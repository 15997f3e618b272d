// Interned values: equal ones have one address, others their own, also after the table has grown.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/intern.h"

typedef struct Value { int a, b, c; } Value;

static void each_value_is_kept_once(void **state) {
  enum { COUNT = 1000 };
  Intern table = {0};
  Arena arena = {0};
  const Value *first[COUNT];
  for (int i = 0; i < COUNT; i++) {
    Value v = {i % 10, i / 10, -i};
    first[i] = intern(&table, &arena, &v, sizeof v);
    assert_ptr_not_equal(first[i], &v);
    v.a = 77; // the caller's is free again
  }
  for (int i = 0; i < COUNT; i++) {
    Value v = {i % 10, i / 10, -i};
    assert_ptr_equal(intern(&table, &arena, &v, sizeof v), first[i]);
    assert_memory_equal(first[i], &v, sizeof v);
  }
  assert_int_equal(table.count, COUNT);
  intern_free(&table);
  arena_free(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_value_is_kept_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
