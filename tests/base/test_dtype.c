// Element types: every fp16 and bf16 value, rounding at every boundary between two of them, loads and stores.
#include "base/dtype.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}

// The value of a fp16 pattern by the definition in IEEE 754, in double, not by the code under test.
static double f16_value(unsigned h) {
  int exponent = h >> 10 & 31, fraction = h & 1023;
  double magnitude = exponent == 0 ? fraction * 0x1p-24 : (1 + fraction / 1024.0) * pow(2, exponent - 15);
  return h & 0x8000 ? -magnitude : magnitude;
}

static void f16_all(void **state) {
  for (unsigned h = 0; h < 0x10000; h++) {
    float f = f16_to_float((uint16_t)h);
    unsigned magnitude = h & 0x7fff;
    if (magnitude > 0x7c00) {
      assert_true(isnan(f) && isnan(f16_to_float(f16_from_float(f))));
      continue;
    }
    if (magnitude == 0x7c00) assert_true(isinf(f));
    else assert_true((double)f == f16_value(h));
    assert_int_equal(!!signbit(f), h >> 15); // -0 too
    assert_int_equal(f16_from_float(f), h);
  }
}

// Halfway between two neighbours goes to the even one; the next floats beside it go to the nearer one.
static void f16_rounding(void **state) {
  for (unsigned h = 0; h < 0x7bff; h++) {
    float low = f16_to_float((uint16_t)h), high = f16_to_float((uint16_t)(h + 1)), middle = (low + high) / 2;
    unsigned even = h % 2 ? h + 1 : h;
    for (unsigned sign = 0; sign < 2; sign++) {
      float s = sign ? -1 : 1;
      unsigned bit = sign << 15;
      assert_int_equal(f16_from_float(s * middle), even | bit);
      assert_int_equal(f16_from_float(s * nextafterf(middle, 0)), h | bit);
      assert_int_equal(f16_from_float(s * nextafterf(middle, INFINITY)), (h + 1) | bit);
    }
  }
  assert_int_equal(f16_from_float(nextafterf(65520, 0)), 0x7bff); // the largest finite value …
  assert_int_equal(f16_from_float(65520), 0x7c00);                // … and where infinity begins
  assert_int_equal(f16_from_float(-3e38f), 0xfc00);
  assert_int_equal(f16_from_float(1e-30f), 0);
  assert_int_equal(f16_from_float(-1e-30f), 0x8000);
}

static void bf16_all(void **state) {
  for (unsigned h = 0; h < 0x10000; h++) {
    float f = bf16_to_float((uint16_t)h);
    assert_int_equal(bits_of(f), h << 16);
    if (isnan(f)) assert_true(isnan(bf16_to_float(bf16_from_float(f))));
    else assert_int_equal(bf16_from_float(f), h);
  }
  float payload; // a NaN whose set bits all lie in the half that bf16 drops must not become infinity
  memcpy(&payload, &(uint32_t){0x7f800001}, 4);
  assert_true(isnan(bf16_to_float(bf16_from_float(payload))));
}

static void bf16_rounding(void **state) {
  for (uint32_t h = 0; h < 0x7f80; h++) { // up to the boundary between the largest finite value and infinity
    uint32_t even = h % 2 ? h + 1 : h;
    for (uint32_t sign = 0; sign <= 0x80000000u; sign += 0x80000000u) {
      const uint32_t middle = sign | h << 16 | 0x8000;
      float exact, below, above;
      memcpy(&exact, &middle, 4);
      memcpy(&below, &(uint32_t){middle - 1}, 4);
      memcpy(&above, &(uint32_t){middle + 1}, 4);
      assert_int_equal(bf16_from_float(exact), even | sign >> 16);
      assert_int_equal(bf16_from_float(below), h | sign >> 16);
      assert_int_equal(bf16_from_float(above), (h + 1) | sign >> 16);
      if (sign) break;
    }
  }
}

static void load_and_store(void **state) {
  const double values[] = {0, 1, 2, 100, 200};
  for (int d = 0; d < DTYPE_COUNT; d++) {
    uint64_t memory[8] = {0};
    uint8_t *bytes = (uint8_t *)memory;
    for (int i = 0; i < 5; i++) dtype_store(memory, (Dtype)d, i, values[i]);
    for (int i = 0; i < 5; i++) assert_true(dtype_load(memory, (Dtype)d, i) == values[i]);
    for (size_t i = 5 * dtype_size((Dtype)d); i < sizeof memory; i++) assert_int_equal(bytes[i], 0); // nothing beyond
  }
  float f;
  dtype_store(&f, DTYPE_F32, 0, 0.1);
  assert_true(f == 0.1f);
  int64_t large;
  dtype_store(&large, DTYPE_I64, 0, -0x1p53);
  assert_int_equal(large, -(INT64_C(1) << 53));
}

static void names(void **state) {
  for (int d = 0; d < DTYPE_COUNT; d++) {
    assert_int_equal(dtype_from_name(dtype_name((Dtype)d)), d);
    assert_int_equal(dtype_from_file_name(dtype_file_name((Dtype)d)), d);
  }
  assert_int_equal(dtype_from_name("F32"), -1);
  assert_int_equal(dtype_from_file_name("fp32"), -1);
  assert_int_equal(dtype_size(DTYPE_BF16), 2);
  assert_true(dtype_is_float(DTYPE_F16) && !dtype_is_float(DTYPE_U8));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(f16_all),       cmocka_unit_test(f16_rounding),
                                     cmocka_unit_test(bf16_all),      cmocka_unit_test(bf16_rounding),
                                     cmocka_unit_test(load_and_store), cmocka_unit_test(names)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
