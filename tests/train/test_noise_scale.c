// tier 1; numbers
// The noise scale: exact where norms are as the theory has them, a mean over measurements, and a sentence for people.
#include "train/noise_scale.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// Norms of gradients of which the mean has the square `signal`, and a token's the variance `noise`.
static void add(NoiseScale *n, double signal, double noise, double part, double whole) {
  noise_scale_add(n, part, sqrt(signal + noise / part), whole, sqrt(signal + noise / whole));
}

static void test_exact(void **state) {
  for (int i = 1; i <= 3; i++) {
    NoiseScale n = {0};
    for (int k = 0; k < i; k++) add(&n, 0.25, 1000, 128, 1024);
    assert_float_equal(noise_scale_sequences(&n, 8), 1000 / 0.25 / 128, 1e-9); // a sequence has 128 tokens
    assert_int_equal(n.count, i);
  }
}

static void test_left_out(void **state) {
  NoiseScale n = {0};
  char text[256];
  assert_true(isnan(noise_scale_sequences(&n, 8)));
  assert_false(noise_scale_describe(&n, 8, text, sizeof text));
  noise_scale_add(&n, 0, 0, 1024, 1);
  noise_scale_add(&n, 1024, 1, 1024, 1);
  noise_scale_add(&n, 128, NAN, 1024, 1);
  noise_scale_add(&n, 128, INFINITY, 1024, 1);
  noise_scale_add(&n, 128, 1, 1024, NAN);
  assert_int_equal(n.count, 0);
  noise_scale_add(&n, 128, sqrt(8), 1024, 1); // nothing but noise: the norms fall as the root of the tokens
  assert_true(noise_scale_describe(&n, 8, text, sizeof text));
  assert_non_null(strstr(text, "not known: "));
}

static void assert_says(double noise, const char *expected) {
  NoiseScale n = {0};
  char text[256];
  for (int i = 0; i < 12; i++) add(&n, 1, noise * 128, 128, 1024);
  assert_true(noise_scale_describe(&n, 8, text, sizeof text));
  assert_string_equal(text, expected);
}

static void test_sentences(void **state) {
  assert_says(64,
              "about 64 sequences; with batch.global up to about that (now 8), steps get fewer and tokens hardly more");
  assert_says(9, "about 9 sequences; batch.global 8 is near it, a good balance of steps and tokens");
  assert_says(1, "about 1 sequence; a batch.global near that (now 8) would learn as much from fewer tokens");
  NoiseScale n = {0};
  char text[256];
  add(&n, 1, 128 * 8, 128, 1024);
  noise_scale_describe(&n, 8, text, sizeof text);
  assert_non_null(strstr(text, "; measured only 1 time"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_exact), cmocka_unit_test(test_left_out),
                                     cmocka_unit_test(test_sentences)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
