// tier 1
// The keyed permutation: a bijection for every n, different for every key, uniform enough.
#include "data/permutation.h"
#include "base/error.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void check_bijection(int64_t n, uint64_t seed) {
  PhiloxKey key = philox_key(seed, 0, 0);
  uint8_t *seen = xcalloc((size_t)n, 1);
  for (int64_t i = 0; i < n; i++) {
    int64_t j = permutation(key, n, i);
    assert_true(j >= 0 && j < n && !seen[j]);
    seen[j] = 1;
  }
  free(seen);
}

static void test_bijection(void **state) {
  for (int64_t n = 1; n <= 130; n++)
    for (uint64_t seed = 0; seed < 3; seed++) check_bijection(n, seed);
  int64_t larger[] = {255, 256, 257, 1000, 1023, 1024, 1025, 9973, 10000, 65535, 65536, 65537};
  for (size_t i = 0; i < sizeof larger / sizeof *larger; i++) check_bijection(larger[i], i);
}

static void test_huge(void **state) {
  int64_t n = (int64_t)1 << 62;
  for (int64_t m = n - 3; m <= n; m++) {
    int64_t j = permutation(philox_key(5, 0, 0), m, m - 1);
    assert_true(j >= 0 && j < m);
  }
}

// Where element i lands over many keys: chi-squared of the n × n table, (n-1)^2 degrees of freedom.
static void check_uniform(int n) {
  enum { KEYS = 6000 };
  double expected = (double)KEYS / n, chi = 0;
  int *count = xcalloc((size_t)(n * n), sizeof *count);
  for (uint64_t k = 0; k < KEYS; k++)
    for (int i = 0; i < n; i++) count[i * n + (int)permutation(philox_key(k, 1, 2), n, i)]++;
  for (int c = 0; c < n * n; c++) chi += (count[c] - expected) * (count[c] - expected) / expected;
  free(count);
  double freedom = (n - 1.0) * (n - 1.0);
  if (n == 2) assert_true(chi < 2 * 15); // one coin, counted twice
  else assert_true(chi < freedom + 5 * __builtin_sqrt(2 * freedom) + 10);
}

static void test_uniform(void **state) {
  for (int n = 2; n <= 20; n++) check_uniform(n);
}

// Neighbours must not stay neighbours: counts how often π(i+1) - π(i) repeats the most frequent difference.
static void test_scattered(void **state) {
  enum { N = 2000 };
  int count[2 * N] = {0}, most = 0;
  PhiloxKey key = philox_key(3, 0, 0);
  for (int i = 0; i + 1 < N; i++) {
    int difference = (int)(permutation(key, N, i + 1) - permutation(key, N, i)) + N;
    if (++count[difference] > most) most = count[difference];
  }
  assert_true(most < 12); // about 1 expected each
}

// All 3! orders of three occur about equally often.
static void test_all_orders(void **state) {
  int count[27] = {0}, kinds = 0;
  for (uint64_t k = 0; k < 6000; k++) {
    int code = 0;
    for (int i = 0; i < 3; i++) code = 3 * code + (int)permutation(philox_key(k, 0, 7), 3, i);
    count[code]++;
  }
  for (int c = 0; c < 27; c++) {
    if (!count[c]) continue;
    kinds++;
    assert_in_range(count[c], 850, 1150);
  }
  assert_int_equal(kinds, 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bijection), cmocka_unit_test(test_huge),
                                     cmocka_unit_test(test_uniform), cmocka_unit_test(test_scattered),
                                     cmocka_unit_test(test_all_orders)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
