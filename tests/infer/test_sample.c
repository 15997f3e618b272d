// tier 1; numbers
// Sampling: argmax and ties, top-k and top-p cuts, and frequencies against the softmax.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "infer/sample.h"
#include <math.h>
#include <string.h>

enum { COUNT = 6, DRAWS = 20000 };
static const float logits[COUNT] = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, 0.0f};

static int32_t draw(const float *x, const uint8_t *allowed, SampleOptions o, uint64_t position) {
  SampleScratch scratch;
  const SampleText text = {.count = (int64_t)position, .prompt = (int64_t)position};
  sample_scratch_create(&scratch, COUNT);
  int32_t id = sample_token(x, allowed, &o, &text, &scratch);
  sample_scratch_destroy(&scratch);
  return id;
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

static void test_min_p(void **state) {
  int n[COUNT];
  count((SampleOptions){.temperature = 1, .min_p = 0.3}, NULL,
        n); // e^-1 of the most likely one passes, e^-1.5 does not
  assert_true(n[4] > 0.1 * DRAWS);
  assert_int_equal(n[1] + n[3] + n[4], DRAWS);
  count((SampleOptions){.temperature = 1, .min_p = 1}, NULL, n);
  assert_int_equal(n[1] + n[3], DRAWS);
}

// A text whose prompt is 1, and in which 3 was drawn twice and 2 once.
static int32_t draw_after(SampleOptions o) {
  static const int32_t ids[] = {1, 3, 2, 3};
  SampleScratch scratch;
  sample_scratch_create(&scratch, COUNT);
  int32_t id = sample_token(logits, NULL, &o, &(SampleText){ids, 4, 1}, &scratch);
  sample_scratch_destroy(&scratch);
  return id;
}

static void test_penalties(void **state) {
  assert_int_equal(draw_after((SampleOptions){0}), 1);
  assert_int_equal(draw_after((SampleOptions){.presence = 1.1}), 1);    // 1 was not drawn, but given
  assert_int_equal(draw_after((SampleOptions){.repetition = 1.9}), 1);  // 2 / 1.9 > 1
  assert_int_equal(draw_after((SampleOptions){.repetition = 2.1}), 4);  // 2 / 2.1 < 1
  const SampleBias no[] = {{1, -100}}, and_2[] = {{1, -100}, {2, 2.75f}};
  SampleOptions o = {.bias = no, .biases = 1};
  assert_int_equal(draw_after(o), 3);
  o.presence = 0.9; // 3 has 1.1, more than 4
  assert_int_equal(draw_after(o), 3);
  o.presence = 1.1;
  assert_int_equal(draw_after(o), 4);
  o.presence = 0;
  o.frequency = 0.45; // twice
  assert_int_equal(draw_after(o), 3);
  o.frequency = 0.55;
  assert_int_equal(draw_after(o), 4);
  o = (SampleOptions){.bias = and_2, .biases = 2, .frequency = 0.35}; // 3 has 1.3, 2 has 1.4
  assert_int_equal(draw_after(o), 2);
  o.repetition = 1.5; // then 3 has 0.63, and 2 0.82, which is less than 4 has
  assert_int_equal(draw_after(o), 4);
}

// A large vocabulary: cuts by top-p keep what sorting all would keep.
static void test_large(void **state) {
  enum { MANY = 5000 };
  static float x[MANY], sorted[MANY];
  SampleScratch scratch;
  sample_scratch_create(&scratch, MANY);
  for (int i = 0; i < MANY; i++) sorted[i] = x[i] = (float)((i * 2654435761u >> 8) % 10000) / 500;
  for (double p = 0.1; p < 1; p += 0.2) {
    double total = 0, kept = 0, floor = 20;
    for (int i = 0; i < MANY; i++) total += exp(x[i] - 20);
    while (kept < p * total * (1 - 1e-6)) { // by levels of 1 / 500
      for (int i = 0; i < MANY; i++)
        if (fabs(x[i] - floor) < 1e-4) kept += exp(x[i] - 20);
      floor -= 0.002;
    }
    double least = 20;
    for (int64_t at = 0; at < 3000; at++) {
      int32_t id = sample_token(x, NULL, &(SampleOptions){.temperature = 1, .top_p = p}, &(SampleText){.count = at},
                                &scratch);
      least = fmin(least, x[id]);
    }
    assert_true(least > floor && least < floor + 0.5);
  }
  assert_memory_equal(x, sorted, sizeof x);
  sample_scratch_destroy(&scratch);
}

// The best of parts of a vocabulary, taken together in any order, is what sample_token draws at temperature 0; `all`
// makes it look at one id after the other.
static void check_best_in(const float *x, int n, SampleRange range) {
  uint8_t allowed[200] = {0};
  SampleScratch scratch;
  sample_scratch_create(&scratch, n);
  memset(allowed + range.first, 1, (size_t)(range.end - range.first));
  const SampleOptions o = {0};
  const SampleText text = {0};
  int32_t id = sample_token(x, allowed, &o, &text, &scratch);
  if (range.end - range.first == n) assert_int_equal(sample_token(x, NULL, &o, &text, &scratch), id);
  for (int cut = 0; cut <= n; cut++) {
    SampleBest low = sample_best(x, cut, 0, range), high = sample_best(x + cut, n - cut, cut, range);
    assert_int_equal(sample_better(low, high).id, id);
    assert_int_equal(sample_better(high, low).id, id);
    if (id >= 0) assert_true(sample_better(low, high).value == x[id]);
  }
  sample_scratch_destroy(&scratch);
}

static void check_best(const float *x, int n) {
  for (int end = 0; end <= n; end += end % 2 ? 7 : 4) check_best_in(x, n, (SampleRange){end / 3, end});
  check_best_in(x, n, (SampleRange){0, n});
}

static void test_best_of_parts(void **state) {
  enum { MANY = 67 };
  float x[MANY];
  for (int round = 0; round < 40; round++) {
    const unsigned values = round % 2 ? 9 : 4000;
    for (unsigned i = 0; i < MANY; i++) x[i] = (float)(((unsigned)round * 131 + i * 2654435761u) / 128 % values) - 5;
    check_best(x, MANY);
    x[round] = INFINITY;
    x[(round + 31) % MANY] = -INFINITY;
    check_best(x, MANY);
    x[(round * 7 + 3) % MANY] = NAN;
    check_best(x, MANY);
  }
  for (int i = 0; i < MANY; i++) x[i] = i % 2 ? -0.0f : 0;
  check_best(x, MANY);
  for (int i = 0; i < MANY; i++) x[i] = -INFINITY;
  check_best(x, MANY);
  assert_true(sample_takes_best(&(SampleOptions){.top_k = 4, .top_p = 0.5, .repetition = 1}));
  assert_false(sample_takes_best(&(SampleOptions){.temperature = 0.1}));
  assert_false(sample_takes_best(&(SampleOptions){.repetition = 1.1}));
  assert_false(sample_takes_best(&(SampleOptions){.presence = -1}));
  assert_false(sample_takes_best(&(SampleOptions){.frequency = 1}));
  assert_false(sample_takes_best(&(SampleOptions){.bias = &(SampleBias){1, 1}, .biases = 1}));
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
                                     cmocka_unit_test(test_cuts), cmocka_unit_test(test_min_p),
                                     cmocka_unit_test(test_penalties), cmocka_unit_test(test_large),
                                     cmocka_unit_test(test_seeds), cmocka_unit_test(test_best_of_parts),
                                     cmocka_unit_test(test_broken_logits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
