// tier 1
// The most tokens of a tick, by what ticks of 1, 2, 4 … tokens take.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "infer/tick_size.h"

enum { SIZES = 11 };

// `fixed` seconds, and 1 for each token.
static int choose(double fixed, int sizes, int decode) {
  double seconds[SIZES];
  for (int i = 0; i < sizes; i++) seconds[i] = fixed + (double)(1 << i);
  return tick_size_choose(seconds, sizes, decode);
}

static void grows_with_what_tokens_share(void **state) {
  assert_int_equal(choose(0, SIZES, 1), 2);   // 2 tokens take 2 times as long as one
  assert_int_equal(choose(8, SIZES, 1), 256); // 1.03 a token there, 1.06 in half of it, 1.008 in the largest
  assert_int_equal(choose(1e6, SIZES, 1), 1024);
  assert_int_equal(choose(1e6, 4, 1), 8); // no larger than what was measured
}

static void grows_to_the_bound_beside_decoding(void **state) {
  assert_int_equal(choose(0, SIZES, 64), 128);
  assert_int_equal(choose(0, SIZES, 100), 256); // 100 tokens have the graph of 128
  assert_int_equal(choose(0, 7, 100), 64);      // as many as were measured
}

static void sizes_have_room(void **state) {
  assert_int_equal(tick_size_of(1), 0);
  assert_int_equal(tick_size_of(8), 3);
  assert_int_equal(tick_size_of(9), 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(grows_with_what_tokens_share),
                                     cmocka_unit_test(grows_to_the_bound_beside_decoding),
                                     cmocka_unit_test(sizes_have_room)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
