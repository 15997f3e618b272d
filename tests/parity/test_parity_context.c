// Context parallelism: ranks that divide every sequence, with all else that divides something, give one rank's losses,
// norms, gradients, parameters and moments; and so does an evaluation. Dropout and ragged documents are on.
#include "corpora.h"
#include "compare.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// Of 16 positions; where three ranks divide them, of 18. The first of them are without tp.
enum { WITHOUT_TP = 9 };
static const ParityCase layouts[] = {
    {.name = "cp 2", .dp = 1, .pp = 1, .tp = 1, .micro = 8, .seq = 16, .cp = 2},
    {.name = "cp 4", .dp = 1, .pp = 1, .tp = 1, .micro = 16, .seq = 16, .cp = 4},
    {.name = "cp 2 zero 1", .dp = 1, .pp = 1, .tp = 1, .micro = 8, .seq = 16, .zero = 1, .cp = 2},
    {.name = "dp 2 cp 2", .dp = 2, .pp = 1, .tp = 1, .micro = 4, .seq = 16, .cp = 2},
    {.name = "dp 2 cp 2 zero 2", .dp = 2, .pp = 1, .tp = 1, .micro = 4, .seq = 16, .zero = 2, .cp = 2},
    {.name = "dp 2 cp 2 zero 3, recompute full",
     .dp = 2,
     .pp = 1,
     .tp = 1,
     .micro = 4,
     .seq = 16,
     .zero = 3,
     .recompute = RECOMPUTE_FULL,
     .cp = 2},
    {.name = "dp 2 cp 2 zero 3 in groups of one",
     .dp = 2,
     .pp = 1,
     .tp = 1,
     .micro = 4,
     .seq = 16,
     .zero = 3,
     .cp = 2,
     .settings = "parallel.shard_group=1"},
    {.name = "dp 4 cp 2 zero 3 in groups of two, uneven",
     .dp = 4,
     .pp = 1,
     .tp = 1,
     .micro = 3,
     .seq = 16,
     .zero = 3,
     .cp = 2,
     .settings = "parallel.shard_group=2"},
    {.name = "dp 2 cp 2 zero 3 unsplit",
     .dp = 2,
     .pp = 1,
     .tp = 1,
     .micro = 4,
     .seq = 16,
     .zero = 3,
     .cp = 2,
     .settings = "parallel.unsplit_tensors=true"},
    {.name = "cp 2 tp 2", .dp = 1, .pp = 1, .tp = 2, .micro = 8, .seq = 16, .cp = 2},
    {.name = "cp 2 tp 2 sequence", .dp = 1, .pp = 1, .tp = 2, .micro = 8, .seq = 16, .sequence = 1, .cp = 2},
    {.name = "cp 2 tp 4 sequence", .dp = 1, .pp = 1, .tp = 4, .micro = 8, .seq = 16, .sequence = 1, .cp = 2},
    {.name = "2 x 2 x 2 x 2 zero 2 sequence, recompute selective",
     .dp = 2,
     .pp = 2,
     .tp = 2,
     .micro = 2,
     .seq = 16,
     .zero = 2,
     .sequence = 1,
     .recompute = RECOMPUTE_SELECTIVE,
     .cp = 2},
    {.name = "cp 2 pp 2 interleaved",
     .dp = 1,
     .pp = 2,
     .tp = 1,
     .micro = 2,
     .seq = 16,
     .schedule = "interleaved",
     .cp = 2,
     .settings = "parallel.bucket_mb=0"},
    {.name = "cp 2 update in backward",
     .dp = 1,
     .pp = 1,
     .tp = 1,
     .micro = 16,
     .seq = 16,
     .zero = 3,
     .cp = 2,
     .settings = "parallel.update=in_backward optimizer.clip=0 run.non_finite=stop"},
    {.name = "cp 2 that cuts weights",
     .dp = 1,
     .pp = 1,
     .tp = 1,
     .micro = 16,
     .seq = 16,
     .cp = 2,
     .settings = "layout.seq=[] layout.ffn=[cp] layout.heads=[cp]"},
    {.name = "cp 2 after tp",
     .dp = 1,
     .pp = 1,
     .tp = 2,
     .micro = 16,
     .seq = 16,
     .cp = 2,
     .settings = "layout.seq=[tp,cp]"},
    {.name = "cp 3", .dp = 1, .pp = 1, .tp = 1, .micro = 8, .seq = 18, .cp = 3},
    {.name = "cp 3 zero 3", .dp = 1, .pp = 1, .tp = 1, .micro = 8, .seq = 18, .zero = 3, .cp = 3},
};

// The other algorithms: test_parity_algorithms.c.
#define GATHER "parallel.context=gather"

static void run(const ParityCase *c, CorpusKind corpus, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, corpus), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

// The cases that have so many positions, against one rank.
static int compare_of(const char *model, Dtype precision, CorpusKind corpus, int seq, size_t count) {
  ParityCase base = {.name = "one rank",
                     .model = model,
                     .dp = 1,
                     .pp = 1,
                     .tp = 1,
                     .micro = 16,
                     .seq = seq,
                     .precision = precision,
                     .steps = parity_steps(6),
                     .more_settings = precision == DTYPE_F64 ? GATHER : GATHER " " PARITY_SMOOTH};
  ParityResult one, other;
  int bad = 0;
  run(&base, corpus, &one);
  for (size_t i = 0; i < count; i++) {
    ParityCase c = layouts[i];
    if (c.seq != seq || !parity_wanted(&c)) continue;
    c.model = model;
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

static int compare(const char *model, Dtype precision, CorpusKind corpus) {
  size_t all = sizeof layouts / sizeof *layouts;
  return compare_of(model, precision, corpus, 16, all) + compare_of(model, precision, corpus, 18, all);
}

static void gpt_fp64(void **state) { assert_int_equal(compare("gpt", DTYPE_F64, CORPUS_RAGGED), 0); }
static void llama_fp64(void **state) { assert_int_equal(compare("llama tied", DTYPE_F64, CORPUS_RAGGED), 0); }
static void whole_documents(void **state) { assert_int_equal(compare("llama", DTYPE_F64, CORPUS_WHOLE), 0); }
// Ranks whose parts of the sequences have no target. Where hardly anything is learned, rounding within tp is not small.
static void hardly_a_target(void **state) {
  assert_int_equal(compare_of("gpt untied", DTYPE_F64, CORPUS_SPARSE, 16, WITHOUT_TP), 0);
}
static void fp32(void **state) {
  assert_int_equal(compare("gpt", DTYPE_F32, CORPUS_RAGGED) + compare("llama", DTYPE_F32, CORPUS_RAGGED), 0);
}
static void bf16(void **state) { assert_int_equal(compare("llama", DTYPE_BF16, CORPUS_RAGGED), 0); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt_fp64),        cmocka_unit_test(llama_fp64),
                                     cmocka_unit_test(whole_documents), cmocka_unit_test(hardly_a_target),
                                     cmocka_unit_test(fp32),            cmocka_unit_test(bf16)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
