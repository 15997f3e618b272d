// Shares of a batch: every row once, as few microbatches as can be, ranks that differ by a row at most; the divisible
// case as it always was.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/shares.h"

// Where ranks begin in a microbatch, all at once and one by one.
static void check_begins(const Shares *s) {
  int64_t begins[SHARES_MOST_WEIGHED + 1];
  for (int m = 0; m < s->microbatches; m++) {
    shares_begins(s, m, begins);
    for (int r = 0; r <= s->ranks; r++)
      assert_int_equal(shares_first(s, m, 0) + begins[r], shares_first(s, m, r));
  }
}

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
  check_begins(&s);
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

static void check_weighed(const Shares *s, int64_t micro) {
  int64_t at = 0, rows_of_step[16] = {0};
  for (int m = 0; m < s->microbatches; m++)
    for (int r = 0; r < s->ranks; r++) {
      int64_t rows = shares_rows(s, m, r, 1);
      assert_int_equal(shares_first(s, m, r), at);
      assert_int_equal(shares_rows_before(s, m, r, 1), rows_of_step[r]);
      assert_true(rows >= 0 && rows <= micro && rows <= s->bound);
      assert_true(shares_rows(s, 0, r, 1) - rows <= 1 && shares_rows(s, 0, r, 1) - rows >= 0);
      at += rows;
      rows_of_step[r] += rows;
    }
  check_begins(s);
  assert_int_equal(at, s->global);
  assert_int_equal(shares_first(s, s->microbatches, 0), s->global);
  for (int r = 0; r < s->ranks; r++) assert_int_equal(rows_of_step[r], s->rows[r]);
}

// Every row once, shares as near to the weights as whole rows can be, and as few microbatches as allow it.
static void weighed(void **state) {
  static const int weights[] = {3, 1, 2, 7, 1, 1, 5};
  for (int64_t global = 1; global <= 40; global++)
    for (int ranks = 2; ranks <= 7; ranks++)
      for (int64_t micro = 1; micro <= 9; micro++) {
        Balance balance = {.weight = weights, .count = ranks};
        Shares s = shares_balanced(global, ranks, micro, &balance);
        int sum = 0;
        for (int r = 0; r < ranks; r++) sum += weights[r];
        check_weighed(&s, micro);
        assert_true(!s.even && s.weighed && (int64_t)(s.microbatches - 1) * micro < s.most);
        for (int r = 0; r < ranks; r++) {
          double wanted = (double)global * weights[r] / sum;
          assert_true((s.rows[r] > wanted - 2 - ranks && s.rows[r] < wanted + 1) || s.rows[r] == 1);
          assert_true(s.rows[r] > 0 || global < ranks);
        }
        balance.multiple = 4;
        s = shares_balanced(global, ranks, micro, &balance);
        assert_int_equal(s.microbatches % 4, 0);
        check_weighed(&s, micro);
      }
  Shares s = shares_balanced(16, 2, 4, &(Balance){.weight = weights, .count = 2});
  assert_true(s.rows[0] == 12 && s.rows[1] == 4 && s.microbatches == 3 && s.bound == 4);
  assert_true(shares_idle(&s, 1) > 0.33 && shares_idle(&s, 1) < 0.34 && shares_idle(&s, 2) == 0);
}

// Shares that may change are even at first, and there is room for the most.
static void changing(void **state) {
  Shares s = shares_balanced(64, 2, 8, &(Balance){.most = 1.5});
  assert_true(s.weighed && s.most == 48 && s.microbatches == 6 && s.bound == 8);
  assert_true(s.rows[0] == 32 && s.rows[1] == 32);
  check_weighed(&s, 8);
  shares_set(&s, (int[]){48, 16});
  check_weighed(&s, 8);
  assert_true(s.microbatches == 6 && s.bound == 8 && shares_same(&s, 0, 1));
  int rows[3];
  shares_divide(60, 3, 30, (double[]){8, 1, 1}, rows); // what the first may not have goes to the others
  assert_true(rows[0] == 30 && rows[1] == 15 && rows[2] == 15);
  shares_divide(60, 3, 60, (double[]){1, 0, 0}, rows); // a rank that has none could not be measured
  assert_true(rows[0] == 58 && rows[1] == 1 && rows[2] == 1);
  s = shares_balanced(64, 1, 8, &(Balance){.most = 1.5});
  assert_true(s.even && !s.weighed);
}

// As many microbatches as a pipeline takes, also where ranks are evenly busy.
static void multiples(void **state) {
  Shares s = shares_balanced(20, 3, 4, &(Balance){.multiple = 4});
  assert_true(s.microbatches == 4 && s.bound == 2 && !s.weighed);
  assert_int_equal(shares_first(&s, 4, 0), 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_once), cmocka_unit_test(some_have_none),
                                     cmocka_unit_test(as_little_idle_as_can_be), cmocka_unit_test(weighed),
                                     cmocka_unit_test(changing), cmocka_unit_test(multiples)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
