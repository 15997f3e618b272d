// Kernels of several ranks on one machine's cores.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "machine/cores.h"
#include <math.h>

static const CoreSeconds kernel = {.alone = 1, .helped = 0.5, .full = 1.25};

// Runs one kernel on each coordinate from `begin` on; fills in when they end.
static void run(const CoresOptions *o, const double *begin, double busy, double *end) {
  Cores *c = cores_create(o);
  int left = 0;
  for (int i = 0; i < o->coordinates; i++) {
    end[i] = begin[i];
    if (begin[i] >= 0) assert_int_equal(cores_run(c, i, &kernel, busy, &end[i]), 0), left++;
  }
  while (left) {
    assert_int_equal(cores_pass(c), 1);
    for (int i = 0; i < o->coordinates; i++)
      if (begin[i] >= 0 && end[i] == begin[i] && cores_run(c, i, &kernel, busy, &end[i])) left--;
  }
  assert_int_equal(cores_pass(c), 0);
  cores_free(c);
}

static void expect(const CoresOptions *o, const double *begin, double busy, double first, double second) {
  double end[2];
  run(o, begin, busy, end);
  if (fabs(end[0] - first) > 1e-9 || fabs(end[1] - second) > 1e-9)
    fail_msg("%g and %g instead of %g and %g", end[0], end[1], first, second);
}

static void ranks_share_the_machine(void **state) {
  CoresOptions o = {.coordinates = 2, .ranks = 1, .threads = 1, .cores = 2};
  expect(&o, (double[]){0, -1}, 0, 1, -1);        // nobody else
  expect(&o, (double[]){0, 0}, 0, 1.25, 1.25);    // both
  expect(&o, (double[]){0, 0.5}, 0, 1.125, 1.625); // the first: half alone, half beside; then the second alone again
}

static void a_rank_that_waits_helps(void **state) {
  CoresOptions o = {.coordinates = 2, .ranks = 1, .threads = 1, .helpers = 1, .cores = 2};
  expect(&o, (double[]){0, -1}, 0, 0.5, -1);
  expect(&o, (double[]){0, 0.25}, 0, 0.875, 1.125); // half helped, half beside the other, half of which is left then
}

static void a_collective_in_flight_takes_cores(void **state) {
  CoresOptions o = {.coordinates = 1, .ranks = 2, .threads = 1, .cores = 2};
  double begin[] = {0}, end[1];
  run(&o, begin, 0.5, end); // at half the rate until 0.5: four threads for two cores
  assert_true(fabs(end[0] - (0.5 + 0.8 * 1.25)) < 1e-9);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_share_the_machine),
                                     cmocka_unit_test(a_rank_that_waits_helps),
                                     cmocka_unit_test(a_collective_in_flight_takes_cores)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
