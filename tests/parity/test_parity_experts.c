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
    {.name = "ulysses", .cp = 2, .settings = "parallel.context=ulysses"},
    {.name = "dp 4 hybrid zero 3", .dp = 4, .zero = 3, .settings = "parallel.shard_group=2"},
    {.name = "dp 2 zero 2 unsplit", .dp = 2, .zero = 2, .settings = "parallel.unsplit_tensors=true"},
    {.name = "dp 2 zero 3, update in backward",
     .dp = 2,
     .zero = 3,
     .micro = 8,
     .settings = "parallel.update=in_backward optimizer.clip=0 run.non_finite=stop"},
    {.name = "2d", .tp = 4, .settings = "parallel.tensor=2d parallel.rows=2"},
    {.name = "2d summa", .tp = 4, .settings = "parallel.tensor=2d parallel.rows=2 parallel.summa=true"},
    {.name = "2.5d", .tp = 8, .settings = "parallel.tensor=2.5d parallel.rows=2 parallel.depth=2"},
    {.name = "3d", .tp = 8, .settings = "parallel.tensor=3d parallel.rows=2 parallel.depth=2"},
    {.name = "tp from the samples to the width",
     .dp = 2,
     .tp = 2,
     .settings =
         "layout.batch=[dp,tp] layout.embed=[tp] layout.heads=[] layout.ffn=[] layout.expert_ffn=[] layout.vocab=[]"},
    {.name = "tp from the positions to the width",
     .dp = 2,
     .tp = 2,
     .settings =
         "layout.seq=[tp] layout.embed=[tp] layout.heads=[] layout.ffn=[] layout.expert_ffn=[] layout.vocab=[]"},
    {.name = "dp 2 cp 2 tp 2 zero 2", .dp = 2, .cp = 2, .tp = 2, .zero = 2, .sequence = 1},
};

// Each rank of tp has experts of its own: what these make of a token is a partial sum.
static const ParityCase apart[] = {
    {.name = "tp 2", .tp = 2},
    {.name = "tp 3", .tp = 3, .settings = "layout.heads=[] layout.head_dim=[tp]"},
    {.name = "tp 2, recompute full", .tp = 2, .recompute = RECOMPUTE_FULL},
    {.name = "dp 2 pp 2 tp 2 zero 3", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 3},
    {.name = "dp 3 tp 2 zero 1, uneven", .dp = 3, .tp = 2, .micro = 3, .zero = 1},
};

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, CORPUS_RAGGED), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

static void compare(const char *model, Dtype precision, const ParityCase *cases, size_t count) {
  ParityCase base = {.name = "one rank", .model = model, .dp = 1, .pp = 1, .tp = 1, .micro = 16,
                     .precision = precision, .steps = parity_steps(3), .seq = 16,
                     .more_settings = precision == DTYPE_F64 ? NULL : PARITY_SMOOTH};
  ParityResult one, other;
  int bad = 0;
  run(&base, &one);
  for (size_t i = 0; i < count; i++) {
    ParityCase c = cases[i];
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

static void compare_all(Dtype precision) { compare("experts", precision, layouts, sizeof layouts / sizeof *layouts); }

static void fp64(void **state) { compare_all(DTYPE_F64); }
static void fp32(void **state) { compare_all(DTYPE_F32); }
static void experts_over_tp(void **state) {
  compare("experts apart", DTYPE_F64, apart, sizeof apart / sizeof *apart);
}

// What lies behind the rows that are there is poisoned too: nobody reads it.
static void chaos(void **state) {
  setenv("PLAIT_CHAOS", "3", 1);
  compare_all(DTYPE_F64);
  unsetenv("PLAIT_CHAOS");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fp64), cmocka_unit_test(fp32), cmocka_unit_test(chaos),
                                     cmocka_unit_test(experts_over_tp)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
