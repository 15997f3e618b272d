// Features of recipes, and the pairs that are refused.
#include "recipe/layouts.h"
#include "schedule/schedule.h"
#include "recipe/recipe_keys.h"
#include <string.h>

const LayoutTraits layout_traits[LAYOUT_FEATURES] = {
#define LAYOUT_FEATURE(id, ...) {__VA_ARGS__},
#define LAYOUT_REFUSED(...)
#include "recipe/layouts.def"
#undef LAYOUT_FEATURE
#undef LAYOUT_REFUSED
};

static const struct { LayoutFeature a, b; const char *why; } refused[] = {
#define LAYOUT_FEATURE(...)
#define LAYOUT_REFUSED(a, b, why) {LAYOUT_##a, LAYOUT_##b, why},
#include "recipe/layouts.def"
#undef LAYOUT_FEATURE
#undef LAYOUT_REFUSED
    {LAYOUT_FEATURES, LAYOUT_FEATURES, NULL},
};

static int axis_size(const Recipe *r, const char *axis) {
  StepParallel o = recipe_parallel(r);
  return o.mesh.axis[mesh_find(&o.mesh, axis)].size;
}

static bool has_feature(const Recipe *r, LayoutFeature f) {
  const LayoutTraits *t = &layout_traits[f];
  if (f == LAYOUT_ACCUMULATION) return recipe_microbatches(r) > 1;
  if (f == LAYOUT_UNEVEN) return r->mesh.dp > 1 && !recipe_is_even(r) && !r->batch.balance.count;
  const RecipeKey *key = recipe_key_find(t->key);
  return key && recipe_fulfils(r, key, t->condition) && (!t->axis[0] || axis_size(r, t->axis) > 1);
}

uint64_t layouts_features(const Recipe *recipe) {
  uint64_t set = 0;
  for (int f = 0; f < LAYOUT_FEATURES; f++)
    if (has_feature(recipe, (LayoutFeature)f)) set |= UINT64_C(1) << f;
  return set;
}

bool layouts_built(LayoutFeature feature) {
  const LayoutTraits *t = &layout_traits[feature];
  if (!t->key[0]) return true;
  const RecipeKey *key = recipe_key_find(t->key);
  if (!key) return false;
  const char *space = strchr(t->condition, ' ');
  const RecipeWord *word = recipe_word(key, space ? space + 1 : "");
  return key->kind != RECIPE_CHOICE || (word && !word->later);
}

// A schedule that takes several microbatches does not go with updates in backward.
static const char *schedule_refused(LayoutFeature a, LayoutFeature b) {
  static const LayoutFeature feature[SCHEDULES] = {
#define SCHEDULE(id, ...) [SCHEDULE_##id] = LAYOUT_##id,
#include "schedule/schedules.def"
  };
  for (int i = 0; i < SCHEDULES; i++)
    if ((schedules[i].microbatches_multiple_of_ranks || schedules[i].streams) && (a == feature[i] || b == feature[i]) &&
        (a == LAYOUT_IN_BACKWARD || b == LAYOUT_IN_BACKWARD))
      return schedules[i].streams ? "weights change before the step that they are kept for is over"
                                  : "the schedule needs several microbatches";
  return NULL;
}

const char *layouts_refused(LayoutFeature a, LayoutFeature b) {
  for (int i = 0; refused[i].why; i++)
    if ((refused[i].a == a && refused[i].b == b) || (refused[i].a == b && refused[i].b == a)) return refused[i].why;
  return schedule_refused(a, b);
}
