// What reads keys into a recipe: from files and overrides (recipe.c), and for variants (recipe_variant.c). Values are
// read by one function a kind of key (recipe_loader.c).
#pragma once
#include "base/yaml.h"
#include "recipe/recipe_keys.h"
#include <limits.h>

typedef struct RecipeLoader {
  Recipe *recipe;
  const char *name;            // of the source in messages: the file, or the override
  bool positions;              // messages carry line and column
  const char *folder;          // that relative paths start from
  char here[PATH_MAX];         // the current folder
  Arena arena;                 // trees and messages, freed at the end
  Error *error;
} RecipeLoader;

const char *loader_place(RecipeLoader *loader, const YamlNode *node); // "recipe.yaml:5:12", or the override
// The beginning of a message about a key, as recipe_where gives it: "recipe.yaml:5:12: ", "batch={micro: 4}: ", and
// nothing where the override is KEY=VALUE itself, since the message names the key and the value.
const char *loader_before(RecipeLoader *loader, const char *path, const YamlNode *value);
// Reads a key's value into the recipe; PLAIT_BAD_INPUT, one sentence with the place, where the key does not allow it.
int loader_set_value(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node);
// FOLDER/TEXT without "." parts and doubled slashes. A ".." that TEXT begins with goes up from FOLDER, which has no
// symbolic links in it; other ".." stay, since a link may stand before them.
char *absolute_path(Arena *arena, const char *folder, const char *text);

// A recipe of defaults alone, also in *defaults, and a loader for what comes after them. Ended by loader_end, which
// frees the recipe where `code` is an error, and returns it.
int loader_begin(RecipeLoader *loader, const char *name, const char *folder, Recipe *recipe, Recipe *defaults,
                 Error *error);
int loader_end(RecipeLoader *loader, int code);
int loader_set_default(RecipeLoader *loader, const RecipeKey *key); // as if it had not been given
