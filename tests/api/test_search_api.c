// Predictions and searches through the C library: what a search finds is what its settings predict.
#include "plait/plait.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static const char recipe[] = SOURCE_FOLDER "/recipes/demo.yaml", cluster[] = SOURCE_FOLDER "/clusters/h200-node.yaml";

static void found_plans_are_predicted(void **state) {
  const char *open[] = {"mesh=null", "batch.micro=4", "parallel.recompute=none", "parallel.pipeline=1f1b"};
  PlaitPlan plans[2], again;
  PlaitError error = {0};
  int count;
  if (plait_search(recipe, 4, open, cluster, 4, 2, plans, &count, &error)) fail_msg("%s", error.message);
  assert_int_equal(count, 2);
  assert_true(plans[0].step_seconds <= plans[1].step_seconds && plans[0].memory_bytes <= plans[0].room_bytes);
  const char *keys[32] = {"mesh=null", "batch.micro=4", "parallel.recompute=none", "parallel.pipeline=1f1b"};
  int n = 4;
  for (char *key = strtok(plans[0].settings, " "); key; key = strtok(NULL, " ")) keys[n++] = key;
  if (plait_predict(recipe, n, keys, cluster, &again, &error)) fail_msg("%s", error.message);
  assert_true(again.step_seconds == plans[0].step_seconds);
  assert_true(again.memory_bytes == plans[0].memory_bytes);
}

static void what_is_wrong_is_said(void **state) {
  PlaitPlan plan;
  PlaitError error = {0};
  int count;
  assert_int_equal(plait_search(recipe, 0, NULL, cluster, 0, 1, &plan, &count, &error), PLAIT_BAD_INPUT);
  error = (PlaitError){0};
  assert_int_equal(plait_predict(recipe, 0, NULL, "h200-nod", &plan, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "h200-node"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(found_plans_are_predicted),
                                     cmocka_unit_test(what_is_wrong_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
