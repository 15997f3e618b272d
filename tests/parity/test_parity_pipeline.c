// Pipelines in fp64: every schedule, with and without dp, tp, ZeRO, recompute and uneven cuts, gives one rank's
// numbers, and no stage ever holds more microbatches than its plan has slots.
#include "corpora.h"
#include "compare.h"
#include "schedule/schedule.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

enum { GLOBAL = 12, LAYERS = 6 }; // microbatches and layers that 2 and 3 ranks with 2 stages each divide among them

static void run(const ParityCase *c, ParityResult *result) {
  Error error = {0};
  if (parity_run(c, corpus_for(c->model, CORPUS_RAGGED), result, &error)) fail_msg("%s: %s", c->name, error.message);
}

static ParityCase one_rank(const char *model) {
  return (ParityCase){.name = "one rank",
                      .model = model,
                      .pp = 1,
                      .dp = 1,
                      .tp = 1,
                      .micro = GLOBAL,
                      .global = GLOBAL,
                      .layers = LAYERS,
                      .precision = DTYPE_F64,
                      .steps = parity_steps(3)};
}

// Slots that a run used, against those that the plan has.
static int wrong_slots(const ParityResult *r) {
  int wrong = 0;
  for (int s = 0; s < MAX_STAGES; s++) wrong |= r->most_in_flight[s] != r->slots[s];
  return wrong;
}

static int differs(const ParityCase *c, const ParityResult *one) {
  ParityResult other;
  run(c, &other);
  ParityTolerance t = parity_tolerance(c, one);
  ParityDifference d = parity_compare(&other, one, &t);
  int wrong = parity_report(c, &d, &t, 1), slots = wrong_slots(&other);
  if (slots) printf("%s, %s: WRONG SLOTS\n", c->model, c->name);
  fflush(stdout);
  parity_free(&other);
  return wrong || slots;
}

static const struct { const char *name; int dp, tp, zero, sequence; RecomputeMode recompute; } company[] = {
    {"", 1, 1, 0, 0, RECOMPUTE_NONE},
    {"dp 2", 2, 1, 0, 0, RECOMPUTE_NONE},
    {"dp 2 zero 1", 2, 1, 1, 0, RECOMPUTE_NONE},
    {"dp 2 zero 2", 2, 1, 2, 0, RECOMPUTE_NONE},
    {"dp 2 zero 3", 2, 1, 3, 0, RECOMPUTE_NONE},
    {"tp 2", 1, 2, 0, 0, RECOMPUTE_NONE},
    {"tp 2 sequence selective", 1, 2, 0, 1, RECOMPUTE_SELECTIVE},
    {"dp 2 tp 2 zero 1", 2, 2, 1, 0, RECOMPUTE_NONE},
    {"dp 2 tp 2 zero 3 full", 2, 2, 3, 0, RECOMPUTE_FULL},
};

// The first `companies` rows of the table with every schedule.
static void compare(const char *model, size_t companies) {
  ParityCase base = one_rank(model);
  ParityResult one;
  int bad = 0;
  run(&base, &one);
  assert_true(one.loss[0] > 1 && isfinite(one.loss[0]) && one.norm[0] > 0);
  for (size_t k = 0; k < companies; k++)
    for (int pp = 2; pp <= 3; pp++)
      for (int s = 0; s < SCHEDULES; s++) {
        if (schedules[s].streams) continue; // of delayed gradients: test_delay
        char name[96];
        ParityCase c = base;
        snprintf(name, sizeof name, "pp %d %s %s", pp, schedules[s].name, company[k].name);
        c.name = name;
        c.schedule = schedules[s].name;
        c.pp = pp, c.dp = company[k].dp, c.tp = company[k].tp, c.zero = company[k].zero;
        c.sequence = company[k].sequence, c.recompute = company[k].recompute;
        c.micro = 2 / c.dp;
        if (parity_wanted(&c)) bad += differs(&c, &one);
      }
  parity_free(&one);
  assert_int_equal(bad, 0);
}

static size_t all(void) { return parity_steps(3) < 3 ? 1 : sizeof company / sizeof *company; } // few under a sanitizer
static void gpt(void **state) { compare("gpt", all()); }
static void gpt_untied(void **state) { compare("gpt untied", 1); }
static void llama(void **state) { compare("llama", 1); }
static void llama_tied(void **state) { compare("llama tied", all()); }

// Where backward is split, the head's logits are made once more for the gradient of its weight.
static void logits_again(void **state) {
  static const char *const models[] = {"gpt", "llama"};
  for (int i = 0; i < 2; i++) {
    ParityCase base = one_rank(models[i]);
    ParityResult one;
    int bad = 0, tested = 0;
    run(&base, &one);
    for (size_t k = 0; k < all(); k++)
      for (int s = 0; s < SCHEDULES; s++) {
        if (!schedules[s].splits) continue;
        char name[96];
        ParityCase c = base;
        snprintf(name, sizeof name, "pp 2 %s %s", schedules[s].name, company[k].name);
        c.name = name;
        c.schedule = schedules[s].name;
        c.settings = "parallel.logits=recompute";
        c.pp = 2, c.dp = company[k].dp, c.tp = company[k].tp, c.zero = company[k].zero;
        c.sequence = company[k].sequence, c.recompute = company[k].recompute;
        c.micro = 2 / c.dp;
        tested++;
        if (parity_wanted(&c)) bad += differs(&c, &one);
      }
    parity_free(&one);
    assert_int_equal(bad, 0);
    assert_true(tested >= 2);
  }
}

// Cuts by hand, virtual stages under the other schedules, and more microbatches than slots.
static void uneven(void **state) {
  static const struct { int pp, dp, micro; const char *schedule, *settings; } table[] = {
      {3, 1, 1, "1f1b", "parallel.layers=[1,4,1]"},
      {3, 1, 1, "1f1b", "parallel.layers=[0,5,1]"},
      {3, 2, 1, "1f1b", "parallel.layers=[4,2,0] parallel.zero=2"},
      {2, 1, 1, "interleaved", "parallel.layers=[2,1,3,0]"},
      {2, 2, 1, "interleaved", "parallel.stages_per_rank=3 parallel.layers=[0,1,1,2,1,1] parallel.zero=3"},
      {2, 1, 1, "interleaved", "parallel.stages_per_rank=3"},
      {3, 1, 1, "gpipe", "parallel.stages_per_rank=2"},
      {2, 1, 2, "naive", "parallel.stages_per_rank=3"},
      {2, 2, 3, "gpipe", "parallel.stages_per_rank=2 parallel.recompute=full"},
      {2, 1, 1, "1f1b", "batch.global=12"},
  };
  static const char *const models[] = {"gpt", "llama"};
  int bad = 0;
  for (int m = 0; m < 2; m++) {
    ParityCase base = one_rank(models[m]);
    ParityResult one;
    run(&base, &one);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
      char name[128];
      ParityCase c = base;
      snprintf(name, sizeof name, "pp %d %s %s", table[i].pp, table[i].schedule, table[i].settings);
      c.name = name;
      c.pp = table[i].pp, c.dp = table[i].dp, c.micro = table[i].micro;
      c.schedule = table[i].schedule;
      c.settings = table[i].settings;
      if (parity_wanted(&c)) bad += differs(&c, &one);
    }
    parity_free(&one);
  }
  assert_int_equal(bad, 0);
}

// More stages than a word has bits, with a tied embedding on the first and the last of them.
static void many_stages(void **state) {
  ParityCase base = one_rank("gpt");
  ParityResult one;
  base.layers = 70;
  base.steps = 2;
  run(&base, &one);
  ParityCase c = base;
  c.name = "70 stages on 2 ranks";
  c.pp = 2, c.micro = GLOBAL / 4;
  c.schedule = "interleaved";
  c.settings = "parallel.stages_per_rank=35 run.desync_check=true";
  assert_int_equal(parity_wanted(&c) ? differs(&c, &one) : 0, 0);
  parity_free(&one);
}

// What cannot be is refused before anything starts, and the nearest that can is named.
static void refusals(void **state) {
  static const struct { int pp, micro; const char *schedule, *settings, *says;
  } table[] = {
      {2, 4, "interleaved", "",
       "makes 3 microbatches, but parallel.pipeline interleaved takes a multiple of mesh.pp (2); the nearest "
       "batch.global is 8 or 13"},
      {3, 6, "interleaved", "", "the nearest batch.global is 13"},
      {2, 2, "1f1b", "parallel.stages_per_rank=2",
       "parallel.stages_per_rank is 2, but parallel.pipeline is 1f1b, which allows at most 1 stage a rank; take 1, or "
       "naive, gpipe"},
      {2, 2, "interleaved", "parallel.stages_per_rank=1",
       "parallel.stages_per_rank is 1, but parallel.pipeline is interleaved, which needs at least 2 stages a rank; "
       "take 2, or naive, gpipe"},
      {1, 2, "interleaved", "parallel.stages_per_rank=2", "mesh.pp is 1"},
      {2, 2, "interleaved", "parallel.stages_per_rank=4",
       "mesh.pp 2 with 4 stages a rank (parallel.stages_per_rank) makes 8 stages, but the model of llama has only 6 "
       "layers to "
       "divide; the nearest parallel.stages_per_rank is 3"},
      {8, 2, "1f1b", "", "mesh.pp is 8, but the model of llama has only 6 layers to divide; the nearest mesh.pp is 6"},
      {2, 2, "1f1b", "parallel.layers=[1,2,3]",
       "parallel.layers has 3 numbers, but must have one for each of the mesh.pp · parallel.stages_per_rank = 2 · 1 = "
       "2 "
       "stages"},
      {2, 2, "1f1b", "parallel.layers=[1,2]", "parallel.layers adds up to 3, but the model of llama has 6 layers"},
      {3, 2, "1f1b", "parallel.layers=[3,0,3]", "parallel.layers gives stage 1 no layers"},
      {2, 2, "1f1b", "parallel.layers=[3,-1]", "parallel.layers"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    ParityCase c = one_rank("llama");
    ParityResult result;
    Error error = {0};
    c.pp = table[i].pp, c.micro = table[i].micro, c.schedule = table[i].schedule, c.settings = table[i].settings;
    int code = parity_run(&c, corpus_for(c.model, CORPUS_RAGGED), &result, &error);
    if (code != PLAIT_BAD_INPUT || !strstr(error.message, table[i].says))
      fail_msg("row %zu: code %d, \"%s\" does not say \"%s\"", i, code, error.message, table[i].says);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt),        cmocka_unit_test(gpt_untied),   cmocka_unit_test(llama),
      cmocka_unit_test(llama_tied), cmocka_unit_test(uneven),       cmocka_unit_test(many_stages),
      cmocka_unit_test(refusals),   cmocka_unit_test(logits_again),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
