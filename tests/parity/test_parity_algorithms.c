// Context parallelism by all_to_all and in rings (parallel.context), with all else that divides something: one rank's
// losses, norms, gradients, parameters and moments; and so an evaluation. Dropout and ragged documents are on.
#include "corpora.h"
#include "compare.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define CASE(text, DP, CP, TP, PP, MICRO, ...)                                                                         \
  {.name = text, .dp = DP, .cp = CP, .tp = TP, .pp = PP, .micro = MICRO, __VA_ARGS__}

// What every model with 4 heads runs, of 16 positions. The first of them are without tp.
enum { WITHOUT_TP = 9 };
static const ParityCase four_heads[] = {
    CASE("cp 2", 1, 2, 1, 1, 8, .seq = 0),
    CASE("cp 4", 1, 4, 1, 1, 16, .seq = 0),
    CASE("cp 2, micro 4", 1, 2, 1, 1, 4, .seq = 0),
    CASE("cp 2 zero 1", 1, 2, 1, 1, 8, .zero = 1),
    CASE("dp 2 cp 2", 2, 2, 1, 1, 4, .seq = 0),
    CASE("dp 2 cp 2 zero 2", 2, 2, 1, 1, 4, .zero = 2),
    CASE("dp 2 cp 4 zero 3, recompute full", 2, 4, 1, 1, 8, .zero = 3, .recompute = RECOMPUTE_FULL),
    CASE("dp 4 cp 2 hybrid, uneven", 4, 2, 1, 1, 3, .zero = 3, .more_settings = "parallel.shard_group=2"),
    CASE("dp 2 cp 2 unsplit", 2, 2, 1, 1, 8, .zero = 3, .more_settings = "parallel.unsplit_tensors=true"),
    CASE("cp 2 tp 2", 1, 2, 2, 1, 8, .seq = 0),
    CASE("cp 2 tp 2 sequence", 1, 2, 2, 1, 8, .sequence = 1),
    CASE("2 x 2 x 2 x 2 zero 2 sequence, recompute selective", 2, 2, 2, 2, 2, .zero = 2, .sequence = 1,
         .recompute = RECOMPUTE_SELECTIVE),
    CASE("cp 2 pp 2 interleaved, buckets off", 1, 2, 1, 2, 2, .schedule = "interleaved",
         .more_settings = "parallel.bucket_mb=0"),
    CASE("cp 2, update in backward", 1, 2, 1, 1, 16, .zero = 3,
         .more_settings = "parallel.update=in_backward optimizer.clip=0 run.non_finite=stop"),
};
// Of 18 positions: models with 6 heads, of 6, of 3 and of 2 key and value heads.
static const ParityCase six_heads[] = {
    CASE("cp 3", 1, 3, 1, 1, 8, .seq = 18),
    CASE("dp 2 cp 3 zero 3", 2, 3, 1, 1, 8, .seq = 18, .zero = 3),
    CASE("cp 3 tp 2 sequence", 1, 3, 2, 1, 4, .seq = 18, .sequence = 1),
};

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, CORPUS_RAGGED), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

static int compare(const char *model, Dtype precision, const char *settings, const ParityCase *cases, size_t count) {
  int seq = cases[0].seq ? cases[0].seq : 16, bad = 0;
  const char *smooth = precision == DTYPE_F64 ? "" : PARITY_SMOOTH;
  ParityCase base = {.name = "one rank", .model = model, .dp = 1, .pp = 1, .tp = 1, .micro = 16, .seq = seq,
                     .precision = precision, .steps = parity_steps(6), .more_settings = smooth};
  ParityResult one, other;
  run(&base, &one);
  for (size_t i = 0; i < count; i++) {
    ParityCase c = cases[i];
    char more[256];
    if (!parity_wanted(&c)) continue;
    snprintf(more, sizeof more, "%s %s", c.more_settings ? c.more_settings : "", smooth);
    c.model = model;
    c.settings = settings;
    c.precision = precision;
    c.seq = seq;
    c.steps = base.steps;
    c.more_settings = more;
    run(&c, &other);
    ParityTolerance t = parity_tolerance(&c, &one);
    ParityDifference d = parity_compare(&other, &one, &t);
    bad += parity_report(&c, &d, &t, 1);
    parity_free(&other);
  }
  parity_free(&one);
  return bad;
}

// Rings of two or more groups of two ranks that exchange positions for heads.
static const ParityCase groups[] = {
    CASE("cp 4", 1, 4, 1, 1, 8, .seq = 0),
    CASE("dp 2 cp 4 zero 3, recompute full", 2, 4, 1, 1, 4, .zero = 3, .recompute = RECOMPUTE_FULL),
    CASE("cp 8, micro 3", 1, 8, 1, 1, 3, .zero = 1),
    CASE("cp 4 tp 2 sequence", 1, 4, 2, 1, 8, .sequence = 1),
    CASE("dp 3 cp 4 pp 2 zero 2, uneven", 3, 4, 1, 2, 2, .zero = 2),
};

#define ULYSSES "parallel.context=ulysses"
#define RING "parallel.context=ring"
#define GROUPS RING " parallel.ulysses=2"
#define ALL(cases) cases, sizeof cases / sizeof *cases
static int in_fp64(const char *model, const char *settings, const ParityCase *cases, size_t count) {
  return compare(model, DTYPE_F64, settings, cases, count);
}
static void gpt_fp64(void **state) { assert_int_equal(in_fp64("gpt", ULYSSES, ALL(four_heads)), 0); }
// Two key and value heads: beyond two ranks they are shared.
static void llama_fp64(void **state) { assert_int_equal(in_fp64("llama tied", ULYSSES, ALL(four_heads)), 0); }
static void one_key_head(void **state) {
  assert_int_equal(in_fp64("llama one", ULYSSES, four_heads, WITHOUT_TP), 0);
  assert_int_equal(in_fp64("llama one", GROUPS, groups, 3), 0);
}
static void six_fp64(void **state) {
  assert_int_equal(in_fp64("gpt 3", ULYSSES, ALL(six_heads)) + in_fp64("llama 3", ULYSSES, six_heads, 2) +
                       in_fp64("llama tied 3", ULYSSES, ALL(six_heads)),
                   0);
}
static void ring_fp64(void **state) {
  assert_int_equal(in_fp64("gpt", RING, ALL(four_heads)) + in_fp64("llama tied", RING, ALL(four_heads)), 0);
}
static void groups_fp64(void **state) {
  assert_int_equal(in_fp64("gpt", GROUPS, ALL(groups)) + in_fp64("llama", GROUPS, ALL(groups)), 0);
}
static void narrow(void **state) {
  static const Dtype precisions[] = {DTYPE_F32, DTYPE_BF16};
  for (int i = 0; i < 2; i++)
    assert_int_equal(compare("llama", precisions[i], ULYSSES, ALL(four_heads)) +
                         compare("llama", precisions[i], GROUPS, ALL(groups)),
                     0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt_fp64),     cmocka_unit_test(llama_fp64),
                                     cmocka_unit_test(one_key_head), cmocka_unit_test(six_fp64),
                                     cmocka_unit_test(ring_fp64),    cmocka_unit_test(groups_fp64),
                                     cmocka_unit_test(narrow)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
