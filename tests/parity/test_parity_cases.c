// tier 2 3; numbers
// Parity of layouts that are not in the matrix (cases.def): one rank's losses, norms, gradients, parameters and
// moments, and so an evaluation. Dropout and ragged documents are on. In tier 2 each case of a test of several models
// is with every second of them.
#include "corpora.h"
#include "one_rank.h"
#include "tier.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

// A row of the table: a test, or a case of the test before it.
typedef struct Row {
  const char *test, *models, *name, *settings;
  Dtype precision;
  int dp, cp, tp, pp, micro;
  int seq, steps, reference;
  CorpusKind corpus;
  const char *chaos; // a seed for PLAIT_CHAOS: memory after the rows that are there is poisoned too
} Row;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const Row rows[] = {
#define PARITY_TEST(id, of, ...)                                                                                       \
  {.test = #id, .models = of, .precision = DTYPE_F64, .seq = 16, .steps = 3, .corpus = CORPUS_RAGGED, ##__VA_ARGS__},
#define PARITY_CASE(...) PARITY_CASE_(__VA_ARGS__)
#define PARITY_CASE_(id, DP, CP, TP, PP, MICRO, keys)                                                                  \
  {.name = id, .dp = DP, .cp = CP, .tp = TP, .pp = PP, .micro = MICRO, .settings = keys},
#include "cases.def"
};
#pragma GCC diagnostic pop
enum { ROWS = sizeof rows / sizeof *rows };

static int ran; // cases

static int differs(const Row *test, const char *model, const Row *row) {
  ParityCase c = {.name = row->name,
                  .model = model,
                  .dp = row->dp,
                  .cp = row->cp,
                  .tp = row->tp,
                  .pp = row->pp,
                  .micro = row->micro,
                  .precision = test->precision,
                  .seq = test->seq,
                  .steps = parity_steps(test->steps),
                  .reference = test->reference,
                  .settings = row->settings,
                  .more_settings = test->precision == DTYPE_F64 ? NULL : PARITY_SMOOTH};
  if (!parity_wanted(&c)) return 0;
  ran++;
  return one_rank_differs(&c, corpus_for(model, test->corpus), NULL);
}

static void cases(void **state) {
  const Row *test = *state;
  char models[128];
  int bad = 0, k = 0;
  const int all = test_tier() > 2 || !strchr(test->models, ',');
  if (test->chaos) setenv("PLAIT_CHAOS", test->chaos, 1);
  assert_true(snprintf(models, sizeof models, "%s", test->models) < (int)sizeof models);
  for (char *next = models, *model; (model = strtok_r(next, ",", &next)); k++) {
    model += strspn(model, " ");
    for (const Row *row = test + 1; row < rows + ROWS && !row->test; row++)
      if (all || (row - test - 1 + k) % 2 == 0) bad += differs(test, model, row);
  }
  if (test->chaos) unsetenv("PLAIT_CHAOS");
  one_rank_forget();
  assert_int_equal(bad, 0);
}

// The narrow type against the wide one: what fp32 computes is what fp64 computes.
static void fp32_against_fp64(void **state) {
  static const char *const models[] = {"gpt", "gpt untied", "llama", "llama tied"};
  int bad = 0;
  for (int i = 0; i < 4; i++) {
    ParityCase wide = {.name = "against fp64", .model = models[i], .precision = DTYPE_F64, .steps = parity_steps(20),
                       .more_settings = PARITY_SMOOTH},
               narrow = wide;
    narrow.precision = DTYPE_F32;
    const char *corpus = corpus_for(models[i], CORPUS_RAGGED);
    const ParityResult *a = one_rank_run(&narrow, corpus, NULL), *b = one_rank_run(&wide, corpus, NULL);
    assert_true(b->loss[0] > 1 && isfinite(b->loss[0]) && b->norm[0] > 0 && b->tensors[DUMP_GRADIENT] > 10);
    if (b->steps > 1) assert_true(b->loss[b->steps - 1] != b->loss[0]); // it learns
    ParityTolerance t = parity_tolerance(&narrow, b);
    ParityDifference d = parity_compare(a, b, &t);
    bad += parity_report(&narrow, &d, &t, 1);
  }
  one_rank_forget();
  assert_int_equal(bad, 0);
}

int main(void) {
  struct CMUnitTest tests[ROWS + 1] = {cmocka_unit_test(fp32_against_fp64)};
  int count = 1;
  for (int i = 0; i < ROWS; i++)
    if (rows[i].test) tests[count++] = (struct CMUnitTest){rows[i].test, cases, NULL, NULL, (void *)&rows[i]};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  int failed = cmocka_run_group_tests(tests, corpora_make, corpora_remove); // what has no name is passed over
  if (!failed && !ran && getenv("PARITY_ONLY")) return puts("PARITY_ONLY names no case of these tests"), 1;
  return failed;
}
