// tier 1
// Variants of a recipe: with other values, and for a number of ranks.
#include "recipe/recipe_keys.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "parse.h"

// mesh.dp: auto is open until the ranks are known; then all that depends on the mesh is checked, and written it stays
// auto.
static void data_ranks_by_ranks(void **state) {
  static const char text[] =
      BASE "mesh: {dp: auto, tp: 2}\nparallel: {zero: 3, shard_group: 3}\nbatch: {balance: measured}\n";
  Error error = {0};
  Recipe open, r;
  if (parse(text, 0, NULL, &open, &error)) fail_msg("%s", error.message);
  assert_true(open.dp_is_auto && open.mesh.dp == 1 && !open.notes && recipe_is_measured(&open));
  assert_int_equal(recipe_with_ranks(&open, 1, &r, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "x.yaml:4:12: mesh.dp is auto, but 1 rank is fewer than the 2 of"));
  error = (Error){0};
  assert_int_equal(recipe_with_ranks(&open, 8, &r, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "parallel.shard_group is 3, but must divide mesh.dp (4)"));
  assert_int_equal(recipe_with_ranks(&open, 7, &r, &error), PLAIT_OK);
  assert_true(r.mesh.dp == 3 && recipe_rank_count(&r) == 6 && r.ranks == 7);
  check_round_trip(&r);
  char *value = recipe_value_text(&r, "mesh.dp");
  assert_string_equal(value, "auto");
  free(value);
  recipe_free(&r);
  assert_true(open.dp_is_auto && open.mesh.dp == 1 && !open.ranks);
  recipe_free(&open);
  if (parse(text, 1, (char *[]){"parallel=null"}, &open, &error)) fail_msg("%s", error.message);
  assert_int_equal(recipe_with_ranks(&open, 0, &r, &error), PLAIT_OK); // without a launcher
  assert_true(r.mesh.dp == 1 && r.ranks == 2);
  assert_non_null(strstr(r.notes, "batch.balance has no effect"));
  assert_null(open.notes);
  recipe_free(&r);
  recipe_free(&open);
  error = (Error){0};
  assert_int_equal(parse(text, 2, (char *[]){"mesh.dp=3", "batch.balance=[1,2]"}, &r, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "batch.balance has 2 weights, but there are 3 data ranks; give one for each"));
  if (parse(text, 2, (char *[]){"mesh.dp=3", "batch.balance=[1,2,3]"}, &r, &error)) fail_msg("%s", error.message);
  assert_false(r.dp_is_auto);
  check_round_trip(&r);
  recipe_free(&r);
}

// A variant has other values, is judged, and leaves its recipe as it was.
static void variants(void **state) {
  static const char text[] = BASE "mesh: {dp: 2, tp: 2}\nparallel: {zero: 3}\nbatch: {global: 8}\n";
  Error error = {0};
  Recipe r, before, other;
  if (parse(text, 0, NULL, &r, &error) || parse(text, 0, NULL, &before, &error)) fail_msg("%s", error.message);
  if (recipe_variant(&r, "", &other, &error)) fail_msg("%s", error.message);
  assert_true(recipe_equal(&r, &other));
  recipe_free(&other);
  if (recipe_variant(&r, "  parallel.zero=1 mesh.dp=4  optimizer.betas=[0.5, 0.25] mesh.tp=null", &other, &error))
    fail_msg("%s", error.message);
  assert_true(other.parallel.zero == 1 && other.mesh.dp == 4 && other.mesh.tp == 1 && other.optimizer.betas[1] == 0.25);
  assert_true(recipe_is_given(&other, "mesh.dp") && !recipe_is_given(&other, "optimizer.betas"));
  char *keys = recipe_differences(&r, &other);
  assert_string_equal(keys, "mesh.dp=4 mesh.tp=1 parallel.zero=1 optimizer.betas=[0.5,0.25]");
  Recipe again;
  if (recipe_variant(&r, keys, &again, &error)) fail_msg("%s", error.message);
  assert_true(recipe_equal(&again, &other));
  recipe_free(&again);
  recipe_free(&other);
  free(keys);
  keys = recipe_key_text("run.dir", "/a \"b\" \\ \t'[c");
  if (recipe_variant(&r, keys, &other, &error)) fail_msg("%s", error.message);
  assert_string_equal(other.run.dir, "/a \"b\" \\ \t'[c");
  recipe_free(&other);
  free(keys);
  assert_int_equal(recipe_variant(&r, "parallel.zero=7", &other, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "parallel.zero must be an integer from 0 to 3, not \"7\""));
  error = (Error){0};
  assert_int_equal(recipe_variant(&r, "parallel.nonsense=7", &other, &error), PLAIT_BAD_INPUT);
  error = (Error){0};
  assert_int_equal(recipe_variant(&r, "mesh.tp=1 parallel.sequence=true", &other, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "parallel.sequence is true, but mesh.tp is 1"));
  assert_null(other.name);
  assert_true(recipe_equal(&r, &before));
  recipe_free(&r);
  recipe_free(&before);
}

// Precision and data ranks that plait found are facts of the recipe until a variant says others.
static void variants_of_auto(void **state) {
  static const char text[] = BASE "mesh: {dp: auto, tp: 2}\nprecision: auto\n";
  Error error = {0};
  Recipe r, other;
  if (parse(text, 0, NULL, &r, &error) || recipe_variant(&r, "parallel.zero=1", &other, &error))
    fail_msg("%s", error.message);
  assert_true(other.dp_is_auto && other.precision_is_auto && other.precision == r.precision);
  recipe_free(&other);
  if (recipe_variant(&r, "mesh.dp=2 precision=fp32", &other, &error)) fail_msg("%s", error.message);
  assert_true(!other.dp_is_auto && other.mesh.dp == 2 && !other.precision_is_auto && other.precision == DTYPE_F32);
  recipe_free(&other);
  recipe_free(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(data_ranks_by_ranks), cmocka_unit_test(variants),
                                     cmocka_unit_test(variants_of_auto)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
