// A model with experts: whatever cuts samples, positions, layers, storage or the experts' inside gives one rank's
// losses, norms, gradients, parameters and moments. Dropout and ragged documents are on.
#include "corpora.h"
#include "compare.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static const ParityCase layouts[] = {
    {.name = "micro 2", .micro = 2},
    {.name = "micro 5, uneven", .micro = 5},
    {.name = "reference", .reference = 1},
    {.name = "recompute selective", .recompute = RECOMPUTE_SELECTIVE},
    {.name = "recompute full", .recompute = RECOMPUTE_FULL},
    {.name = "dp 2", .dp = 2},
    {.name = "dp 3, uneven", .dp = 3, .micro = 3},
    {.name = "dp 4 zero 1", .dp = 4, .zero = 1},
    {.name = "dp 2 zero 2", .dp = 2, .zero = 2},
    {.name = "dp 4 zero 3", .dp = 4, .zero = 3, .micro = 2},
    {.name = "pp 2 1f1b", .pp = 2, .micro = 2},
    {.name = "pp 2 zb-h1", .pp = 2, .micro = 2, .schedule = "zb-h1"},
    {.name = "pp 2 interleaved", .pp = 2, .micro = 4, .schedule = "interleaved"},
    {.name = "cp 2", .cp = 2},
    {.name = "cp 2 ring", .cp = 2, .settings = "parallel.context=ring"},
    {.name = "tp 2", .tp = 2},
    {.name = "tp 2 sequence", .tp = 2, .sequence = 1},
    {.name = "tp 4", .tp = 4},
    {.name = "tp 2 sequence, recompute full", .tp = 2, .sequence = 1, .recompute = RECOMPUTE_FULL},
    {.name = "2 x 2 x 2 zero 3 sequence", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 3, .sequence = 1},
    {.name = "dp 2 cp 2 tp 2 zero 2", .dp = 2, .cp = 2, .tp = 2, .zero = 2, .sequence = 1},
};

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, CORPUS_RAGGED), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

static void compare(Dtype precision) {
  ParityCase base = {.name = "one rank", .model = "experts", .dp = 1, .pp = 1, .tp = 1, .micro = 16,
                     .precision = precision, .steps = parity_steps(3), .seq = 16,
                     .more_settings = precision == DTYPE_F64 ? NULL : PARITY_SMOOTH};
  ParityResult one, other;
  int bad = 0;
  run(&base, &one);
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    ParityCase c = layouts[i];
    if (!parity_wanted(&c)) continue;
    if (!c.dp) c.dp = 1;
    if (!c.tp) c.tp = 1;
    if (!c.pp) c.pp = 1;
    if (!c.micro) c.micro = 4;
    c.model = base.model;
    c.seq = base.seq;
    c.precision = precision;
    c.steps = base.steps;
    c.more_settings = base.more_settings;
    run(&c, &other);
    ParityTolerance t = parity_tolerance(&c, &one);
    ParityDifference d = parity_compare(&other, &one, &t);
    bad += parity_report(&c, &d, &t, 1);
    parity_free(&other);
  }
  parity_free(&one);
  assert_int_equal(bad, 0);
}

static void fp64(void **state) { compare(DTYPE_F64); }
static void fp32(void **state) { compare(DTYPE_F32); }

// What lies behind the rows that are there is poisoned too: nobody reads it.
static void chaos(void **state) {
  setenv("PLAIT_CHAOS", "3", 1);
  compare(DTYPE_F64);
  unsetenv("PLAIT_CHAOS");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fp64), cmocka_unit_test(fp32), cmocka_unit_test(chaos)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
