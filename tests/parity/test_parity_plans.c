// tier 1
// The arena of nearly every Program of the parity matrix is within 1% of the most bytes that are needed at one time. A
// sample of it under ctest; the whole with PARITY_ALL=1. bench_plans --parity lists the others.
#include "matrix.h"
#include "plan_sizes.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static void plans_are_tight(void **state) {
  (void)state;
  const char *all = getenv("PARITY_ALL"), *size = getenv("PARITY_SAMPLE");
  MatrixLayout *layout;
  PlanSizes sizes = {0};
  int count = matrix_layouts(&layout), wanted = count;
  if (!all || !strcmp(all, "0")) wanted = matrix_sample(layout, count, size ? atoi(size) : 60, matrix_seed());
  for (int i = 0; i < wanted; i++) {
    if (!matrix_mine(i)) continue;
    MatrixLeg leg = i % 2 ? MATRIX_BF16 : MATRIX_FP32;
    int model = matrix_model(&layout[i], i % MATRIX_MODELS);
    MatrixLayout l = matrix_fitted(&layout[i], model, leg);
    ParityCase c = matrix_case(&l, model, leg);
    Error error = {0};
    Job *job;
    if (parity_job(&c, &job, &error)) fail_msg("%s: %s", l.name, error.message);
    plan_sizes_of_job(job, l.name, 0, NULL, stdout, &sizes);
    job_destroy(job);
  }
  plan_sizes_print(&sizes, stdout);
  free(layout);
  // The target is 99%; of the whole matrix it is 98.3%, the worst 1.12. A sample has few layouts, whose Programs are
  // alike, so that its share may be some percent lower.
  assert_true(100 * sizes.tight >= 95 * sizes.plans && sizes.worst < 1.15);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plans_are_tight)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
