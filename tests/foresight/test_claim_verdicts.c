// tier 2; rooms machine cmd; numbers
// Claims: verdicts follow from plait's numbers, which are right where they are known.
#include "foresight/claims.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static const Claim *claim_named(const char *id) {
  for (int i = 0; i < claim_count; i++)
    if (!strcmp(claims[i].id, id)) return &claims[i];
  fail_msg("there is no claim %s", id);
  return NULL;
}

// One claim or more of each measure, and what must come out.
typedef struct Known { const char *id; ClaimVerdict verdict; double number, within; } Known;
static const Known known[] = {
    {"states-7.5b", CLAIM_CONFIRMED, 7.5 * 16, 0.01},
    {"16-bytes", CLAIM_CONFIRMED, 16, 1e-3},
    {"20-bytes", CLAIM_CORRECTED, 18, 1e-3},
    {"dp-whole-model", CLAIM_CONFIRMED, 1, 1e-9},
    {"zero-1-sgd", CLAIM_CONFIRMED, 1, 0.01},
    {"zero-1-sgd-bf16", CLAIM_CORRECTED, 0.5 + 0.5 / 64, 0.01},
    {"dp-activations", CLAIM_CONFIRMED, 0.25, 1e-3},
    {"dp-activations-per-rank", CLAIM_CORRECTED, 1, 1e-9},
    {"fsdp-activations", CLAIM_CORRECTED, 1, 1e-9},
    {"1f1b-first-stage", CLAIM_CONFIRMED, 1, 0.02},
    {"195-gb", CLAIM_CORRECTED, 3 * 65.29 * 2 * 63 / 64, 0.01},
    {"156-s", CLAIM_CORRECTED, 3 * 65.29 * 2 * 63 / 64 / 1.25, 0.01},
    {"zero-2-all-reduce", CLAIM_CORRECTED, 0, 0},
    {"dp-reduces-dx", CLAIM_CORRECTED, 0, 0},
    {"tp-reduces-dx", CLAIM_CONFIRMED, 24, 0.05},
    {"2d-moves-less-later", CLAIM_CONFIRMED, 0.55, 0.05},
    {"fsdp-layers", CLAIM_CORRECTED, 12, 0},
    {"fsdp-flops", CLAIM_CORRECTED, 1, 1e-3},
    {"pp-layers", CLAIM_CONFIRMED, 3, 0},
    {"3d-is-3d-tp", CLAIM_CORRECTED, 0.5, 1e-9},
    {"dp-is-ddp", CLAIM_CONFIRMED, 1, 1e-9},
    {"dp-is-ddp-uneven", CLAIM_CORRECTED, 1.5, 1e-9},
    {"gpipe-bubble", CLAIM_CORRECTED, 3.0 / 11, 1e-9},
    {"gpipe-bubble-part", CLAIM_CONFIRMED, 3.0 / 11, 1e-9},
    {"pipeline-latency", CLAIM_CORRECTED, 1, 1e-9},
    {"tp-across-nodes", CLAIM_CORRECTED, 27, 0.2},
    {"zero-3-or-3d", CLAIM_CONFIRMED, 1.07, 0.1},
};

static void numbers_are_those_that_are_known(void **state) {
  Claims *compiled = claims_open(SOURCE_FOLDER);
  int wrong = 0;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const Claim *claim = claim_named(known[i].id);
    double numbers[CLAIM_NUMBERS];
    Error error = {0};
    if (claims_count(compiled, claim, numbers, &error)) fail_msg("%s", error.message);
    ClaimVerdict verdict = claim_verdict(claim, numbers);
    int off = fabs(numbers[0] - known[i].number) > known[i].within * known[i].number + 1e-12;
    print_message("%-24s %-12s %.6g, expected %.6g%s\n", known[i].id, claim_verdict_text(verdict), numbers[0],
                  known[i].number, off || verdict != known[i].verdict ? "  WRONG" : "");
    wrong += off || verdict != known[i].verdict;
  }
  claims_close(compiled);
  assert_int_equal(wrong, 0);
}

// The told number is confirmed, and one that is off by a little more than its digits allow is not.
static void a_wrong_number_flips_the_verdict(void **state) {
  for (int i = 0; i < claim_count; i++) {
    const Claim *claim = &claims[i];
    for (int k = 0; k < claim->numbers; k++) {
      double numbers[CLAIM_NUMBERS], told = claim->claimed[k], step = claim->within * told + 1e-6;
      double sign = claim->relation == CLAIM_BELOW ? -1 : 1;
      for (int n = 0; n < claim->numbers; n++)
        numbers[n] = claim->claimed[n] * (claim->relation == CLAIM_EQUAL ? 1 : 1 + sign * 2 * claim->within);
      assert_int_equal(claim_verdict(claim, numbers), CLAIM_CONFIRMED);
      numbers[k] = told - sign * step;
      assert_int_equal(claim_verdict(claim, numbers), CLAIM_CORRECTED);
      numbers[k] = told + step;
      assert_int_equal(claim_verdict(claim, numbers), claim->relation == CLAIM_ABOVE ? CLAIM_CONFIRMED
                                                                                      : CLAIM_CORRECTED);
    }
  }
}

static void the_table_is_whole(void **state) {
  for (int i = 0; i < claim_count; i++) {
    const Claim *claim = &claims[i];
    assert_true(*claim->id && *claim->topic && *claim->says && *claim->why && claim->unit);
    assert_true(claim->numbers > 0 && (claim->measure || claim->count));
    assert_true(claim->numbers <= CLAIM_NUMBERS && !(claim->measure && claim->count));
    for (int k = 0; k < i; k++) assert_string_not_equal(claim->id, claims[k].id);
    char *command = claim_command(claim);
    assert_non_null(strstr(command, "plait "));
    free(command);
  }
}

static void numbers_have_three_digits(void **state) {
  const Claim claim = {.numbers = 4, .unit = "GB", .claimed = {0.2727, 16.25, 999.6, 1045.3}, .relation = CLAIM_BELOW};
  char *text = claim_numbers_text(&claim, claim.claimed, "");
  assert_string_equal(text, "0.273 · 16.2 · 1,000 · 1,045 GB");
  free(text);
  text = claim_claimed_text(&claim);
  assert_string_equal(text, "less than 0.273 · less than 16.2 · less than 1,000 · less than 1,045 GB");
  free(text);
}

static void a_recipe_that_is_not_there(void **state) {
  Claims *compiled = claims_open("/nowhere");
  double numbers[CLAIM_NUMBERS];
  Error error = {0};
  assert_int_equal(claims_count(compiled, claim_named("16-bytes"), numbers, &error), PLAIT_BAD_INPUT);
  assert_string_equal(error.message,
                      "claim 16-bytes: /nowhere/recipes/claims.yaml: cannot be read: No such file or directory");
  claims_close(compiled);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table_is_whole), cmocka_unit_test(a_wrong_number_flips_the_verdict),
      cmocka_unit_test(numbers_are_those_that_are_known), cmocka_unit_test(numbers_have_three_digits),
      cmocka_unit_test(a_recipe_that_is_not_there)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
