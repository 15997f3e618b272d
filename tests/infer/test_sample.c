// tier 1; numbers
// Sampling: argmax and ties, top-k and top-p cuts, and frequencies against the softmax.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "infer/sample.h"
#include <math.h>

enum { COUNT = 6, DRAWS = 20000 };
static const float logits[COUNT] = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, 0.0f};

static int32_t draw(const float *x, const uint8_t *allowed, SampleOptions o, uint64_t position) {
  SampleCandidate scratch[COUNT];
  return sample_token(x, COUNT, allowed, &o, position, scratch);
}

static void count(SampleOptions o, const uint8_t *allowed, int *n) {
  for (int i = 0; i < COUNT; i++) n[i] = 0;
  for (int i = 0; i < DRAWS; i++) {
    int32_t id = draw(logits, allowed, o, (uint64_t)i);
    assert_in_range(id, 0, COUNT - 1);
    n[id]++;
  }
}

static void test_most_likely(void **state) {
  assert_int_equal(draw(logits, NULL, (SampleOptions){.top_p = 1}, 0), 1); // a tie goes to the lowest id
  const uint8_t allowed[COUNT] = {1, 0, 1, 1, 1, 1};
  assert_int_equal(draw(logits, allowed, (SampleOptions){.top_p = 1}, 0), 3);
}

static void test_frequencies(void **state) {
  for (double temperature = 0.5; temperature < 3; temperature *= 2) {
    int n[COUNT];
    double total = 0;
    count((SampleOptions){.temperature = temperature, .top_p = 1, .seed = 3}, NULL, n);
    for (int i = 0; i < COUNT; i++) total += exp(logits[i] / temperature);
    for (int i = 0; i < COUNT; i++) {
      double p = exp(logits[i] / temperature) / total, deviation = sqrt(DRAWS * p * (1 - p));
      assert_true(fabs(n[i] - DRAWS * p) < 5 * deviation);
    }
  }
}

static void test_cuts(void **state) {
  int n[COUNT];
  count((SampleOptions){.temperature = 1, .top_k = 2, .top_p = 1}, NULL, n);
  assert_true(n[1] > 0.45 * DRAWS && n[3] > 0.45 * DRAWS);
  assert_int_equal(n[1] + n[3], DRAWS);
  // 1 and 3 have 0.35 each of the whole, 4 has 0.13: 0.75 needs three of them
  count((SampleOptions){.temperature = 1, .top_p = 0.75}, NULL, n);
  assert_int_equal(n[1] + n[3] + n[4], DRAWS);
  assert_true(n[4] > 0.1 * DRAWS);
  count((SampleOptions){.temperature = 1, .top_p = 0.3}, NULL, n);
  assert_int_equal(n[1], DRAWS);
  const uint8_t allowed[COUNT] = {1, 0, 1, 0, 0, 1};
  count((SampleOptions){.temperature = 1, .top_k = 2, .top_p = 1}, allowed, n);
  assert_int_equal(n[0] + n[5], DRAWS);
}

static void test_seeds(void **state) {
  const SampleOptions a = {.temperature = 1, .top_p = 1, .seed = 1}, b = {.temperature = 1, .top_p = 1, .seed = 2};
  int same = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    assert_int_equal(draw(logits, NULL, a, i), draw(logits, NULL, a, i));
    same += draw(logits, NULL, a, i) == draw(logits, NULL, b, i);
  }
  assert_in_range(same, 100, 500); // as independent draws would
}

static void test_broken_logits(void **state) {
  const float nan[COUNT] = {0, NAN, 0, 0, 0, 0},
              infinite[COUNT] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, 1, -INFINITY};
  const uint8_t none[COUNT] = {0};
  const SampleOptions o = {.temperature = 1, .top_p = 1};
  assert_int_equal(draw(nan, NULL, o, 0), -1);
  assert_int_equal(draw(logits, none, o, 0), -1);
  assert_int_equal(draw(infinite, NULL, o, 0), 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_most_likely), cmocka_unit_test(test_frequencies),
                                     cmocka_unit_test(test_cuts), cmocka_unit_test(test_seeds),
                                     cmocka_unit_test(test_broken_logits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
