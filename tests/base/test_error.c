// Errors: the first one stays, with the facts of its sentence.
#include "base/error.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void first(void **state) {
  Error e = {0};
  const ErrorFacts facts = {.rank = error_rank(1, "node7"), .blamed = error_rank(2, NULL), .key = "run.comm"};
  assert_int_equal(error_set(&e, PLAIT_FAILED, "a %d", 1), PLAIT_FAILED);
  assert_int_equal(error_set_about(&e, PLAIT_BAD_INPUT, &facts, "b"), PLAIT_BAD_INPUT);
  assert_string_equal(e.message, "a 1");
  assert_int_equal(e.code, PLAIT_FAILED);
  assert_false(e.rank.known || e.blamed.known || *e.key); // of the second
  assert_int_equal(error_set_about(NULL, PLAIT_FAILED, &facts, "c"), PLAIT_FAILED);
}

static void facts(void **state) {
  Error e = {0}, taken = {0};
  const ErrorFacts about = {.rank = error_rank(1, "node7"), .blamed = error_rank(2, "node8"), .key = "run.comm"};
  error_set_about(&e, PLAIT_UNWRITABLE, &about, "run.comm: %s", "no");
  error_prefix(&e, "before");
  error_append(&e, "; after");
  assert_int_equal(error_take(&taken, &e), PLAIT_UNWRITABLE);
  assert_string_equal(taken.message, "before: run.comm: no; after");
  assert_string_equal(taken.message + taken.text, "run.comm: no; after");
  assert_string_equal(taken.key, "run.comm");
  assert_int_equal(taken.rank.rank, 1);
  assert_string_equal(taken.rank.host, "node7");
  assert_int_equal(taken.blamed.rank, 2);
  assert_string_equal(taken.blamed.host, "node8");
  Error later = {0};
  error_set(&later, PLAIT_FAILED, "x");
  assert_int_equal(error_take(&taken, &later), PLAIT_FAILED);
  assert_string_equal(taken.key, "run.comm"); // the first stays
}

static void names(void **state) {
  Error e = {0}, named = {0}, none = {0};
  error_name_rank(&none, 1, NULL);
  assert_false(none.rank.known); // of no failure
  error_set(&e, PLAIT_FAILED, "the disk is full");
  error_name_rank(&e, 3, "node7");
  error_name_rank(&e, 4, NULL); // it has one
  assert_string_equal(e.message, "rank 3 on node7: the disk is full");
  assert_int_equal(e.rank.rank, 3);
  assert_int_equal(e.blamed.rank, 3);
  error_set_about(&named, PLAIT_FAILED, &(ErrorFacts){.rank = error_rank(0, NULL)},
                  "step 3: layer 1, rank 0: infinite");
  error_name_rank(&named, 1, NULL);
  assert_string_equal(named.message, "step 3: layer 1, rank 0: infinite");
}

static void blame(void **state) {
  Error e = {0};
  assert_int_equal(error_blames(&e, 0), -1);
  error_set_about(&e, PLAIT_FAILED, &(ErrorFacts){.blamed = error_rank(1, "node7")}, "rank 1 on node7 has died");
  assert_int_equal(error_blames(&e, 0), 1);
  assert_int_equal(error_blames(&e, 1), -1); // itself
  Error zero = {0};
  error_set_about(&zero, PLAIT_FAILED, &(ErrorFacts){.blamed = error_rank(0, NULL)}, "rank 0 has died");
  assert_int_equal(error_blames(&zero, 2), 0);
}

static void printable(void **state) {
  Error long_one = {0};
  error_set(&long_one, PLAIT_FAILED, "x");
  error_prefix(&long_one, "%0*d", (int)sizeof long_one.message - 3, 0);
  assert_true((size_t)long_one.text <= strlen(long_one.message) && error_is_valid(&long_one, 1));
  long_one.text = (int)strlen(long_one.message) + 1;
  assert_false(error_is_valid(&long_one, 1));
  Error sent = {.code = PLAIT_FAILED, .message = "a\033[2Jb", .key = "k\n", .blamed = {1, 0, "h\t"}}, e = {0};
  error_take(&e, &sent);
  assert_string_equal(e.message, "a?[2Jb");
  assert_string_equal(e.key, "k?");
  assert_string_equal(e.blamed.host, "h?");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(first), cmocka_unit_test(facts), cmocka_unit_test(names),
                                     cmocka_unit_test(blame), cmocka_unit_test(printable)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
