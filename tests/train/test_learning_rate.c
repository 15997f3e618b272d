// tier 1; numbers
// Learning-rate schedules against their closed forms, at every step.
#include "train/learning_rate.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static Recipe recipe_of(int name, int64_t warmup, int64_t steps, int64_t decay) {
  Recipe r = {0};
  r.optimizer.lr = 3e-3;
  r.schedule.name = name;
  r.schedule.warmup = warmup;
  r.schedule.steps = steps;
  r.schedule.min_lr = 1e-4;
  r.schedule.decay_steps = decay;
  return r;
}

static void near(double a, double b) {
  if (fabs(a - b) > 1e-15) fail_msg("%.17g is not %.17g", a, b);
}

static void test_warmup(void **state) {
  for (int name = RECIPE_COSINE; name <= RECIPE_CONSTANT; name++) {
    Recipe r = recipe_of(name, 10, 100, 20);
    for (int i = 0; i < 10; i++) near(learning_rate_at(&r, i), 3e-3 * (i + 1) / 10);
    assert_true(learning_rate_at(&r, 9) == 3e-3);
    assert_true(learning_rate_at(&r, 10) == 3e-3);
  }
}

static void test_cosine(void **state) {
  Recipe r = recipe_of(RECIPE_COSINE, 20, 220, 0);
  for (int i = 20; i < 220; i++) near(learning_rate_at(&r, i), 1.55e-3 + 1.45e-3 * cos(M_PI * (i - 20) / 200.0));
  near(learning_rate_at(&r, 120), 1.55e-3);
  assert_true(learning_rate_at(&r, 220) == 1e-4);
  assert_true(learning_rate_at(&r, 1 << 30) == 1e-4);
}

static void test_linear(void **state) {
  Recipe r = recipe_of(RECIPE_LINEAR, 0, 29, 0);
  for (int i = 0; i <= 29; i++) near(learning_rate_at(&r, i), 3e-3 - 1e-4 * i);
}

static void test_wsd(void **state) {
  Recipe r = recipe_of(RECIPE_WSD, 5, 100, 29);
  for (int i = 5; i <= 71; i++) assert_true(learning_rate_at(&r, i) == 3e-3);
  for (int i = 71; i <= 100; i++) near(learning_rate_at(&r, i), 3e-3 - 1e-4 * (i - 71));
  r.schedule.decay_steps = 0;
  assert_true(learning_rate_at(&r, 99) == 3e-3);
  r = recipe_of(RECIPE_WSD, 0, 29, 29); // nothing but decay
  near(learning_rate_at(&r, 1), 2.9e-3);
}

static void test_constant_and_edges(void **state) {
  Recipe r = recipe_of(RECIPE_CONSTANT, 0, 10, 0);
  for (int i = -1; i < 20; i++) assert_true(learning_rate_at(&r, i) == 3e-3);
  for (int name = RECIPE_COSINE; name <= RECIPE_WSD; name++) {
    r = recipe_of(name, 10, 10, 0); // all warm-up
    assert_true(learning_rate_at(&r, 9) == 3e-3);
    assert_true(learning_rate_at(&r, 10) == 1e-4);
    r = recipe_of(name, 0, 1, 1);
    assert_true(learning_rate_at(&r, 0) == 3e-3);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_warmup), cmocka_unit_test(test_cosine), cmocka_unit_test(test_linear),
      cmocka_unit_test(test_wsd),    cmocka_unit_test(test_constant_and_edges),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
