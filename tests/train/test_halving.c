// tier 1
// The halving of plans by measured time, with times that are made up.
#include "train/tune.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

// A plan's seconds with few steps and with more: first impressions may be wrong. 0: it fails. stop_at: the call with
// that number is interrupted.
typedef struct MadeUp {
  double few[8], more[8];
  int calls, steps, stop_at, seen[8]; // seen: steps of all runs of a plan
} MadeUp;

static int look(void *context, int plan, int steps, double *seconds, Error *error) {
  MadeUp *m = context;
  if (++m->calls == m->stop_at) return error_set(error, PLAIT_INTERRUPTED, "interrupted");
  m->steps += steps;
  m->seen[plan] += steps;
  *seconds = steps > 5 ? m->more[plan] : m->few[plan];
  return *seconds > 0 ? PLAIT_OK : error_set(error, PLAIT_NO_MEMORY, "plan %d is too large", plan);
}

static void rounds_grow_and_the_field_shrinks(void **state) {
  assert_int_equal(tune_rounds(1), 1);
  assert_int_equal(tune_rounds(2), 1);
  assert_int_equal(tune_rounds(3), 2);
  assert_int_equal(tune_rounds(5), 3);
  assert_int_equal(tune_steps(5, 0, 20), 5);
  assert_int_equal(tune_steps(5, 1, 20), 10);
  assert_int_equal(tune_steps(5, 2, 20), 20);
  assert_int_equal(tune_steps(16, 0, 20), 3);
  assert_int_equal(tune_steps(16, 0, 2), 2);
}

// 5 plans with 5 steps, 3 with 10, 2 with 20; who looked best with few steps is not the best.
static void the_fastest_wins(void **state) {
  MadeUp m = {.few = {5, 1, 3, 2, 4}, .more = {5, 2, 1.5, 1, 4}};
  TunePlan plans[5];
  assert_int_equal(tune_halve(plans, 5, 20, look, &m), PLAIT_OK);
  const int order[] = {3, 2, 1, 4, 0};
  for (int i = 0; i < 5; i++) assert_int_equal(plans[i].plan, order[i]);
  assert_int_equal(m.calls, 5 + 3 + 2);
  assert_int_equal(m.steps, 5 * 5 + 3 * 10 + 2 * 20);
  assert_int_equal(m.seen[0], 5);
  assert_int_equal(m.seen[1], 15);
  assert_true(plans[0].seconds == 1 && plans[0].steps == 20 && plans[0].round == 2);
  assert_true(plans[4].seconds == 5 && plans[4].steps == 5);
}

static void plans_that_fail_are_noted(void **state) {
  MadeUp m = {.few = {0, 2, 1, 0, 3}, .more = {0, 2, 0, 0, 3}};
  TunePlan plans[5];
  assert_int_equal(tune_halve(plans, 5, 20, look, &m), PLAIT_OK);
  assert_int_equal(plans[0].plan, 1);
  assert_true(plans[0].seconds == 2 && plans[0].steps == 20);
  int failed = 0;
  for (int i = 0; i < 5; i++) {
    if (!plans[i].failed) continue;
    failed++;
    assert_true(i > 1 && plans[i].seconds == 0);
    assert_non_null(strstr(plans[i].why.message, "is too large"));
  }
  assert_int_equal(failed, 3);
  MadeUp none = {.calls = 0};
  assert_int_equal(tune_halve(plans, 3, 20, look, &none), PLAIT_OK);
  assert_int_equal(none.calls, 3);
  assert_true(plans[0].failed);
}

static void the_best_so_far_is_first(void **state) {
  TunePlan plans[5];
  MadeUp at_once = {.few = {1, 2, 3, 4, 5}, .stop_at = 1};
  assert_int_equal(tune_halve(plans, 5, 20, look, &at_once), PLAIT_INTERRUPTED);
  assert_true(plans[0].seconds == 0 && !plans[0].failed);
  MadeUp first = {.few = {4, 2, 3, 4, 5}, .stop_at = 4};
  assert_int_equal(tune_halve(plans, 5, 20, look, &first), PLAIT_INTERRUPTED);
  assert_int_equal(plans[0].plan, 1);
  assert_true(plans[2].seconds == 4 && plans[3].seconds == 0);
  // In the second round plan 0 has been measured again, and is slower than it was; plan 1 not yet.
  MadeUp second = {.few = {1, 2, 3, 4, 5}, .more = {2.5, 2, 3, 4, 5}, .stop_at = 7};
  assert_int_equal(tune_halve(plans, 5, 20, look, &second), PLAIT_INTERRUPTED);
  assert_int_equal(plans[0].plan, 1);
  assert_int_equal(plans[1].plan, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rounds_grow_and_the_field_shrinks), cmocka_unit_test(the_fastest_wins),
      cmocka_unit_test(plans_that_fail_are_noted), cmocka_unit_test(the_best_so_far_is_first)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
