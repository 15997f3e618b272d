// Arenas and vectors: alignment, zeroes, no overlap, requests larger than a block, growth.
#include "base/arena.h"
#include "base/error.h"
#include "base/vec.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void blocks(void **state) {
  Arena arena = {0};
  enum { N = 3000 };
  struct { unsigned char *p; size_t size; } got[N];
  size_t sum = 0;
  for (int i = 0; i < N; i++) {
    size_t size = i % 500 == 499 ? 100000 : (size_t)(i * 37 % 300); // 0 too, and some above a block's usual size
    unsigned char *p = arena_alloc(&arena, size);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 16, 0);
    for (size_t k = 0; k < size; k++) assert_int_equal(p[k], 0);
    memset(p, i % 255 + 1, size);
    got[i].p = p, got[i].size = size;
    sum += size;
  }
  for (int i = 0; i < N; i++) // nobody wrote into another's memory
    for (size_t k = 0; k < got[i].size; k++) assert_int_equal(got[i].p[k], i % 255 + 1);
  assert_true(arena.total >= sum);
  arena_free(&arena);
  assert_null(arena.block);
  assert_int_equal(arena.total, 0);
  arena_free(&arena);
}

static void strings(void **state) {
  Arena arena = {0};
  char source[] = "weight";
  char *copy = arena_strdup(&arena, source);
  source[0] = 'W';
  assert_string_equal(copy, "weight");
  assert_string_equal(arena_format(&arena, "%s.%d", copy, 12), "weight.12");
  assert_string_equal(arena_format(&arena, "%s", ""), "");
  char *large = arena_format(&arena, "%0*d", 200000, 7);
  assert_int_equal(strlen(large), 200000);
  int *numbers = arena_array(&arena, int, 3);
  numbers[2] = 5;
  assert_int_equal(numbers[0] + numbers[1] + numbers[2], 5);
  arena_free(&arena);
}

static void vectors(void **state) {
  Vec(int64_t) v = {0};
  for (int i = 0; i < 1000; i++) vec_push(&v, (int64_t)i * i);
  assert_int_equal(v.count, 1000);
  assert_true(v.capacity >= 1000);
  for (int i = 0; i < 1000; i++) assert_int_equal(v.data[i], i * i);
  vec_reserve(&v, 5000);
  assert_true(v.capacity >= 5000);
  assert_int_equal(v.data[999], 999 * 999);
  vec_free(&v);
  assert_null(v.data);
  assert_int_equal(v.count + v.capacity, 0);
}

// The first error stays, prefixes go before it, nothing runs over the message's end.
static void errors(void **state) {
  Error error = {0};
  assert_int_equal(error_prefix(&error, "x"), PLAIT_OK);
  assert_int_equal(error_set(&error, PLAIT_BAD_INPUT, "key %s", "lr"), PLAIT_BAD_INPUT);
  assert_int_equal(error_set(&error, PLAIT_FAILED, "later"), PLAIT_FAILED);
  assert_int_equal(error.code, PLAIT_BAD_INPUT);
  assert_int_equal(error_prefix(&error, "line %d", 3), PLAIT_BAD_INPUT);
  assert_string_equal(error.message, "line 3: key lr");
  Error full = {0};
  error_set(&full, PLAIT_FAILED, "%0*d", 5000, 1);
  assert_int_equal(strlen(full.message), sizeof full.message - 1);
  error_prefix(&full, "%s", "front");
  assert_memory_equal(full.message, "front: 000", 10);
  assert_true(strlen(full.message) < sizeof full.message);
  error_prefix(&full, "%0*d", 2000, 2);
  assert_true(strlen(full.message) < sizeof full.message);
  assert_int_equal(error_set(NULL, PLAIT_FAILED, "nowhere"), PLAIT_FAILED);
  assert_int_equal(error_exit_status(PLAIT_OK), 0);
  assert_int_equal(error_exit_status(PLAIT_INTERRUPTED), 0);
  assert_int_equal(error_exit_status(PLAIT_FAILED), 1);
  assert_int_equal(error_exit_status(PLAIT_BAD_INPUT), 2);
  assert_int_equal(error_exit_status(PLAIT_INFEASIBLE), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(blocks), cmocka_unit_test(strings), cmocka_unit_test(vectors),
                                     cmocka_unit_test(errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
