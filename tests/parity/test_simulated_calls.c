// tier 1 2; rooms machine
// The Program that is simulated is the Program that runs: the simulator issues the collectives and messages of the
// executor, with their bytes and slots, in every configuration of the matrix. A sample of it under ctest; the whole
// with PARITY_ALL=1, as scripts/parity does.
#include "corpora.h"
#include "matrix.h"
#include "simulated.h"
#include "tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static int hold(const MatrixLayout *layout, int model, MatrixLeg leg) {
  static const char *const kinds[MATRIX_KINDS] = {"single", "pair", "cover", "real"};
  MatrixLayout l = matrix_fitted(layout, matrix_model(layout, model), leg);
  ParityCase c = matrix_case(&l, model, leg);
  if (!parity_wanted(&c)) return 0;
  Error error = {0};
  int wrong = simulated_differs(&c, &error);
  if (wrong) printf("%-12s %s: %s  WRONG\n", c.model, l.name, error.message);
  matrix_record("simulated\t%s\t%s\t%d\t-\t%s\t%s\t%s\n", kinds[l.kind], wrong ? "failed" : "passed",
                matrix_ranks(&l), l.name, c.model, wrong ? error.message : "");
  return wrong != 0;
}

// Every other one in bf16, in which an element of a message is not as long as one of a gradient.
static void simulated(void **state) {
  const char *all = getenv("PARITY_ALL"), *size = getenv("PARITY_SAMPLE");
  MatrixLayout *layout;
  int count = matrix_layouts(&layout), wanted = count, wrong = 0, runs = 0, sample = test_tier() < 2 ? 6 : 30;
  if (!all || !strcmp(all, "0")) wanted = matrix_sample(layout, count, size ? atoi(size) : sample, matrix_seed());
  for (int i = 0; i < wanted; i++) {
    if (!matrix_mine(i)) continue;
    runs++;
    wrong += hold(&layout[i], i % MATRIX_MODELS, i % 2 ? MATRIX_BF16 : MATRIX_FP64);
  }
  printf("simulated: %d of %d layouts, %d not as executed\n", runs, count, wrong);
  free(layout);
  assert_int_equal(wrong, 0);
}

// Schedules and layouts of which a sample may have none.
static void each_kind_of_call(void **state) {
  static const char *const names[] = {
      "dp + tp",      "ZeRO 3 + 1f1b",    "ZeRO 2 + gpipe",    "interleaved + dp",   "2bw + dp",      "pipedream + tp",
      "zb-v + ZeRO 1", "ring + dp",       "ulysses + ZeRO 1",  "experts over dp",    "muon + dp",     "tp 3d + 1f1b",
      "uneven + ZeRO 3", "uneven + tp + sequence", "gradients added locally + ZeRO 2", "whole tensors + ZeRO 3 + 1f1b"};
  int wrong = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i += test_tier() < 2 ? 4 : 1) {
    uint64_t features;
    MatrixMesh mesh = {0};
    if (matrix_parse(names[i], &features, &mesh) || matrix_reason(features, mesh) != MATRIX_IN) {
      printf("%s: no layout\n", names[i]);
      wrong++;
      continue;
    }
    MatrixLayout l = matrix_layout(features, MATRIX_REAL, mesh);
    wrong += hold(&l, (int)i % MATRIX_MODELS, MATRIX_FP64) + hold(&l, (int)i % MATRIX_MODELS, MATRIX_BF16);
  }
  assert_int_equal(wrong, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_kind_of_call), cmocka_unit_test(simulated)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
