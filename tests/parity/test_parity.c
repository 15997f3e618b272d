// Parity from the first day: every layout gives one rank's losses, norms, gradients, parameters and moments.
#include "corpora.h"
#include "compare.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, CORPUS_RAGGED), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

// Layouts of both models against one rank; dropout and ragged documents on.
static const ParityCase layouts[] = {
    {.name = "micro 1", .dp = 1, .pp = 1, .tp = 1, .micro = 1},
    {.name = "micro 2", .dp = 1, .pp = 1, .tp = 1, .micro = 2},
    {.name = "micro 4", .dp = 1, .pp = 1, .tp = 1, .micro = 4},
    {.name = "zero 1 alone", .dp = 1, .pp = 1, .tp = 1, .micro = 8, .zero = 1},
    {.name = "recompute selective", .dp = 1, .pp = 1, .tp = 1, .micro = 16, .recompute = RECOMPUTE_SELECTIVE},
    {.name = "recompute full", .dp = 1, .pp = 1, .tp = 1, .micro = 16, .recompute = RECOMPUTE_FULL},
    {.name = "all, recompute full", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 1, .recompute = RECOMPUTE_FULL},
    {.name = "dp 2 zero 2", .dp = 2, .pp = 1, .tp = 1, .micro = 4, .zero = 2},
    {.name = "dp 4 zero 3", .dp = 4, .pp = 1, .tp = 1, .micro = 2, .zero = 3},
    {.name = "dp 2 zero 3 recompute", .dp = 2, .pp = 1, .tp = 1, .micro = 4, .zero = 3, .recompute = RECOMPUTE_FULL},
    {.name = "tp 2 sequence", .dp = 1, .pp = 1, .tp = 2, .micro = 8, .sequence = 1},
    {.name = "2 x 2 x 2 zero 2 sequence", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 2, .sequence = 1},
    {.name = "2 x 2 x 2 zero 3 sequence", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 3, .sequence = 1},
    {.name = "dp 2", .dp = 2, .pp = 1, .tp = 1, .micro = 4},
    {.name = "dp 2 zero 1", .dp = 2, .pp = 1, .tp = 1, .micro = 8, .zero = 1},
    {.name = "dp 4", .dp = 4, .pp = 1, .tp = 1, .micro = 2},
    {.name = "dp 4 zero 1", .dp = 4, .pp = 1, .tp = 1, .micro = 4, .zero = 1},
    {.name = "dp 8", .dp = 8, .pp = 1, .tp = 1, .micro = 2},
    {.name = "dp 8 zero 1", .dp = 8, .pp = 1, .tp = 1, .micro = 1, .zero = 1},
    {.name = "tp 2", .dp = 1, .pp = 1, .tp = 2, .micro = 8},
    {.name = "pp 2 gpipe", .dp = 1, .pp = 2, .tp = 1, .micro = 2, .schedule = "gpipe"},
    {.name = "pp 2 1f1b", .dp = 1, .pp = 2, .tp = 1, .micro = 2, .schedule = "1f1b"},
    {.name = "pp 4 1f1b", .dp = 1, .pp = 4, .tp = 1, .micro = 2, .schedule = "1f1b"},
    {.name = "dp 2 tp 2", .dp = 2, .pp = 1, .tp = 2, .micro = 4},
    {.name = "dp 2 tp 2 zero 1", .dp = 2, .pp = 1, .tp = 2, .micro = 4, .zero = 1},
    {.name = "dp 4 tp 2 zero 1", .dp = 4, .pp = 1, .tp = 2, .micro = 2, .zero = 1}, // heads of a bias are padded to 4
                                                                                    // shards
    {.name = "dp 2 tp 2 pp 2", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .schedule = "gpipe"},
    {.name = "dp 2 tp 2 pp 2 zero 1", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 1, .schedule = "gpipe"},
};

// Of the families that the matrix has in turn, always: tp 2, more ranks than key and value heads, stages, shards of
// all; every case ends with an evaluation.
#define MOVES                                                                                                          \
  "layout.batch=[dp,tp] layout.embed=[tp] layout.heads=[] layout.ffn=[] layout.expert_ffn=[] layout.vocab=[]"
static const ParityCase few_layouts[] = {
    {.name = "tp 2", .dp = 1, .pp = 1, .tp = 2, .micro = 8},
    {.name = "tp 4", .dp = 1, .pp = 1, .tp = 4, .micro = 8}, // of 2 key and value heads, but for GPT-Neo
    {.name = "tp 2 within heads",
     .dp = 1,
     .pp = 1,
     .tp = 2,
     .micro = 8,
     .settings = "layout.heads=[] layout.head_dim=[tp]"},
    {.name = "pp 2 1f1b", .dp = 1, .pp = 2, .tp = 1, .micro = 2, .schedule = "1f1b"},
    {.name = "dp 2 zero 3", .dp = 2, .pp = 1, .tp = 1, .micro = 4, .zero = 3},
    {.name = "2 x 2 x 2 zero 3 sequence", .dp = 2, .pp = 2, .tp = 2, .micro = 2, .zero = 3, .sequence = 1},
    {.name = "tp from the samples to the width", .dp = 2, .pp = 1, .tp = 2, .micro = 2, .settings = MOVES},
    {.name = "tp from the positions to the width",
     .dp = 2,
     .pp = 2,
     .tp = 2,
     .micro = 2,
     .zero = 3,
     .recompute = RECOMPUTE_SELECTIVE,
     .settings =
         "layout.seq=[tp] layout.embed=[tp] layout.heads=[] layout.ffn=[] layout.expert_ffn=[] layout.vocab=[]"},
};

static int wrong_norm(const ParityCase *c, const ParityResult *r) {
  int wrong = 0;
  for (int i = 0; i < PARITY_GRADIENTS && i < c->steps; i++) {
    double norm = parity_norm(r, i), difference = fabs(r->norm[i] - norm) / norm;
    if (difference <= (c->precision == DTYPE_F64 ? 1e-12 : 1e-5)) continue;
    printf("%s, %s: the norm of step %d is off by %.1e from its gradients'  WRONG\n", c->model, c->name, i + 1,
           difference);
    wrong = 1;
  }
  return wrong;
}

// Many steps of a model with a head of its own, of one without and in a narrower type, where errors would grow; a few,
// of which three leave gradients, show what the others have beside that.
enum { MANY_STEPS = 20, FEW_STEPS = 6 };

static ParityCase one_rank(const char *model, Dtype precision, int steps) {
  return (ParityCase){.name = "one rank",
                      .model = model,
                      .dp = 1,
                      .pp = 1,
                      .tp = 1,
                      .micro = 16,
                      .precision = precision,
                      .steps = parity_steps(steps),
                      .more_settings = precision == DTYPE_F64 ? NULL : PARITY_SMOOTH};
}

static void compare(const char *model, Dtype precision, int steps, const ParityCase *cases, size_t count) {
  ParityCase base = one_rank(model, precision, steps);
  ParityResult one, other;
  int bad = 0;
  run(&base, &one);
  assert_true(one.loss[0] > 1 && isfinite(one.loss[0]) && one.norm[0] > 0 && one.tensors[DUMP_GRADIENT] > 10);
  bad += wrong_norm(&base, &one);
  if (base.steps > 1) assert_true(one.loss[base.steps - 1] != one.loss[0]);
  for (size_t i = 0; i < count; i++) {
    ParityCase c = cases[i];
    if (!parity_wanted(&c)) continue;
    c.model = model;
    c.precision = precision;
    c.steps = base.steps;
    c.more_settings = base.more_settings;
    run(&c, &other);
    ParityTolerance t = parity_tolerance(&c, &one);
    ParityDifference d = parity_compare(&other, &one, &t);
    bad += parity_report(&c, &d, &t, 1) + wrong_norm(&c, &other);
    parity_free(&other);
  }
  parity_free(&one);
  assert_int_equal(bad, 0);
}

static void compare_all(const char *model, Dtype precision, int steps) {
  compare(model, precision, steps, layouts, sizeof layouts / sizeof *layouts);
}

static void compare_few(const char *model) {
  compare(model, DTYPE_F64, FEW_STEPS, few_layouts, sizeof few_layouts / sizeof *few_layouts);
}

static void gpt_fp64(void **state) { compare_all("gpt", DTYPE_F64, MANY_STEPS); }
static void gpt_untied_fp64(void **state) { compare_all("gpt untied", DTYPE_F64, FEW_STEPS); }
static void llama_fp64(void **state) { compare_all("llama", DTYPE_F64, MANY_STEPS); }
static void llama_tied_fp64(void **state) { compare_all("llama tied", DTYPE_F64, FEW_STEPS); }
static void qwen2_fp64(void **state) { compare_few("qwen2"); }
static void qwen3_fp64(void **state) { compare_few("qwen3"); }
static void mistral_fp64(void **state) { compare_few("mistral"); }
static void mixtral_fp64(void **state) { compare_few("mixtral"); }
static void qwen_moe_fp64(void **state) { compare_few("qwen moe"); }
static void gpt_neo_fp64(void **state) { compare_few("gpt neo"); }
static void gpt_fp32(void **state) { compare_all("gpt", DTYPE_F32, MANY_STEPS); }
static void llama_fp32(void **state) { compare_all("llama", DTYPE_F32, FEW_STEPS); }

// The narrow type against the wide one: what fp32 computes is what fp64 computes.
static void fp32_against_fp64(void **state) {
  static const char *const models[] = {"gpt", "gpt untied", "llama", "llama tied"};
  int bad = 0;
  for (int i = 0; i < 4; i++) {
    ParityCase wide = one_rank(models[i], DTYPE_F64, MANY_STEPS), narrow = one_rank(models[i], DTYPE_F32, MANY_STEPS);
    wide.more_settings = narrow.more_settings;
    ParityResult a, b;
    run(&narrow, &a);
    run(&wide, &b);
    ParityTolerance t = parity_tolerance(&narrow, &b);
    ParityDifference d = parity_compare(&a, &b, &t);
    narrow.name = "against fp64";
    bad += parity_report(&narrow, &d, &t, 1);
    parity_free(&a);
    parity_free(&b);
  }
  assert_int_equal(bad, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt_fp64),          cmocka_unit_test(gpt_untied_fp64), cmocka_unit_test(llama_fp64),
      cmocka_unit_test(llama_tied_fp64),   cmocka_unit_test(gpt_fp32),        cmocka_unit_test(llama_fp32),
      cmocka_unit_test(fp32_against_fp64), cmocka_unit_test(qwen2_fp64),      cmocka_unit_test(qwen3_fp64),
      cmocka_unit_test(mixtral_fp64),      cmocka_unit_test(qwen_moe_fp64),
      cmocka_unit_test(mistral_fp64),      cmocka_unit_test(gpt_neo_fp64),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
