// tier 2; numbers
// Pipelines in fp64: every schedule, alone and with all that ranks divide otherwise, uneven cuts and many stages give
// one rank's numbers, and no stage ever holds more microbatches than its plan has slots.
#include "corpora.h"
#include "one_rank.h"
#include "schedule/schedule.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

enum { GLOBAL = 12, LAYERS = 6 }; // microbatches and layers that 2 and 3 ranks with 2 stages each divide among them

static ParityCase case_of(const char *model) {
  return (ParityCase){.model = model, .pp = 1, .dp = 1, .tp = 1, .micro = GLOBAL, .global = GLOBAL, .layers = LAYERS,
                      .precision = DTYPE_F64, .steps = parity_steps(3)};
}

// From one rank, or the slots that the run used from those that the plan has.
static int differs(const ParityCase *c) {
  if (!parity_wanted(c)) return 0;
  ParityResult got;
  int wrong = one_rank_differs(c, corpus_for(c->model, CORPUS_RAGGED), &got), slots = 0;
  for (int s = 0; s < MAX_STAGES; s++) slots |= got.most_in_flight[s] != got.slots[s];
  if (slots) printf("%s, %s: WRONG SLOTS\n", c->model, c->name);
  parity_free(&got);
  return wrong || slots;
}

// Every schedule with these settings.
static int with_every_schedule(const char *model, int dp, int tp, const char *settings) {
  int bad = 0;
  for (int pp = 2; pp <= 3; pp++)
    for (int s = 0; s < SCHEDULES; s++) {
      if (schedules[s].streams) continue; // of delayed gradients: test_delay
      char name[160];
      ParityCase c = case_of(model);
      snprintf(name, sizeof name, "pp %d %s %s", pp, schedules[s].name, settings);
      c.name = name, c.schedule = schedules[s].name, c.settings = settings;
      c.pp = pp, c.dp = dp, c.tp = tp, c.micro = 2 / dp;
      bad += differs(&c);
    }
  return bad;
}

static void gpt_untied(void **state) { assert_int_equal(with_every_schedule("gpt untied", 1, 1, ""), 0); }
static void llama_tied(void **state) { assert_int_equal(with_every_schedule("llama tied", 1, 1, ""), 0); }
static void gpt_and_all(void **state) {
  assert_int_equal(with_every_schedule("gpt", 2, 2, "parallel.zero=3 parallel.recompute=full"), 0);
}
// Where backward is split, the head's logits are made once more for the gradient of its weight.
static void logits_again(void **state) {
  assert_int_equal(with_every_schedule("llama", 1, 2, "parallel.logits=recompute parallel.sequence=true"), 0);
}

// Cuts by hand, virtual stages under the other schedules, and more microbatches than slots.
static void uneven(void **state) {
  static const struct { int pp, dp, micro; const char *schedule, *settings; } table[] = {
      {3, 1, 1, "1f1b", "parallel.layers=[1,4,1]"},
      {3, 1, 1, "1f1b", "parallel.layers=[0,5,1]"},
      {3, 2, 1, "1f1b", "parallel.layers=[4,2,0] parallel.zero=2"},
      {8, 1, 1, "1f1b", "parallel.layers=[0,1,1,1,1,1,1,0]"}, // more stages than layers
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
  for (int m = 0; m < 2; m++)
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
      char name[128];
      ParityCase c = case_of(models[m]);
      snprintf(name, sizeof name, "pp %d %s %s", table[i].pp, table[i].schedule, table[i].settings);
      c.name = name, c.schedule = table[i].schedule, c.settings = table[i].settings;
      c.pp = table[i].pp, c.dp = table[i].dp, c.micro = table[i].micro;
      bad += differs(&c);
    }
  assert_int_equal(bad, 0);
}

// More stages than a word has bits, with a tied embedding on the first and the last of them.
static void many_stages(void **state) {
  ParityCase c = case_of("gpt");
  c.name = "70 stages on 2 ranks", c.schedule = "interleaved";
  c.layers = 70, c.steps = 2, c.pp = 2, c.micro = GLOBAL / 4;
  c.settings = "parallel.stages_per_rank=35 run.desync_check=true";
  assert_int_equal(differs(&c), 0);
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
      {9, 2, "1f1b", "parallel.layers=[0,1,1,1,1,1,1,1,0]",
       "parallel.layers adds up to 7, but the model of llama has 6 layers"},
      {2, 2, "1f1b", "parallel.layers=[3,-1]", "parallel.layers"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    ParityCase c = case_of("llama");
    c.name = "refused";
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
      cmocka_unit_test(gpt_untied), cmocka_unit_test(llama_tied),  cmocka_unit_test(gpt_and_all),
      cmocka_unit_test(uneven),     cmocka_unit_test(many_stages), cmocka_unit_test(refusals),
      cmocka_unit_test(logits_again),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, one_rank_end);
}
