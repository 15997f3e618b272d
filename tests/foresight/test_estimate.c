// tier 1; rooms machine; numbers
// What a long run is told, at its start and where it resumes; the measured peak of processes that measure together.
#include "base/file.h"
#include "setup/setup.h"
#include "foresight/estimate.h"
#include "foresight/peak.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// What a run of two days says that has 10000 steps left after `done`.
static char *warning(int64_t done) {
  Recipe recipe;
  Error error = {0};
  const char *text = "model: {config: /m.json}\ndata: {train: /t}\nrun: {dir: /r}\nschedule: {steps: 100000}\n"
                     "batch: {global: 8}\nprecision: auto\n";
  assert_int_equal(recipe_parse("r.yaml", text, strlen(text), "/", 0, NULL, &recipe, &error), PLAIT_OK);
  ModelConfig config = {.layers = 1, .embed = 8, .heads = 1, .vocab = 8};
  const Estimate e = {.run_seconds = 2 * 86400, .tokens_per_s = 10};
  char *said = NULL;
  size_t size;
  FILE *out = open_memstream(&said, &size);
  estimate_warn(&recipe, &config, &e, 0, done, 10000, out);
  fclose(out);
  recipe_free(&recipe);
  return said;
}

static void test_steps(void **state) {
  char *first = warning(0), *later = warning(90000);
  assert_non_null(strstr(first, "fewer steps: schedule.steps: 5000 (not 10000) "));
  assert_non_null(strstr(first, "a smaller model: "));
  assert_non_null(strstr(later, "fewer steps: schedule.steps: 95000 (not 100000) "));
  assert_null(strstr(later, "a smaller model: "));
  free(first);
  free(later);
}

static double speed; // of the device below

static double measured(const Device *device, Dtype dtype, Team *team) { return speed; }

// What one process measured alone says nothing about several at once, and the other way round.
static void test_peak_together(void **state) {
  char folder[] = "/tmp/plait-peak-XXXXXX";
  assert_non_null(mkdtemp(folder));
  setenv("XDG_CACHE_HOME", folder, 1);
  const Device device = {.name = "odd", .peak_flops = measured};
  speed = 100;
  assert_true(peak_flops(&device, DTYPE_F32, 1, 1) == 100);
  speed = 40;
  assert_true(peak_flops_again(&device, DTYPE_F32, 1, 4) == 40);
  assert_true(peak_flops_again(&device, DTYPE_F32, 1, 1) == 100); // the faster of the two
  speed = 50;
  assert_true(peak_flops(&device, DTYPE_F32, 1, 4) == 40); // remembered
  assert_true(peak_flops_again(&device, DTYPE_F32, 1, 4) == 50);
  folder_remove(folder, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_peak_together)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
