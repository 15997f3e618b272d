// Shares of a batch: every row once, as few microbatches as can be, ranks that differ by a row at most; the divisible
// case as it always was.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/shares.h"

static void check(int64_t global, int ranks, int64_t micro) {
  Shares s = shares_create(global, ranks, micro);
  int64_t at = 0, most = 0, all = 0;
  for (int m = 0; m < s.microbatches; m++)
    for (int r = 0; r < ranks; r++) {
      int64_t rows = shares_rows(&s, m, r, 1);
      assert_int_equal(shares_first(&s, m, r), at);
      assert_true(rows >= 0 && rows <= micro && rows <= s.bound && shares_rows(&s, m, 0, 1) - rows <= 1);
      if (rows > most) most = rows;
      at += rows;
      all |= rows != s.bound;
    }
  assert_int_equal(at, global);
  assert_int_equal(most, s.bound);
  assert_int_equal(s.even, !all);
  assert_true((int64_t)(s.microbatches - 1) * micro * ranks <
              global); // with one microbatch less a rank would have too many
  for (int r = 0; r < ranks; r++) {
    int64_t rows = shares_rows_before(&s, s.microbatches, r, 1);
    assert_true(rows >= global / ranks - s.microbatches && rows <= (global + ranks - 1) / ranks);
  }
  if (global % (micro * ranks) == 0) {
    assert_true(s.even && s.microbatches == global / (micro * ranks) && s.bound == micro);
    assert_true(shares_idle(&s, 1) == 0);
  }
}

static void every_row_once(void **state) {
  for (int64_t global = 1; global <= 40; global++)
    for (int ranks = 1; ranks <= 9; ranks++)
      for (int64_t micro = 1; micro <= 9; micro++) check(global, ranks, micro);
  check(1000003, 64, 17);
}

static void some_have_none(void **state) {
  Shares s = shares_create(2, 4, 8);
  assert_true(s.microbatches == 1 && s.bound == 1 && !s.even);
  static const int64_t first[] = {0, 1, 2, 2, 2};
  for (int r = 0; r <= 4; r++) assert_int_equal(shares_first(&s, 0, r), first[r]);
  assert_int_equal(shares_rows(&s, 0, 2, 2), 0);
  assert_int_equal(shares_rows_before(&s, 1, 0, 4), 2);
  assert_true(shares_idle(&s, 1) == 0.5 && shares_idle(&s, 2) == 0.5 && shares_idle(&s, 4) == 0);
}

// 64 sequences on 3 ranks, at most 4 each: 22 turns, of which the last is not full.
static void as_little_idle_as_can_be(void **state) {
  Shares s = shares_create(64, 3, 4);
  assert_true(s.microbatches == 6 && s.bound == 4);
  assert_true(shares_idle(&s, 1) > 0.0302 && shares_idle(&s, 1) < 0.0304); // 1 - 64 / 66
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_once), cmocka_unit_test(some_have_none),
                                     cmocka_unit_test(as_little_idle_as_can_be)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
