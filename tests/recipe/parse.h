// Recipes from text, for tests of the language. After cmocka.h.
#pragma once
#include "base/file.h"
#include "recipe/recipe.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BASE "model: {config: m.json}\ndata: {train: t}\nrun: {dir: r}\n" // what every recipe must have

static inline int parse(const char *text, int n, char **overrides, Recipe *recipe, Error *error) {
  return recipe_parse("x.yaml", text, strlen(text), "/base", n, overrides, recipe, error);
}

// What is written is read as the same recipe.
static inline void check_round_trip(const Recipe *r) {
  char folder[] = "/tmp/plait-recipe-XXXXXX";
  assert_non_null(mkdtemp(folder));
  char *path = xformat("%s/recipe.yaml", folder);
  Error error = {0};
  assert_int_equal(recipe_write(r, path, &error), PLAIT_OK);
  Recipe again;
  if (recipe_load(path, 0, NULL, &again, &error) < 0) fail_msg("%s", error.message);
  assert_true(recipe_equal(r, &again));
  recipe_free(&again);
  assert_int_equal(folder_remove(folder, &error), PLAIT_OK);
  free(path);
}
