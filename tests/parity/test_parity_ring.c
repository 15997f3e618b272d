// Ring attention, alone and of groups that exchange positions for heads, with all that ranks divide otherwise, gives
// one rank's losses, norms, gradients, parameters and moments; and so does an evaluation. Dropout and ragged documents
// are on.
#include "corpora.h"
#include "compare.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RING "parallel.context=ring"
#define GROUPS "parallel.context=ring parallel.ulysses=2"

static const ParityCase layouts[] = {
    {.name = "ring 2", .cp = 2, .settings = RING},
    {.name = "ring 3", .cp = 3, .settings = RING},
    {.name = "ring 8", .cp = 8, .settings = RING},
    {.name = "dp 2 ring 2 zero 3, recompute full",
     .dp = 2,
     .cp = 2,
     .zero = 3,
     .recompute = RECOMPUTE_FULL,
     .settings = RING},
    {.name = "dp 3 ring 2, uneven", .dp = 3, .cp = 2, .micro = 3, .settings = RING},
    {.name = "ring 3 tp 2 sequence", .cp = 3, .tp = 2, .sequence = 1, .settings = RING},
    {.name = "ring 2 tp 4, query heads of a group divided", .cp = 2, .tp = 4, .settings = RING},
    {.name = "ring 4 pp 2 interleaved", .cp = 4, .pp = 2, .micro = 4, .schedule = "interleaved", .settings = RING},
    {.name = "ring 2, update in backward",
     .cp = 2,
     .zero = 3,
     .micro = 16,
     .settings = RING " parallel.update=in_backward optimizer.clip=0 run.non_finite=stop"},
    {.name = "ring 2 of 2", .cp = 4, .settings = GROUPS},
    {.name = "ring 3 of 2, tp 2 sequence", .cp = 6, .tp = 2, .sequence = 1, .settings = GROUPS},
    {.name = "ring 2 of 4", .cp = 8, .settings = RING " parallel.ulysses=4"},
    {.name = "dp 2 ring 2 of 2 pp 2 zero 2, recompute selective",
     .dp = 2,
     .cp = 4,
     .pp = 2,
     .zero = 2,
     .micro = 2,
     .recompute = RECOMPUTE_SELECTIVE,
     .settings = GROUPS},
};

static void run(const ParityCase *c, CorpusKind corpus, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, corpus), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

// Those of the cases whose ranks divide so many positions.
static int compare(const char *model, Dtype precision, CorpusKind corpus, int seq) {
  ParityCase base = {.name = "one rank", .model = model, .dp = 1, .pp = 1, .tp = 1, .micro = 16, .seq = seq,
                     .precision = precision, .steps = parity_steps(3),
                     .more_settings = precision == DTYPE_F64 ? NULL : PARITY_SMOOTH};
  ParityResult one, other;
  int bad = 0;
  run(&base, corpus, &one);
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    ParityCase c = layouts[i];
    if (seq % (2 * c.cp * (c.sequence ? c.tp : 1)) || !parity_wanted(&c)) continue;
    if (!c.dp) c.dp = 1;
    if (!c.tp) c.tp = 1;
    if (!c.pp) c.pp = 1;
    if (!c.micro) c.micro = 4;
    c.model = model;
    c.seq = base.seq;
    c.precision = precision;
    c.steps = base.steps;
    c.more_settings = base.more_settings;
    run(&c, corpus, &other);
    ParityTolerance t = parity_tolerance(&c, &one);
    ParityDifference d = parity_compare(&other, &one, &t);
    bad += parity_report(&c, &d, &t, 1);
    parity_free(&other);
  }
  parity_free(&one);
  return bad;
}

static void gpt_fp64(void **state) { assert_int_equal(compare("gpt", DTYPE_F64, CORPUS_RAGGED, 16), 0); }
static void llama_fp64(void **state) { assert_int_equal(compare("llama tied", DTYPE_F64, CORPUS_RAGGED, 48), 0); }
static void whole_documents(void **state) { assert_int_equal(compare("llama", DTYPE_F64, CORPUS_WHOLE, 48), 0); }
static void fp32(void **state) { assert_int_equal(compare("llama", DTYPE_F32, CORPUS_RAGGED, 48), 0); }
static void bf16(void **state) { assert_int_equal(compare("llama", DTYPE_BF16, CORPUS_RAGGED, 48), 0); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt_fp64), cmocka_unit_test(llama_fp64),
                                     cmocka_unit_test(whole_documents), cmocka_unit_test(fp32), cmocka_unit_test(bf16)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
