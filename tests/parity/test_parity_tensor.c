// Tensor parallelism where sizes do not fit: fewer key and value heads than ranks, vocabularies that do not divide. One
// rank's numbers, and nothing of the padding in them.
#include "corpora.h"
#include "compare.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, CORPUS_RAGGED), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

// The vocabularies are 61 and 53: none divides. The Llamas have 4 query heads on 2 key and value heads, or on 1.
static const ParityCase layouts[] = {
    {.name = "tp 4", .dp = 1, .pp = 1, .tp = 4, .micro = 8},
    {.name = "tp 4 sequence", .dp = 1, .pp = 1, .tp = 4, .micro = 8, .sequence = 1},
    {.name = "tp 2 sequence", .dp = 2, .pp = 1, .tp = 2, .micro = 8, .sequence = 1},
    {.name = "tp 4 zero 1", .dp = 2, .pp = 1, .tp = 4, .micro = 4, .zero = 1},
    {.name = "tp 4 zero 2", .dp = 2, .pp = 1, .tp = 4, .micro = 2, .zero = 2},
    {.name = "tp 4 zero 3 pp 2 sequence", .dp = 2, .pp = 2, .tp = 4, .micro = 2, .zero = 3, .sequence = 1},
    {.name = "tp 4 hybrid", .dp = 4, .pp = 1, .tp = 4, .micro = 2, .zero = 1, .settings = "parallel.shard_group=2"},
    {.name = "tp 4 recompute", .dp = 1, .pp = 2, .tp = 4, .micro = 4, .recompute = RECOMPUTE_FULL},
};

// 2-D, 2.5-D and 3-D tensors, alone.
#define GRID(n, data, ranks, rows, keys, ...)                                                                          \
  {.name = n, .dp = data, .tp = ranks, .pp = 1, .micro = rows, .settings = "parallel.tensor=" keys, __VA_ARGS__}
static const ParityCase grids[] = {
    GRID("2d 2 x 2", 1, 4, 8, "2d"),
    GRID("2d 2 x 1", 1, 2, 8, "2d parallel.rows=2"),
    GRID("2d 1 x 2", 1, 2, 16, "2d"),
    GRID("2d 2 x 4", 1, 8, 8, "2d"),
    GRID("2.5d", 1, 8, 4, "2.5d"),
    GRID("2.5d 2 x 2 x 1", 1, 4, 4, "2.5d parallel.rows=2 parallel.depth=2"),
    GRID("3d", 1, 8, 4, "3d"),
};

// The same with other features. 16 samples do not divide by 6 or 12 data ranks, of which some have none.
static const ParityCase grids_and_more[] = {
    GRID("2d zero 1", 2, 4, 2, "2d", .zero = 1),
    GRID("2d zero 2 pp 2", 2, 4, 2, "2d mesh.pp=2", .zero = 2),
    GRID("2d zero 3 recompute full", 2, 4, 2, "2d", .zero = 3, .recompute = RECOMPUTE_FULL),
    GRID("2d zero 3 kept", 2, 4, 4, "2d parallel.reshard=false", .zero = 3),
    GRID("2d hybrid", 4, 4, 1, "2d parallel.shard_group=2", .zero = 3),
    GRID("2d unsplit", 2, 4, 2, "2d parallel.unsplit_tensors=true", .zero = 3),
    GRID("2d recompute selective", 1, 4, 4, "2d", .recompute = RECOMPUTE_SELECTIVE),
    GRID("2d uneven", 3, 4, 2, "2d"),
    GRID("2d uneven zero 2 pp 2", 3, 4, 1, "2d mesh.pp=2", .zero = 2),
    GRID("2d interleaved", 1, 4, 2, "2d mesh.pp=2 parallel.pipeline=interleaved"),
    GRID("2d embed over tp", 1, 4, 8, "2d layout.embed=[tp] layout.heads=[] layout.ffn=[] layout.vocab=[]"),
    GRID("2d vocab over dp", 2, 4, 4, "2d layout.vocab=[tp,dp]"),
    GRID("2d interior over dp", 2, 4, 2, "2d layout.interior=[dp]"),
    GRID("2d whole width", 1, 4, 4, "2d layout.width=[]"),
    GRID("2d whole weights", 2, 4, 2, "2d layout.embed=[]", .zero = 2),
    GRID("2d words over rows", 2, 4, 2, "2d layout.vocab=[tp_row] layout.embed=[]"),
    GRID("2d buckets off", 2, 4, 4, "2d parallel.bucket_mb=0"),
    GRID("2.5d zero 2 pp 2", 2, 8, 1, "2.5d mesh.pp=2", .zero = 2),
    GRID("2.5d zero 3 recompute full", 2, 8, 2, "2.5d", .zero = 3, .recompute = RECOMPUTE_FULL),
    GRID("2.5d uneven", 3, 8, 1, "2.5d"),
    GRID("3d zero 1 unsplit", 2, 8, 2, "3d parallel.unsplit_tensors=true", .zero = 1),
    GRID("3d zero 2", 2, 8, 1, "3d", .zero = 2),
    GRID("3d zero 3 recompute full pp 2", 2, 8, 1, "3d mesh.pp=2", .zero = 3, .recompute = RECOMPUTE_FULL),
    GRID("3d hybrid", 4, 8, 1, "3d parallel.shard_group=2", .zero = 2),
    GRID("3d uneven", 3, 8, 1, "3d"),
    GRID("3d uneven zero 3", 3, 8, 2, "3d", .zero = 3),
    GRID("3d embed over tp", 1, 8, 4, "3d layout.embed=[tp] layout.heads=[] layout.ffn=[] layout.vocab=[]"),
    GRID("3d interior over depth", 1, 8, 2, "3d layout.interior=[tp_depth]"),
    GRID("2d cp gather", 1, 4, 8, "2d mesh.cp=2 parallel.context=gather"),
    GRID("2d ring zero 3", 2, 4, 4, "2d mesh.cp=2 parallel.context=ring", .zero = 3),
    GRID("2d ulysses", 1, 4, 8, "2d mesh.cp=2 parallel.context=ulysses"),
    GRID("2.5d ring", 1, 8, 4, "2.5d mesh.cp=2 parallel.context=ring"),
    GRID("3d cp gather", 1, 8, 4, "3d mesh.cp=2 parallel.context=gather"),
    GRID("3d ring", 1, 8, 4, "3d mesh.cp=2 parallel.context=ring"),
    GRID("3d ulysses", 1, 8, 4, "3d mesh.cp=2 parallel.context=ulysses"),
    GRID("3d cp uneven zero 2", 3, 8, 1, "3d mesh.cp=2", .zero = 2),
    GRID("3d interleaved", 1, 8, 1, "3d mesh.pp=2 parallel.pipeline=interleaved"),
};

// Three rows or columns.
static const ParityCase grids_of_3[] = {
    GRID("2d 2 x 3", 1, 6, 8, "2d"),
    GRID("2d 3 x 2", 1, 6, 4, "2d parallel.rows=3"),
    GRID("2d 3 x 2 zero 3", 2, 6, 2, "2d parallel.rows=3", .zero = 3),
    GRID("2d 3 x 1, fewer samples than rows", 4, 3, 1, "2d parallel.rows=3"),
};

// Products in steps (SUMMA), alone and with other features.
#define SUMMA(n, data, ranks, rows, keys, ...) GRID(n, data, ranks, rows, keys " parallel.summa=true", __VA_ARGS__)
static const ParityCase summa[] = {
    SUMMA("summa 2 x 2", 1, 4, 8, "2d"),
    SUMMA("summa 2 x 2 no overlap", 1, 4, 8, "2d parallel.overlap=false"),
    SUMMA("summa 2.5d", 1, 8, 4, "2.5d"),
    SUMMA("summa zero 1", 2, 4, 2, "2d", .zero = 1),
    SUMMA("summa zero 2 pp 2", 2, 4, 2, "2d mesh.pp=2", .zero = 2),
    SUMMA("summa zero 3 recompute full", 2, 4, 2, "2d", .zero = 3, .recompute = RECOMPUTE_FULL),
    SUMMA("summa recompute selective", 1, 4, 4, "2d", .recompute = RECOMPUTE_SELECTIVE),
    SUMMA("summa hybrid unsplit", 4, 4, 1, "2d parallel.shard_group=2 parallel.unsplit_tensors=true", .zero = 3),
    SUMMA("summa uneven zero 2 pp 2", 3, 4, 1, "2d mesh.pp=2", .zero = 2),
    SUMMA("summa interleaved", 1, 4, 2, "2d mesh.pp=2 parallel.pipeline=interleaved"),
    SUMMA("summa ring", 1, 4, 8, "2d mesh.cp=2 parallel.context=ring"),
    SUMMA("summa ulysses", 1, 4, 8, "2d mesh.cp=2 parallel.context=ulysses"),
    SUMMA("summa whole width", 1, 4, 4, "2d layout.width=[]"),
    SUMMA("summa interior over dp", 2, 4, 2, "2d layout.interior=[dp]"),
    SUMMA("summa vocab over dp", 2, 4, 4, "2d layout.vocab=[tp,dp]"),
    SUMMA("summa 2.5d zero 2 pp 2", 2, 8, 1, "2.5d mesh.pp=2", .zero = 2),
};

// Of 3 by 3 ranks.
static const ParityCase summa_of_9[] = {
    SUMMA("summa 3 x 3", 1, 9, 4, "2d"),
    SUMMA("summa 3 x 3 zero 3 recompute full", 2, 9, 2, "2d", .zero = 3, .recompute = RECOMPUTE_FULL),
};

// GPT-2's vocabulary does not divide by 2, and so by no even number.
static const ParityCase words[] = {
    {.name = "tp 2", .dp = 1, .pp = 1, .tp = 2, .micro = 16},
    {.name = "tp 4 zero 1", .dp = 2, .pp = 1, .tp = 4, .micro = 8, .zero = 1},
};

// Layouts that nobody would write, but that mean something: the same numbers by other ways.
static const ParityCase written[] = {
    {.name = "data", .dp = 2, .pp = 1, .tp = 2, .micro = 4, .settings = "layout.name=data"},
    {.name = "embed", .dp = 1, .pp = 1, .tp = 2, .micro = 8, .settings = "layout.name=data layout.embed=[tp]"},
    {.name = "embed over dp", .dp = 2, .pp = 1, .tp = 2, .micro = 8, .settings = "layout.embed=[dp]"},
    {.name = "head_dim", .dp = 1, .pp = 1, .tp = 2, .micro = 8, .settings = "layout.name=data layout.head_dim=[tp]"},
    {.name = "batch over both", .dp = 2, .pp = 1, .tp = 2, .micro = 2, .settings = "layout.batch=[dp,tp]"},
    {.name = "batch over both, zero 1",
     .dp = 2,
     .pp = 2,
     .tp = 2,
     .micro = 2,
     .zero = 1,
     .settings = "layout.batch=[dp,tp]"},
    {.name = "batch over both, zero 3",
     .dp = 2,
     .pp = 1,
     .tp = 2,
     .micro = 2,
     .zero = 3,
     .settings = "layout.name=data layout.batch=[dp,tp]"},
    {.name = "batch over tp",
     .dp = 2,
     .pp = 1,
     .tp = 2,
     .micro = 4,
     .zero = 2,
     .settings = "layout.name=data layout.batch=[tp]"},
    {.name = "no batch", .dp = 2, .pp = 1, .tp = 2, .micro = 4, .settings = "layout.batch=[]"},
    {.name = "no batch, zero 2", .dp = 2, .pp = 1, .tp = 2, .micro = 4, .zero = 2, .settings = "layout.batch=[]"},
    {.name = "seq over both", .dp = 2, .pp = 1, .tp = 2, .micro = 4, .settings = "layout.batch=[] layout.seq=[dp,tp]"},
    {.name = "seq alone", .dp = 1, .pp = 2, .tp = 2, .micro = 4, .settings = "layout.name=data layout.seq=[tp]"},
    {.name = "ffn over both", .dp = 2, .pp = 1, .tp = 2, .micro = 4, .settings = "layout.ffn=[dp,tp]"},
    {.name = "ffn over both, zero 3",
     .dp = 2,
     .pp = 1,
     .tp = 2,
     .micro = 4,
     .zero = 3,
     .settings = "layout.ffn=[tp,dp] layout.vocab=[dp]"},
    {.name = "vocab the other way", .dp = 2, .pp = 1, .tp = 2, .micro = 4, .settings = "layout.vocab=[tp,dp]"},
    {.name = "heads over dp", .dp = 2, .pp = 1, .tp = 1, .micro = 4, .settings = "layout.heads=[dp]"},
};

// Of learned positions, which a Llama has none of.
static const ParityCase positions[] = {
    {.name = "position", .dp = 2, .pp = 1, .tp = 2, .micro = 4, .settings = "layout.position=[tp] layout.vocab=[]"},
};

static int compare(const char *model, Dtype precision, const ParityCase *cases, int count) {
  ParityCase one = {.name = "one rank",
                    .model = model,
                    .dp = 1,
                    .pp = 1,
                    .tp = 1,
                    .micro = 16,
                    .precision = precision,
                    .steps = parity_steps(3),
                    .seq = 16,
                    .more_settings = precision == DTYPE_F64 ? NULL : PARITY_SMOOTH};
  ParityResult expected, got;
  int bad = 0;
  run(&one, &expected);
  for (int i = 0; i < count; i++) {
    ParityCase c = cases[i];
    if (!parity_wanted(&c)) continue;
    c.model = model, c.precision = precision, c.steps = one.steps, c.seq = one.seq, c.more_settings = one.more_settings;
    run(&c, &got);
    ParityTolerance t = parity_tolerance(&c, &expected);
    ParityDifference d = parity_compare(&got, &expected, &t);
    const char *initial = parity_first_different(&got, &expected, DUMP_INITIAL);
    if (initial) printf("%s, %s: begins with other bits: %s  WRONG\n", model, c.name, initial);
    bad += parity_report(&c, &d, &t, 1) || initial;
    parity_free(&got);
  }
  parity_free(&expected);
  return bad;
}

#define ALL layouts, sizeof layouts / sizeof *layouts
#define WRITTEN written, sizeof written / sizeof *written
static void written_layouts(void **state) {
  assert_int_equal(compare("gpt", DTYPE_F64, WRITTEN) + compare("llama", DTYPE_F64, WRITTEN) +
                       compare("gpt", DTYPE_F64, positions, 1),
                   0);
}
#define GRIDS(list) list, sizeof list / sizeof *list
static void grids_of_gpt(void **state) {
  assert_int_equal(compare("gpt", DTYPE_F64, GRIDS(grids)) + compare("gpt untied", DTYPE_F64, GRIDS(grids)) +
                       compare("gpt neo", DTYPE_F64, GRIDS(grids)) + compare("gpt 3", DTYPE_F64, GRIDS(grids_of_3)) +
                       compare("gpt untied 3", DTYPE_F64, grids_of_3, 1),
                   0);
}
static void grids_of_llama(void **state) {
  assert_int_equal(compare("llama", DTYPE_F64, GRIDS(grids)) + compare("llama tied", DTYPE_F64, GRIDS(grids)) +
                       compare("llama one", DTYPE_F64, GRIDS(grids)) + compare("qwen2", DTYPE_F64, GRIDS(grids)) +
                       compare("qwen3", DTYPE_F64, GRIDS(grids)) + compare("mistral", DTYPE_F64, GRIDS(grids)) +
                       compare("llama 3", DTYPE_F64, GRIDS(grids_of_3)),
                   0);
}
static void grids_together(void **state) {
  assert_int_equal(compare("gpt", DTYPE_F64, GRIDS(grids_and_more)) +
                       compare("llama", DTYPE_F64, GRIDS(grids_and_more)),
                   0);
}
static void summa_of_gpt(void **state) {
  assert_int_equal(compare("gpt", DTYPE_F64, GRIDS(summa)) + compare("gpt untied", DTYPE_F64, summa, 2) +
                       compare("gpt 3", DTYPE_F64, GRIDS(summa_of_9)),
                   0);
}
static void summa_of_llama(void **state) {
  assert_int_equal(compare("llama", DTYPE_F64, GRIDS(summa)) + compare("llama one", DTYPE_F64, summa, 2) +
                       compare("qwen2", DTYPE_F64, summa, 2) + compare("llama 3", DTYPE_F64, GRIDS(summa_of_9)),
                   0);
}
static void gpt(void **state) {
  assert_int_equal(compare("gpt", DTYPE_F64, ALL) + compare("gpt untied", DTYPE_F64, ALL), 0);
}
static void llama(void **state) {
  assert_int_equal(compare("llama", DTYPE_F64, ALL) + compare("llama tied", DTYPE_F64, ALL), 0);
}
static void one_head(void **state) { assert_int_equal(compare("llama one", DTYPE_F64, ALL), 0); }
static void narrow(void **state) {
  assert_int_equal(compare("llama", DTYPE_F32, ALL) + compare("llama one", DTYPE_F32, ALL), 0);
}
static void words_of_gpt_2(void **state) { assert_int_equal(compare("gpt 50257", DTYPE_F64, words, 2), 0); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt),    cmocka_unit_test(llama),           cmocka_unit_test(one_head),
      cmocka_unit_test(narrow), cmocka_unit_test(written_layouts), cmocka_unit_test(words_of_gpt_2),
      cmocka_unit_test(grids_of_gpt), cmocka_unit_test(grids_of_llama), cmocka_unit_test(grids_together),
      cmocka_unit_test(summa_of_gpt), cmocka_unit_test(summa_of_llama)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
