// tier 2; rooms train machine
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

static const PlaitStrategy *strategy(const PlaitComparison *c, const char *name) {
  for (int i = 0; i < c->strategies; i++)
    if (!strcmp(c->strategy[i].name, name)) return &c->strategy[i];
  fail_msg("there is no %s", name);
  return NULL;
}

// A row of the comparison is what its settings predict.
static void strategies_are_predicted(void **state) {
  PlaitComparison *c;
  PlaitPlan plan;
  PlaitError error = {0};
  if (plait_compare(recipe, 0, NULL, cluster, 4, 0, &c, &error)) fail_msg("%s", error.message);
  assert_true(c->ranks == 4 && c->ranks_in_node == 4 && c->parameters > 1e5 && c->levels == 1);
  assert_string_equal(c->level[0], "nvlink");
  const PlaitStrategy *zero = strategy(c, "ZeRO 2");
  assert_true(!zero->why_not && zero->dp == 4 && zero->zero == 2 && zero->sent_bytes[0] > 0);
  assert_true(zero->parameter_bytes + zero->gradient_bytes + zero->optimizer_bytes + zero->activation_bytes <=
              zero->memory_bytes);
  assert_true(zero->limit && zero->limit_gain > 0);
  assert_non_null(strstr(strategy(c, "HSDP")->why_not, "one node"));
  assert_non_null(strstr(strategy(c, "CPU offload")->why_not, "not built"));
  assert_true(c->advices > 0 && *c->advice[0].text && *c->advice[0].verdict);
  const char *keys[8];
  char settings[256];
  int n = 0;
  snprintf(settings, sizeof settings, "%s", zero->settings);
  for (char *key = strtok(settings, " "); key; key = strtok(NULL, " ")) keys[n++] = key;
  if (plait_predict(recipe, n, keys, cluster, &plan, &error)) fail_msg("%s", error.message);
  assert_true(plan.step_seconds == zero->step_seconds && plan.memory_bytes == zero->memory_bytes);
  plait_comparison_destroy(c);
}

static void what_is_wrong_is_said(void **state) {
  PlaitPlan plan;
  PlaitError error = {0};
  int count;
  assert_int_equal(plait_search(recipe, 0, NULL, cluster, 0, 1, &plan, &count, &error), PLAIT_BAD_INPUT);
  error = (PlaitError){0};
  assert_int_equal(plait_predict(recipe, 0, NULL, "h200-nod", &plan, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "h200-node"));
  PlaitComparison *c;
  assert_int_equal(plait_compare(recipe, 0, NULL, cluster, -1, 1, &c, NULL), PLAIT_BAD_INPUT);
  error = (PlaitError){0};
  assert_int_equal(plait_compare(recipe, 0, NULL, cluster, 9, 1, &c, &error), PLAIT_BAD_INPUT);
  assert_null(c);
  assert_non_null(strstr(error.message, "8 devices"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(found_plans_are_predicted),
                                     cmocka_unit_test(strategies_are_predicted),
                                     cmocka_unit_test(what_is_wrong_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
