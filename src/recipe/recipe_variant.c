// A recipe with other values: the one way to ask for something else.
#include "base/fault.h"
#include "recipe/recipe_check.h"
#include "recipe/recipe_loader.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

// The end of the next word: blanks within quotes or brackets belong to it.
static char *word_end(char *at) {
  char quote = 0;
  for (int depth = 0; *at && (*at != ' ' || quote || depth); at++) {
    if (quote == '"' && *at == '\\' && at[1]) at++;
    else if (quote) quote = *at == quote ? 0 : quote;
    else if (*at == '"' || *at == '\'') quote = *at;
    else depth += (*at == '[' || *at == '{') - (*at == ']' || *at == '}');
  }
  return at;
}

// Facts that follow from the value which a recipe had are those of the new value.
static int settle(Recipe *r, const RecipeKey *key, Error *error) {
  if (key->offset == offsetof(Recipe, precision)) return recipe_settle_precision(r, error);
  if (key->offset != offsetof(Recipe, mesh.dp)) return PLAIT_OK;
  r->dp_is_auto = false;
  return recipe_settle_data_ranks(r, error);
}

static int set_key(RecipeLoader *loader, const char *text) {
  const char *equals = strchr(text, '='), *where;
  const RecipeKey *key =
      equals ? recipe_key_find(arena_format(&loader->arena, "%.*s", (int)(equals - text), text)) : NULL;
  YamlNode *value;
  if (!key) return error_set(loader->error, PLAIT_BAD_INPUT, "\"%.200s\" sets no key", text);
  loader->name = text;
  int code = yaml_tree_parse(text, equals + 1, strlen(equals + 1), &loader->arena, &value, loader->error);
  if (code) return code;
  where = loader->recipe->where[key - recipe_keys];
  code = yaml_is_null(value) ? loader_set_default(loader, key) : loader_set_value(loader, key, value);
  loader->recipe->where[key - recipe_keys] = yaml_is_null(value) ? NULL : where;
  return code ? code : settle(loader->recipe, key, loader->error);
}

// *variant begins as `of`, with an arena of its own.
static void begin(const Recipe *of, Recipe *variant) {
  *variant = *of;
  variant->arena = (Arena){0};
  variant->where = arena_array(&variant->arena, const char *, recipe_key_count);
  variant->overridden = arena_array(&variant->arena, bool, recipe_key_count);
  if (of->where) memcpy(variant->where, of->where, sizeof *of->where * (size_t)recipe_key_count);
  if (of->overridden) memcpy(variant->overridden, of->overridden, sizeof *of->overridden * (size_t)recipe_key_count);
}

static int judge(int check(Recipe *, const Recipe *, Error *), Recipe *variant, Error *error) {
  RecipeLoader loader;
  Recipe none, defaults;
  int code = loader_begin(&loader, "", "/", &none, &defaults, error);
  if (!code) code = check(variant, &defaults, error);
  arena_free(&loader.arena);
  recipe_free(&none);
  return code;
}

static int set_keys(const Recipe *of, const char *keys, Recipe *variant, Error *error) {
  begin(of, variant);
  RecipeLoader loader = {.recipe = variant, .folder = "/", .error = error};
  int code = PLAIT_OK;
  for (char *at = arena_strdup(&loader.arena, keys), *end; *at && !code; at = end) {
    end = word_end(at);
    if (*end) *end++ = 0;
    if (*at) code = set_key(&loader, at);
  }
  arena_free(&loader.arena);
  return code;
}

int recipe_variant(const Recipe *of, const char *keys, Recipe *variant, Error *error) {
  int code = set_keys(of, keys, variant, error);
  if (!code && FAULT(variants_are_judged, 1, 0)) code = judge(recipe_check_keys, variant, error);
  variant->notes = of->notes; // are about what was written
  if (code) recipe_free(variant);
  return code;
}

bool recipe_refuses(const Recipe *of, const char *keys, const ModelConfig *config, ParallelProblem *problem) {
  Recipe variant;
  Error ignored = {0};
  StepModel model;
  Step step;
  CHECK(!set_keys(of, keys, &variant, &ignored), "%s", ignored.message);
  step_model_of(config, &model);
  recipe_step(&variant, &model, &step);
  bool refused = parallel_check(&step, &model, problem);
  recipe_free(&variant);
  return refused;
}

char *recipe_key_text(const char *path, const char *value) {
  Arena arena = {0};
  char *quoted = arena_array(&arena, char, 4 * strlen(value) + 1), *to = quoted;
  for (const char *c = value; *c; c++) {
    if ((unsigned char)*c < ' ') to += sprintf(to, "\\x%02x", *c);
    else {
      if (*c == '"' || *c == '\\') *to++ = '\\';
      *to++ = *c;
    }
  }
  char *text = xformat("%s=\"%s\"", path, quoted);
  arena_free(&arena);
  return text;
}

int recipe_with_ranks(const Recipe *of, int ranks, Recipe *variant, Error *error) {
  begin(of, variant);
  if (!of->dp_is_auto) return PLAIT_OK;
  variant->ranks = ranks ? ranks : of->mesh.pp * of->mesh.cp * of->mesh.tp;
  int code = judge(recipe_check_ranks, variant, error);
  if (code) recipe_free(variant);
  return code;
}
