// Features of recipes, and the pairs that are refused.
#include "recipe/layouts.h"
#include "schedule/schedule.h"
#include "recipe/recipe_keys.h"
#include <string.h>

const LayoutTraits layout_traits[LAYOUT_FEATURES] = {
#define LAYOUT_FEATURE(id, name, kind, key, condition, axis, settings) {name, kind, key, condition, axis, settings},
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

// The key that switches a feature on, and the condition in its words. The table may name a key as it was called before.
static const RecipeKey *find_switch(const LayoutTraits *t, const char **word, char *condition, size_t size) {
  const RecipeAlias *alias = recipe_alias_find(t->key);
  const char *space = strchr(t->condition, ' ');
  *word = space ? space + 1 : "";
  if (alias) *word = recipe_alias_value(alias, *word);
  snprintf(condition, size, "%.*s%s", space ? (int)(space + 1 - t->condition) : 0, t->condition, *word);
  return recipe_key_find(alias ? alias->path : t->key);
}

static bool has_feature(const Recipe *r, LayoutFeature f) {
  const LayoutTraits *t = &layout_traits[f];
  if (f == LAYOUT_ACCUMULATION) return recipe_microbatches(r) > 1;
  if (f == LAYOUT_UNEVEN) return r->mesh.dp > 1 && !recipe_is_even(r);
  const char *word;
  char condition[64];
  const RecipeKey *key = find_switch(t, &word, condition, sizeof condition);
  if (!key || !recipe_fulfils(r, key, condition)) return false;
  return !t->axis[0] || (!strcmp(t->axis, "dp") ? r->mesh.dp : !strcmp(t->axis, "tp") ? r->mesh.tp : r->mesh.pp) > 1;
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
  const char *value;
  char condition[64];
  const RecipeKey *key = find_switch(t, &value, condition, sizeof condition);
  if (!key || key->kind == RECIPE_LATER) return false;
  const RecipeWord *word = recipe_word(key, value);
  return key->kind != RECIPE_CHOICE || (word && !word->later);
}

// A schedule that takes several microbatches does not go with updates in backward.
static const char *schedule_refused(LayoutFeature a, LayoutFeature b) {
  static const LayoutFeature feature[SCHEDULES] = {
#define SCHEDULE(id, ...) [SCHEDULE_##id] = LAYOUT_##id,
#include "schedule/schedules.def"
  };
  for (int i = 0; i < SCHEDULES; i++)
    if (schedules[i].microbatches_multiple_of_ranks && (a == feature[i] || b == feature[i]) &&
        (a == LAYOUT_IN_BACKWARD || b == LAYOUT_IN_BACKWARD))
      return "the schedule needs several microbatches";
  return NULL;
}

const char *layouts_refused(LayoutFeature a, LayoutFeature b) {
  for (int i = 0; refused[i].why; i++)
    if ((refused[i].a == a && refused[i].b == b) || (refused[i].a == b && refused[i].b == a)) return refused[i].why;
  return schedule_refused(a, b);
}
