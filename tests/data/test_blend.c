// tier 1; numbers
// Blends: weights followed over every prefix, each dataset walked in order without a gap.
#include "data/blend.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// seed -1: no digits shifted, so that points lie exactly on the bounds of stretches.
static void check_weights(const double *weights, int count, int seed, int64_t samples) {
  Error error = {0};
  Blend blend;
  assert_int_equal(blend_create(&blend, weights, count, (uint64_t)seed, &error), 0);
  if (seed < 0) blend.shift = 0;
  int64_t *drawn = xcalloc((size_t)count, sizeof *drawn);
  double sum = 0;
  for (int k = 0; k < count; k++) sum += weights[k];
  for (int64_t i = 0; i < samples; i++) {
    int dataset;
    int64_t index;
    blend_pick(&blend, i, &dataset, &index);
    assert_in_range(dataset, 0, count - 1);
    assert_int_equal(index, drawn[dataset]); // in order, without a gap
    drawn[dataset]++;
    double bound = log2((double)i + 1) + 2; // as the header promises
    for (int k = 0; k < count; k++) assert_true(fabs((double)drawn[k] - weights[k] / sum * (double)(i + 1)) <= bound);
  }
  for (int k = 0; k < count; k++) assert_int_equal(blend_count(&blend, k, samples), drawn[k]);
  free(drawn);
  blend_destroy(&blend);
}

static void test_proportions(void **state) {
  for (int seed = -1; seed < 3; seed++) {
    check_weights((double[]){1}, 1, seed, 300);
    check_weights((double[]){0.5, 0.5}, 2, seed, 5000);
    check_weights((double[]){1, 2, 1, 4}, 4, seed, 5000);
    check_weights((double[]){0.7, 0.2, 0.1}, 3, seed, 20000);
    check_weights((double[]){1e-6, 3, 1, 0.01, 7}, 5, seed, 20000);
  }
}

// After 2^32 samples the counts are the rounded weights exactly, and the walk continues without a gap.
static void test_periods(void **state) {
  Error error = {0};
  Blend blend;
  assert_int_equal(blend_create(&blend, (double[]){3, 1}, 2, 9, &error), 0);
  int64_t period = (int64_t)1 << 32;
  assert_int_equal(blend_count(&blend, 0, period), period / 4 * 3);
  assert_int_equal(blend_count(&blend, 1, 5 * period), period / 4 * 5);
  for (int64_t i = period - 50; i < period + 50; i++) {
    int dataset;
    int64_t index;
    blend_pick(&blend, i, &dataset, &index);
    assert_int_equal(index, blend_count(&blend, dataset, i));
    assert_int_equal(index + 1, blend_count(&blend, dataset, i + 1));
    assert_int_equal(i, blend_count(&blend, 0, i) + blend_count(&blend, 1, i));
  }
  blend_destroy(&blend);
}

static void test_seeds_differ(void **state) {
  Error error = {0};
  Blend a, b;
  assert_int_equal(blend_create(&a, (double[]){1, 2, 3}, 3, 1, &error), 0);
  assert_int_equal(blend_create(&b, (double[]){1, 2, 3}, 3, 2, &error), 0);
  int different = 0;
  for (int64_t i = 0; i < 100; i++) {
    int x, y;
    int64_t index;
    blend_pick(&a, i, &x, &index);
    blend_pick(&b, i, &y, &index);
    different += x != y;
  }
  assert_true(different > 10);
  blend_destroy(&a);
  blend_destroy(&b);
}

static void test_bad_weights(void **state) {
  double bad[][2] = {{1, 0}, {-1, 2}, {NAN, 1}, {1, INFINITY}, {1, 1e-12}, {1e308, 1.7e308}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    Error error = {0};
    Blend blend;
    assert_int_equal(blend_create(&blend, bad[i], 2, 1, &error), PLAIT_BAD_INPUT);
    assert_true(error.message[0]);
    blend_destroy(&blend);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_proportions), cmocka_unit_test(test_periods),
                                     cmocka_unit_test(test_seeds_differ), cmocka_unit_test(test_bad_weights)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
