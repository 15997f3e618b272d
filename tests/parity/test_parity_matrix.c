// tier 1 2; threads numbers
// The parity matrix: a sample of it under ctest, always the same unless PARITY_SEED and PARITY_SAMPLE choose another;
// the whole with PARITY_ALL=1, as scripts/parity does; PARITY_TABLE=1 prints the table of features for it;
// PARITY_LIST=RANKS prints the layouts of 2 to RANKS ranks in a random order and runs nothing, for the samples with
// processes, PARITY_LIST=real the real ones; with PLAIT_CHAOS=SEED under chaos (src/runtime/chaos.h), which a test here
// does for a few.
#include "corpora.h"
#include "matrix.h"
#include "tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static int whole(void) { return getenv("PARITY_ALL") && strcmp(getenv("PARITY_ALL"), "0"); }

// Is layout number i run with model m, where `all` are run or one a layout?
static int is_run(const MatrixLayout *l, int i, int m, int all) {
  if (!all) return m == i % MATRIX_MODELS;
  int several = MATRIX_MODELS - MATRIX_EXPERTS;
  int experts = matrix_model(l, 0) == MATRIX_EXPERTS; // with both of their models, or those in turn
  if (experts && l->kind != MATRIX_COVER) return m >= MATRIX_EXPERTS;
  if (experts && m >= MATRIX_IN_TURN) return m == MATRIX_EXPERTS + i % several;
  if (m >= MATRIX_IN_TURN) return m == MATRIX_IN_TURN + i % (MATRIX_MODELS - MATRIX_IN_TURN);
  return l->kind == MATRIX_COVER || matrix_model(l, m) == m;
}

// few: of the sample of make test; sample: of make check.
static void run_leg(MatrixLeg leg, int few, int sample) {
  MatrixLayout *layout;
  int count = matrix_layouts(&layout), wanted = count;
  assert_true(count > 300 || getenv("PARITY_ONLY"));
  MatrixTally tally = {0};
  if (test_tier() < 2) sample = few;
  if (!whole()) {
    if (getenv("PARITY_SAMPLE")) sample = atoi(getenv("PARITY_SAMPLE"));
    wanted = matrix_sample(layout, count, sample, matrix_seed());
  }
  // Triples have no tolerance of their own: in narrow types and under chaos one model each.
  int in_turn = leg != MATRIX_FP64 || getenv("PLAIT_CHAOS"), runs = 0, unfit = 0;
  for (int i = 0; i < wanted; i++) {
    unfit += !matrix_fits(&layout[i], leg);
    int all = whole() && !(in_turn && layout[i].kind == MATRIX_COVER);
    for (int m = 0; m < MATRIX_MODELS && matrix_fits(&layout[i], leg); m++)
      if (is_run(&layout[i], i, m, all) && matrix_mine(runs++)) {
        MatrixLayout l = all && m < MATRIX_EXPERTS ? matrix_dense(&layout[i]) : layout[i];
        matrix_run(&l, m, leg, &tally);
      }
  }
  const char *name = matrix_leg_names[leg];
  if (unfit)
    printf("%s: %d of the %d layouts cannot have it: %s\n", name, unfit, wanted,
           "with updates in backward or at once no step can be skipped, and an update that jumps is compared in fp64 "
           "alone");
  printf("%s: %d of %d layouts, %d runs on up to %d ranks; worst, and its share of the bound:\n ", name, wanted, count,
         tally.runs, tally.ranks);
  for (int i = 0; i < MEASURES; i++) printf(" %s %.1e (%.2g)", parity_measure_names[i], tally.worst[i], tally.share[i]);
  puts("");
  if (leg == MATRIX_FP64 && test_tier() > 1 && !getenv("PARITY_ONLY") && !getenv("PLAIT_CHAOS"))
    matrix_print_left_out(getenv("PARITY_LOUD") != NULL);
  free(layout);
  one_rank_forget();
  assert_int_equal(tally.wrong, 0);
}

static void fp64(void **state) { run_leg(MATRIX_FP64, 12, 28); }
static void fp32(void **state) { run_leg(MATRIX_FP32, 4, 14); }
static void bf16(void **state) { run_leg(MATRIX_BF16, 4, 14); }
static void bf16_gradients(void **state) { run_leg(MATRIX_BF16_GRADIENTS, 2, 8); }
static void fp16(void **state) { run_leg(MATRIX_FP16, 2, 8); }

// Poisoned memory, buffers in another order, delays: the same numbers.
static void chaos(void **state) {
  char seed[24];
  if (whole()) return; // scripts/parity has a whole leg of it
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)matrix_seed() + 1);
  setenv("PLAIT_CHAOS", seed, 1);
  run_leg(MATRIX_FP64, 2, 8);
  unsetenv("PLAIT_CHAOS");
}

// ranks, keys of a recipe, name: with tabs between
static int list_layouts(int most) {
  MatrixLayout *layout;
  int count = matrix_layouts(&layout);
  count = matrix_sample(layout, count, count, matrix_seed());
  for (int i = 0; i < count; i++) {
    const MatrixLayout *l = &layout[i];
    int ranks = matrix_ranks(l);
    if (ranks > 1 && ranks <= most && matrix_like_any(l))
      printf("%d\tmesh.dp=%d mesh.cp=%d mesh.tp=%d mesh.pp=%d batch.global=%d batch.micro=%d %s\t%s\n", ranks,
             l->mesh.dp, l->mesh.cp, l->mesh.tp, l->mesh.pp, MATRIX_GLOBAL, l->micro, l->settings, l->name);
  }
  free(layout);
  return 0;
}

// ranks, layers, what one rank has of the settings, keys of a recipe, name
static int list_real(void) {
  MatrixLayout *layout;
  int count = matrix_layouts(&layout);
  for (int i = 0; i < count; i++) {
    const MatrixLayout *l = &layout[i];
    char same[sizeof l->settings];
    matrix_settings_of_one(l, same, sizeof same);
    if (l->kind == MATRIX_REAL)
      printf("%d\t%d\tbatch.global=%d %s\tmesh.dp=%d mesh.cp=%d mesh.tp=%d mesh.pp=%d batch.global=%d batch.micro=%d "
             "%s\t%s\n",
             matrix_ranks(l), l->layers, l->global, same, l->mesh.dp, l->mesh.cp, l->mesh.tp, l->mesh.pp, l->global,
             l->micro, l->settings, l->name);
  }
  free(layout);
  return 0;
}

int main(void) {
  if (getenv("PARITY_LIST") && !strcmp(getenv("PARITY_LIST"), "real")) return list_real();
  if (getenv("PARITY_LIST")) return list_layouts(atoi(getenv("PARITY_LIST")));
  if (getenv("PARITY_TABLE")) return matrix_print_table(), 0;
  const struct CMUnitTest tests[] = {cmocka_unit_test(fp64), cmocka_unit_test(fp32), cmocka_unit_test(bf16),
                                     cmocka_unit_test(bf16_gradients), cmocka_unit_test(fp16), cmocka_unit_test(chaos)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, corpora_make, corpora_remove);
}
