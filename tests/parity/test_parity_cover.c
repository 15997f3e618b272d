// tier 2; rooms recipe
// What the matrix runs is what its table says: every triple of features that go together stands in a covering layout,
// the recipe of every layout has the features that its name says, and the judge of configurations allows it.
#include "matrix.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the four above first
#include <cmocka.h>

static int refused(int a, int b) {
  return !strcmp(layout_traits[a].kind, layout_traits[b].kind) || layouts_refused((LayoutFeature)a, (LayoutFeature)b);
}

static int built(int f) { return layouts_built((LayoutFeature)f); }

static uint64_t bits(int a, int b, int c) { return UINT64_C(1) << a | UINT64_C(1) << b | UINT64_C(1) << c; }

static int is_in(const MatrixLayout *layout, int count, uint64_t set, MatrixKind kind) {
  for (int i = 0; i < count; i++)
    if (layout[i].kind == kind && (layout[i].features & set) == set) return 1;
  return 0;
}

// Counted anew, from the table: covered, or of more ranks than the matrix runs.
static void every_triple_is_covered(void **state) {
  MatrixLayout *layout;
  int count = matrix_layouts(&layout), covered = 0, too_large = 0;
  for (int a = 0; a < LAYOUT_FEATURES; a++)
    for (int b = a + 1; b < LAYOUT_FEATURES; b++)
      for (int c = b + 1; c < LAYOUT_FEATURES; c++) {
        if (refused(a, b) || refused(a, c) || refused(b, c) || !built(a) || !built(b) || !built(c)) continue;
        MatrixMesh mesh = matrix_mesh(bits(a, b, c), (MatrixMesh){0});
        if (matrix_mesh_ranks(&mesh) > MATRIX_RANKS) too_large++;
        else if (is_in(layout, count, bits(a, b, c), MATRIX_COVER)) covered++;
        else
          fail_msg("%s + %s + %s is in no covering layout", layout_traits[a].name, layout_traits[b].name,
                   layout_traits[c].name);
      }
  printf("%d triples covered, %d of more than %d ranks\n", covered, too_large, MATRIX_RANKS);
  assert_true(covered > 1000 && too_large < covered / 20);
  free(layout);
}

// In a leg that cannot have a feature, covering layouts run without it, and what is left of them covers the triples of
// all others.
static void triples_are_covered_in_narrow_legs(void **state) {
  MatrixLayout *layout;
  int count = matrix_layouts(&layout), without = 0;
  for (int i = 0; i < count; i++) {
    if (layout[i].kind != MATRIX_COVER) continue;
    MatrixLayout l = matrix_fitted(&layout[i], 0, MATRIX_FP16);
    assert_false(l.features >> LAYOUT_IN_BACKWARD & 1);
    assert_false(l.features >> LAYOUT_LION & 1);
    assert_true(matrix_model(&l, 0) == 0 || matrix_model(&l, 0) == MATRIX_EXPERTS);
    uint64_t gone = layout[i].features & ~l.features;
    assert_int_equal(gone & ~(UINT64_C(1) << LAYOUT_IN_BACKWARD | UINT64_C(1) << LAYOUT_LION |
                             UINT64_C(1) << LAYOUT_PIPEDREAM | UINT64_C(1) << LAYOUT_STATES8),
                     0);
    without += gone != 0;
    assert_true(matrix_fitted(&layout[i], MATRIX_LLAMA, MATRIX_FP64).features == layout[i].features);
  }
  assert_true(without > 0);
  free(layout);
}

// Features of the table that a recipe with `set` may have besides: those that follow from the mesh, and what they need.
static int follows(int f, uint64_t set) {
  const LayoutTraits *t = &layout_traits[f];
  for (int a = 0; a < LAYOUT_FEATURES; a++) {
    if (!(set >> a & 1)) continue;
    const LayoutTraits *other = &layout_traits[a];
    if (!strcmp(t->kind, other->kind)) return 1; // sequence parallelism is tp too
    if (!strcmp(t->kind, "layout") && !strcmp(other->axis, t->axis))
      return 1; // a row of the Layout that `other` chooses
    if (!strncmp(t->key, "mesh.", 5) && !strcmp(t->key + 5, other->axis)) return 1;
    if (strstr(other->needs, t->kind) == other->needs && t->settings[0] && strstr(other->needs, t->settings)) return 1;
  }
  return f == LAYOUT_ACCUMULATION; // several microbatches of a pipeline, or of a batch that does not divide
}

static void layouts_are_what_they_are_called(void **state) {
  MatrixLayout *layout;
  int count = matrix_layouts(&layout);
  for (int i = 0; i < count; i++)
    for (int m = 0; m < MATRIX_MODELS; m++) {
      MatrixLayout l = matrix_fitted(&layout[i], m, MATRIX_FP64);
      if (l.kind == MATRIX_SINGLE && matrix_ranks(&l) == 1) continue;
      ParityCase c = matrix_case(&l, m, MATRIX_FP64);
      Recipe recipe;
      ModelConfig config;
      Error error = {0};
      if (parity_recipe(&c, &recipe, &error) || parity_config(&c, &config, &error) ||
          recipe_check_parallel(&recipe, &config, &error))
        fail_msg("%s, %s: the table allows it, but: %s", c.model, l.name, error.message);
      uint64_t features = layouts_features(&recipe);
      for (int f = 0; f < LAYOUT_FEATURES; f++) {
        if (l.features >> f & 1 && !(features >> f & 1))
          fail_msg("%s (%s, global %d) has no %s", l.name, l.settings, l.global, layout_traits[f].name);
        if (features >> f & 1 && !(l.features >> f & 1) && !follows(f, l.features))
          fail_msg("%s has %s as well", l.name, layout_traits[f].name);
      }
      model_config_free(&config);
      recipe_free(&recipe);
    }
  free(layout);
}

static void names_are_read(void **state) {
  uint64_t set;
  MatrixMesh mesh = {0};
  assert_null(matrix_parse("tp + sequence + dp + ZeRO 3 kept (dp 4 cp 3 micro 2)", &set, &mesh));
  assert_true(set == (UINT64_C(1) << LAYOUT_SEQUENCE | UINT64_C(1) << LAYOUT_DP | UINT64_C(1) << LAYOUT_ZERO_3_KEPT));
  assert_true(mesh.dp == 4 && mesh.cp == 3 && mesh.tp == 0 && mesh.pp == 0);
  assert_string_equal(matrix_parse("dp + ZeRO 4", &set, &mesh), "ZeRO 4");
  assert_string_equal(matrix_parse("dpp", &set, &mesh), "dpp");
  MatrixLayout *layout; // every name leads back to its layout
  int count = matrix_layouts(&layout);
  for (int i = 0; i < count; i++) {
    mesh = (MatrixMesh){0};
    assert_null(matrix_parse(layout[i].name, &set, &mesh));
    if (!mesh.cp) mesh.cp = 1;
    assert_true(set == layout[i].features && !memcmp(&mesh, &layout[i].mesh, sizeof mesh));
  }
  free(layout);
}

int main(void) {
  unsetenv("PARITY_ONLY");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_triple_is_covered), cmocka_unit_test(triples_are_covered_in_narrow_legs),
      cmocka_unit_test(layouts_are_what_they_are_called), cmocka_unit_test(names_are_read)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
