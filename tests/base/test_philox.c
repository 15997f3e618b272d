// Philox: the published known answers, keys that differ where they must, uniforms and normals as distributions.
#include "base/philox.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

// "philox4x32 10" of kat_vectors in the authors' Random123 1.14: counter, key, result.
static void known_answers(void **state) {
  const uint32_t answers[3][10] = {
      {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
      {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
      {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0,
       0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
  for (int i = 0; i < 3; i++) {
    const uint32_t *a = answers[i];
    uint32_t out[4];
    philox4x32((PhiloxKey){{a[4], a[5]}}, a[0], a[1], a[2], a[3], out);
    assert_memory_equal(out, a + 6, sizeof out);
  }
}

// FNV-1a's published values, and a key that depends on each of its three parts.
static void names_and_keys(void **state) {
  assert_true(philox_name("") == 0xcbf29ce484222325u);
  assert_true(philox_name("a") == 0xaf63dc4c8601ec8cu);
  assert_true(philox_name("foobar") == 0x85944171f73967e8u);
  PhiloxKey key = philox_key(1, 2, 3), others[] = {philox_key(0, 2, 3), philox_key(1, 3, 3), philox_key(1, 2, 4),
                                                   philox_key(2, 1, 3), philox_key(1, 3, 2)};
  for (int i = 0; i < 5; i++) assert_memory_not_equal(&key, &others[i], sizeof key);
  PhiloxKey again = philox_key(1, 2, 3);
  assert_memory_equal(&key, &again, sizeof key);
}

static void uniforms(void **state) {
  assert_true(philox_uniform(0) == 0);
  assert_true(philox_uniform(~0u) < 1);
  assert_true(philox_uniform(1u << 31) == 0.5);
  // That of the logarithm in Box-Muller must lie in (0, 1] even for the extreme words.
  assert_true(philox_uniform_open(0, 0) > 0);
  assert_true(philox_uniform_open(~0u, ~0u) <= 1);
  assert_true(philox_uniform_open(~0u, 1u << 31) <= 1);
}

static void normals(void **state) {
  PhiloxKey key = philox_key(42, 0, philox_name("wte"));
  enum { N = 200000 };
  double moments[5] = {0}, neighbours = 0, before = 0;
  int beyond = 0;
  for (uint64_t i = 0; i < N; i++) {
    double x = philox_normal(key, i), power = 1;
    assert_true(isfinite(x));
    for (int k = 0; k < 5; k++, power *= x) moments[k] += power / N;
    neighbours += x * before / N;
    beyond += fabs(x) > 1.959964;
    before = x;
  }
  // Within four standard errors, which for the k-th moment are sqrt(E[x^2k] / N).
  assert_true(fabs(moments[1]) < 4 * sqrt(1.0 / N));
  assert_true(fabs(moments[2] - 1) < 4 * sqrt(2.0 / N));
  assert_true(fabs(moments[3]) < 4 * sqrt(15.0 / N));
  assert_true(fabs(moments[4] - 3) < 4 * sqrt(96.0 / N));
  assert_true(fabs(neighbours) < 4 * sqrt(1.0 / N));
  assert_true(fabs(beyond - 0.05 * N) < 4 * sqrt(0.05 * 0.95 * N));
}

// Addressed by a 64-bit index: asked in any order, and indices that agree in their low words differ.
static void indices(void **state) {
  PhiloxKey key = philox_key(7, 0, 0);
  double late = philox_normal(key, (UINT64_C(1) << 40) + 5), early = philox_normal(key, 5);
  assert_true(late != early);
  assert_true(late == philox_normal(key, (UINT64_C(1) << 40) + 5));
  assert_true(philox_normal(key, 4) != early);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(known_answers), cmocka_unit_test(names_and_keys),
                                     cmocka_unit_test(uniforms), cmocka_unit_test(normals), cmocka_unit_test(indices)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
