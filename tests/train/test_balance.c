// tier 1; numbers
// batch.balance: measured: what ranks that differ in speed get, and when it is worth a change; shares in metrics.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "train/balance.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void slower_ranks_get_less(void **state) {
  Shares s = shares_balanced(64, 2, 8, &(Balance){.most = 1.5});
  int rows[2];
  double saved;
  assert_true(balance_decide(&s, (double[]){1.0, 2.0}, 2.1, rows, &saved)); // the second takes twice as long
  assert_true(rows[0] == 43 && rows[1] == 21);
  assert_true(saved > 0.65 && saved < 0.67);
  shares_set(&s, rows);
  assert_false(balance_decide(&s, (double[]){43. / 32, 42. / 32}, 1.4, rows, &saved)); // as good as it can be
  assert_true(balance_decide(&s, (double[]){43. / 32, 21. / 32}, 1.4, rows, &saved)); // the second has caught up
  assert_true(rows[0] == 32 && rows[1] == 32);
}

static void not_for_little(void **state) {
  Shares s = shares_balanced(1000, 2, 8, &(Balance){.most = 1.5});
  int rows[2];
  double saved;
  assert_false(balance_decide(&s, (double[]){1.0, 1.08}, 1.1, rows, &saved)); // 4 % of a step
  assert_true(balance_decide(&s, (double[]){1.0, 1.2}, 1.2, rows, &saved));
  assert_false(balance_decide(&s, (double[]){0.01, 0.02}, 1.0, rows, &saved)); // computing is not what takes the time
  assert_false(balance_decide(&s, (double[]){0, 0}, 1.0, rows, &saved));
}

// A rank without sequences is not known to be fast or slow; nobody gets more than there is memory for.
static void what_is_not_known(void **state) {
  Shares s = shares_balanced(12, 3, 4, &(Balance){.most = 2});
  int rows[3];
  double saved;
  shares_set(&s, (int[]){8, 4, 0});
  assert_true(balance_decide(&s, (double[]){8, 4, 0}, 8, rows, &saved));
  assert_true(rows[0] == 4 && rows[1] == 4 && rows[2] == 4);
  assert_true(balance_decide(&s, (double[]){0.1, 40, 0}, 41, rows, &saved));
  assert_true(rows[0] == 8 && rows[0] + rows[1] + rows[2] == 12 && rows[1] >= 1);
}

static void shares_in_metrics(void **state) {
  char path[] = "/tmp/plait-balance-XXXXXX";
  Error error = {0};
  Metrics m;
  MetricsLists lists, again;
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  assert_int_equal(metrics_open(&m, path, &error), 0);
  for (int step = 1; step < 30; step++) {
    metrics_begin(&m);
    metrics_integer(&m, "step", step);
    if (step % 10 == 1) metrics_integers(&m, "shares", (int[]){step, 64 - step}, 2);
    else metrics_real(&m, "shares", 1.5); // no list
    assert_int_equal(metrics_end(&m, &error), 0);
  }
  metrics_close(&m);
  assert_int_equal(metrics_truncate_after(path, 20, &error), 0);
  assert_int_equal(metrics_read_lists(path, "shares", &lists, &error), 0);
  assert_true(lists.count == 2 && lists.list[1].step == 11 && lists.list[1].value[1] == 53);
  char *text = metrics_lists_text(&lists);
  metrics_lists_parse(text, &again);
  assert_true(again.count == 2 && again.list[0].step == 1 && again.list[0].count == 2);
  assert_true(again.list[1].value[0] == 11 && again.list[1].value[1] == 53);
  metrics_lists_keep(&again, 1);
  assert_true(again.count == 1 && again.list[0].step == 11 && again.list[0].value[0] == 11);
  metrics_lists_keep(&again, -1);
  assert_int_equal(again.count, 0);
  free(text);
  metrics_lists_free(&lists);
  metrics_lists_free(&again);
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(slower_ranks_get_less), cmocka_unit_test(not_for_little),
                                     cmocka_unit_test(what_is_not_known), cmocka_unit_test(shares_in_metrics)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, NULL, NULL);
}
