// tier 2; numbers
// Parity on data that is hard: windows, microbatches, ranks and whole steps without a target, windows of one document,
// and all ways to cut a batch into microbatches.
#include "corpora.h"
#include "one_rank.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

enum { STEPS = 4 };

// Returns one rank's run, until one_rank_forget.
static const ParityResult *compare(const char *model, CorpusKind corpus, int global, const ParityCase *cases,
                                   size_t count) {
  const char *prefix = corpus_for(model, corpus);
  ParityCase c = {.settings = NULL};
  int bad = 0;
  for (size_t i = 0; i < count; i++) {
    c = cases[i];
    c.model = model, c.global = global, c.precision = DTYPE_F64, c.steps = parity_steps(STEPS);
    if (parity_wanted(&c)) bad += one_rank_differs(&c, prefix, NULL);
  }
  assert_int_equal(bad, 0);
  return one_rank_run(&c, prefix, NULL);
}

static const ParityCase layouts[] = {
    {.name = "micro 1", .dp = 1, .pp = 1, .tp = 1, .micro = 1},
    {.name = "dp 2", .dp = 2, .pp = 1, .tp = 1, .micro = 4},
    {.name = "dp 4 zero 1", .dp = 4, .pp = 1, .tp = 1, .micro = 2, .zero = 1},
    {.name = "dp 8", .dp = 8, .pp = 1, .tp = 1, .micro = 2},
    {.name = "dp 8 micro 1", .dp = 8, .pp = 1, .tp = 1, .micro = 1},
    {.name = "tp 2", .dp = 1, .pp = 1, .tp = 2, .micro = 4},
    {.name = "pp 2", .dp = 1, .pp = 2, .tp = 1, .micro = 1},
    {.name = "dp 2 tp 2 pp 2 zero 1", .dp = 2, .pp = 2, .tp = 2, .micro = 1, .zero = 1},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static int64_t targets_in(const Batch *b, int64_t first, int64_t samples) {
  int64_t n = 0;
  for (int64_t i = first * PARITY_SEQ; i < (first + samples) * PARITY_SEQ; i++)
    n += ((int32_t *)batch_input(b, INPUT_TARGETS))[i] >= 0;
  return n;
}

// How many ranks of dp 8 and how many of their microbatches of one sample have no target in the steps that the cases
// run.
static void count_without_target(const char *model, int steps, int *ranks, int *microbatches) {
  Shares shares = shares_create(16, 8, 1);
  *ranks = *microbatches = 0;
  for (int r = 0; r < 8; r++) {
    DataSource source = {corpus_for(model, CORPUS_SPARSE), 1};
    LoaderConfig config = {.sources = &source,
                           .source_count = 1,
                           .seq_len = PARITY_SEQ,
                           .document_mask = 1,
                           .seed = 99,
                           .shares = &shares,
                           .data_rank = r,
                           .prefetch_steps = 1};
    Loader *loader;
    Error error = {0};
    assert_int_equal(loader_open(&config, 0, &loader, &error), PLAIT_OK);
    for (int s = 0; s < steps; s++) {
      Batch *b;
      assert_int_equal(loader_next(loader, &b, NULL, &error), PLAIT_OK);
      *ranks += !targets_in(b, 0, b->samples);
      for (int i = 0; i < b->samples; i++) *microbatches += !targets_in(b, i, 1);
      loader_release(loader, b);
    }
    loader_close(loader);
  }
}

static void ranks_without_target(void **state) {
  static const char *const models[] = {"gpt", "llama"};
  for (int i = 0; i < 2; i++) {
    int ranks, microbatches;
    count_without_target(models[i], parity_steps(STEPS), &ranks, &microbatches);
    assert_true(ranks > 0 && microbatches > ranks);
    const ParityResult *one = compare(models[i], CORPUS_SPARSE, 16, layouts, LAYOUTS);
    for (int s = 0; s < one->steps; s++) assert_true(one->tokens[s] > 0 && one->tokens[s] < 16 * PARITY_SEQ / 2);
  }
}

// Nothing to learn from: loss and norm are 0, nothing becomes a NaN, and the weights only decay.
static void steps_without_target(void **state) {
  const ParityResult *one = compare("gpt", CORPUS_EMPTY, 16, layouts, LAYOUTS);
  for (int s = 0; s < one->steps; s++) assert_true(one->tokens[s] == 0 && one->loss[s] == 0 && one->norm[s] == 0);
  for (int i = 0; i < one->tensors[DUMP_FINAL]; i++)
    for (int64_t k = 0; k < one->tensor[DUMP_FINAL][i].elements; k++)
      assert_true(isfinite(one->tensor[DUMP_FINAL][i].data[k]));
}

static void windows_of_one_document(void **state) {
  static const char *const models[] = {"gpt", "llama"};
  for (int i = 0; i < 2; i++) {
    const ParityResult *one = compare(models[i], CORPUS_WHOLE, 16, layouts, LAYOUTS);
    for (int s = 0; s < one->steps; s++) assert_true(one->tokens[s] > 15 * PARITY_SEQ);
  }
}

// Every size of microbatch from 1 to 8 over two data ranks, in batches that it divides.
static void microbatches(void **state) {
  static const struct {
    int global, micro;
  } cuts[] = {{16, 1}, {16, 2}, {16, 4}, {16, 8}, {12, 3}, {12, 6}, {20, 5}, {28, 7}};
  static const char *const models[] = {"gpt untied", "llama tied"};
  ParityCase c[8];
  for (int i = 0; i < 8; i++)
    c[i] = (ParityCase){.name = "dp 2", .dp = 2, .pp = 1, .tp = 1, .micro = cuts[i].micro, .zero = i % 2};
  for (int m = 0; m < 2; m++)
    for (int i = 0; i < 8; i++) compare(models[m], CORPUS_RAGGED, cuts[i].global, c + i, 1);
}

// Batches that do not divide by the data ranks, or by their microbatches; ranks without any sequence in some
// microbatch, or in the step.
static const ParityCase uneven_layouts[] = {
    {.name = "dp 1", .dp = 1, .pp = 1, .tp = 1, .micro = 3},
    {.name = "dp 3", .dp = 3, .pp = 1, .tp = 1, .micro = 2},
    {.name = "dp 3 zero 1", .dp = 3, .pp = 1, .tp = 1, .micro = 5, .zero = 1},
    {.name = "dp 2 zero 2", .dp = 2, .pp = 1, .tp = 1, .micro = 2, .zero = 2},
    {.name = "dp 4 zero 3", .dp = 4, .pp = 1, .tp = 1, .micro = 1, .zero = 3, .recompute = RECOMPUTE_FULL},
    {.name = "dp 5", .dp = 5, .pp = 1, .tp = 1, .micro = 1},
    {.name = "dp 16 zero 1", .dp = 16, .pp = 1, .tp = 1, .micro = 4, .zero = 1},
    {.name = "dp 3 tp 2", .dp = 3, .pp = 1, .tp = 2, .micro = 2, .sequence = 1},
    {.name = "dp 3 pp 2", .dp = 3, .pp = 2, .tp = 1, .micro = 1, .zero = 1},
    {.name = "dp 3 pp 2 gpipe", .dp = 3, .pp = 2, .tp = 1, .micro = 1, .schedule = "gpipe"},
    {.name = "dp 2 pp 2 interleaved", .dp = 2, .pp = 2, .tp = 1, .micro = 2, .schedule = "interleaved", .zero = 2},
    {.name = "dp 3 tp 2 pp 2", .dp = 3, .pp = 2, .tp = 2, .micro = 2, .zero = 2, .recompute = RECOMPUTE_SELECTIVE},
    {.name = "hybrid", .dp = 6, .pp = 1, .tp = 1, .micro = 2, .zero = 3, .settings = "parallel.shard_group=2"},
    {.name = "whole tensors",
     .dp = 3,
     .pp = 1,
     .tp = 1,
     .micro = 2,
     .zero = 2,
     .settings = "parallel.unsplit_tensors=true"},
    {.name = "batch over tp", .dp = 3, .pp = 1, .tp = 2, .micro = 1, .settings = "layout.batch=[dp,tp]"},
    {.name = "batch over tp, zero 3",
     .dp = 2,
     .pp = 2,
     .tp = 2,
     .micro = 2,
     .zero = 3,
     .settings = "layout.batch=[dp,tp]"},
    {.name = "batch and width over tp", // which goes from one to the other
     .dp = 3,
     .pp = 1,
     .tp = 2,
     .micro = 1,
     .settings = "layout.batch=[dp,tp] layout.embed=[tp] layout.heads=[] layout.ffn=[] layout.vocab=[]"},
    {.name = "reference", .dp = 3, .pp = 1, .tp = 2, .micro = 2, .reference = 1},
    {.name = "threads", .dp = 3, .pp = 1, .tp = 1, .micro = 2, .threads = 2},
};
enum { UNEVEN = sizeof uneven_layouts / sizeof *uneven_layouts };

static void uneven(void **state) {
  static const char *const models[] = {"gpt", "llama", "gpt untied"};
  static const int batches[] = {13, 11, 3};
  for (int m = 0; m < 3; m++) {
    ParityCase c[UNEVEN];
    size_t n = 0;
    for (int i = 0; i < UNEVEN; i++) // interleaved wants a multiple of two microbatches
      if (batches[m] == 13 || !uneven_layouts[i].schedule || strcmp(uneven_layouts[i].schedule, "interleaved"))
        c[n++] = uneven_layouts[i];
    compare(models[m], CORPUS_RAGGED, batches[m], c, n);
  }
}

// Ranks with different shares of the step, in as many microbatches, some of them with nothing in it.
static const ParityCase shares_layouts[] = {
    {.name = "dp 2", .dp = 2, .pp = 1, .tp = 1, .micro = 3, .settings = "batch.balance=[3,1]"},
    {.name = "dp 3 zero 1", .dp = 3, .pp = 1, .tp = 1, .micro = 4, .zero = 1, .settings = "batch.balance=[1,5,2]"},
    {.name = "dp 4 zero 3",
     .dp = 4,
     .pp = 1,
     .tp = 1,
     .micro = 1,
     .zero = 3,
     .recompute = RECOMPUTE_FULL,
     .settings = "batch.balance=[1,1,1,9]"},
    {.name = "dp 3 tp 2", .dp = 3, .pp = 1, .tp = 2, .micro = 2, .sequence = 1, .settings = "batch.balance=[2,1,4]"},
    {.name = "dp 3 pp 2",
     .dp = 3,
     .pp = 2,
     .tp = 1,
     .micro = 1,
     .zero = 1,
     .schedule = "gpipe",
     .settings = "batch.balance=[7,1,1]"},
    {.name = "batch over tp",
     .dp = 2,
     .pp = 1,
     .tp = 2,
     .micro = 2,
     .settings = "layout.batch=[dp,tp] batch.balance=[1,4,2,1]"},
    {.name = "measured, even as yet", .dp = 3, .pp = 1, .tp = 1, .micro = 2, .settings = "batch.balance=measured"},
    {.name = "threads", .dp = 3, .pp = 1, .tp = 1, .micro = 2, .threads = 2, .settings = "batch.balance=[1,3,1]"},
};

static void shares(void **state) {
  static const char *const models[] = {"gpt", "llama"};
  static const int batches[] = {16, 13};
  for (int m = 0; m < 2; m++)
    compare(models[m], CORPUS_RAGGED, batches[m], shares_layouts, sizeof shares_layouts / sizeof *shares_layouts);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_without_target), cmocka_unit_test(steps_without_target),
                                     cmocka_unit_test(windows_of_one_document), cmocka_unit_test(microbatches),
                                     cmocka_unit_test(uneven), cmocka_unit_test(shares)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, one_rank_end);
}
