// Loading of recipes: the YAML tree and the overrides walk through the key table into the struct.
#include "recipe/recipe.h"
#include "base/file.h"
#include "recipe/recipe_check.h"
#include "recipe/recipe_loader.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_KEYS = 128 };

int loader_set_default(RecipeLoader *loader, const RecipeKey *key) {
  loader->recipe->where[key - recipe_keys] = NULL;
  loader->recipe->overridden[key - recipe_keys] = !loader->positions;
  if (!key->fallback) {
    size_t size = key->kind == RECIPE_CORPORA ? sizeof(RecipeCorpora)
                  : key->kind == RECIPE_INTS  ? sizeof(RecipeInts)
                  : key->kind == RECIPE_BYTES ? sizeof(int64_t)
                                              : sizeof(char *);
    memset((char *)loader->recipe + key->offset, 0, size);
    return PLAIT_OK;
  }
  YamlNode word = {.kind = YAML_SCALAR, .line = 1, .column = 1, .text = key->fallback, .plain = true}, *node = &word;
  int code = PLAIT_OK;
  if (*key->fallback == '[')
    code = yaml_tree_parse(key->path, key->fallback, strlen(key->fallback), &loader->arena, &node, loader->error);
  return code < 0 ? code : loader_set_value(loader, key, node);
}

static int apply(RecipeLoader *loader, const char *path, const YamlNode *at, const YamlNode *value);

// The value of a key by its old name: set as the new one, and a note says so.
static int apply_renamed(RecipeLoader *loader, const RecipeAlias *alias, const YamlNode *at, const YamlNode *value) {
  const RecipeKey *key = recipe_key_find(alias->path);
  YamlNode now = *value;
  const char *changed = "";
  if (value->kind == YAML_SCALAR) now.text = recipe_alias_value(alias, value->text);
  if (now.text != value->text) {
    now.plain = true;
    changed = arena_format(&loader->arena, ": write %s: %s", alias->path, now.text);
  }
  int code = apply(loader, alias->path, at, &now);
  if (code == PLAIT_OK && loader->recipe->where[key - recipe_keys])
    recipe_note(loader->recipe, alias->path, "%s is now called %s%s", alias->old, alias->path, changed);
  return code;
}

static int given_twice(RecipeLoader *loader, const RecipeKey *key, const YamlNode *at) {
  return error_set(loader->error, PLAIT_BAD_INPUT, "%s: %s is given a second time, once by its old name; keep one",
                   loader_place(loader, at), key->path);
}

// mesh=null: as if no key of the section had been given.
static int set_section_default(RecipeLoader *loader, const char *section) {
  int code = PLAIT_OK;
  size_t n = strlen(section);
  for (int i = 0; i < recipe_key_count && !code; i++)
    if ((size_t)recipe_key_section_length(&recipe_keys[i]) == n && !strncmp(recipe_keys[i].path, section, n))
      code = loader_set_default(loader, &recipe_keys[i]);
  return code;
}

static int apply(RecipeLoader *loader, const char *path, const YamlNode *at, const YamlNode *value) {
  const RecipeAlias *alias = recipe_alias_find(path);
  if (alias) return apply_renamed(loader, alias, at, value);
  const RecipeKey *key = recipe_key_find(path);
  if (key && yaml_is_null(value)) return loader_set_default(loader, key);
  if (key) {
    if (loader->positions && loader->recipe->where[key - recipe_keys]) return given_twice(loader, key, at);
    loader->recipe->where[key - recipe_keys] = loader_before(loader, path, value);
    loader->recipe->overridden[key - recipe_keys] = !loader->positions;
    return loader_set_value(loader, key, value);
  }
  if (!recipe_section_exists(path)) {
    const char *hint = recipe_key_hint(path, &loader->arena);
    if (!*hint && value->kind == YAML_MAP && value->count) // "training: {learning_rate: …}": the key in it says more
      return apply(loader, arena_join(&loader->arena, path, value->keys[0]->text), value->keys[0], value->items[0]);
    return error_set(loader->error, PLAIT_BAD_INPUT, "%s%.100s: unknown key%s", loader_before(loader, path, at), path,
                     hint);
  }
  if (yaml_is_null(value)) return loader->positions ? PLAIT_OK : set_section_default(loader, path);
  if (value->kind != YAML_MAP)
    return error_set(loader->error, PLAIT_BAD_INPUT, "%s%s must hold keys, as in %s: {key: value}, not %s",
                     loader_before(loader, path, value), path, path, yaml_shown(value, &loader->arena));
  for (int i = 0; i < value->count; i++) {
    const char *child = arena_join(&loader->arena, path, value->keys[i]->text);
    int code = apply(loader, child, value->keys[i], value->items[i]);
    if (code < 0) return code;
  }
  return PLAIT_OK;
}

static int apply_file(RecipeLoader *loader, const char *text, size_t size) {
  YamlNode *root;
  int code = yaml_tree_parse(loader->name, text, size, &loader->arena, &root, loader->error);
  if (code < 0) return code;
  if (yaml_is_null(root))
    return error_set(loader->error, PLAIT_BAD_INPUT, "%s: holds no keys; a recipe starts with model, data, …",
                     loader->name);
  if (root->kind != YAML_MAP)
    return error_set(loader->error, PLAIT_BAD_INPUT, "%s: a recipe is a map of keys (model: …), not %s",
                     loader_place(loader, root), yaml_shown(root, &loader->arena));
  for (int i = 0; i < root->count && code == PLAIT_OK; i++)
    code = apply(loader, root->keys[i]->text, root->keys[i], root->items[i]);
  return code;
}

static int apply_override(RecipeLoader *loader, const char *text, const char *folder) {
  const char *equals = strchr(text, '=');
  if (!equals || equals == text)
    return error_set(loader->error, PLAIT_BAD_INPUT,
                     "\"%.200s\" is not of the form key=value, as in batch.micro=4", text);
  const char *path = arena_format(&loader->arena, "%.*s", (int)(equals - text), text);
  loader->name = arena_format(&loader->arena, "%.200s", text);
  loader->positions = false;
  loader->folder = folder;
  YamlNode *value;
  int code = yaml_tree_parse(loader->name, equals + 1, strlen(equals + 1), &loader->arena, &value, loader->error);
  return code < 0 ? code : apply(loader, path, value, value);
}

// --- entry -----------------------------------------------------------------------------------------------------------

int loader_begin(RecipeLoader *loader, const char *name, const char *folder, Recipe *recipe, Recipe *defaults,
                 Error *error) {
  *recipe = (Recipe){0};
  *loader = (RecipeLoader){.recipe = recipe, .name = name, .positions = true, .error = error};
  CHECK(recipe_key_count <= MAX_KEYS);
  if (!getcwd(loader->here, sizeof loader->here))
    return error_set(error, PLAIT_FAILED, "the current folder cannot be found: %s", strerror(errno));
  loader->folder = absolute_path(&loader->arena, loader->here, folder);
  recipe->name = arena_strdup(&recipe->arena, name);
  recipe->where = arena_array(&recipe->arena, const char *, recipe_key_count);
  recipe->overridden = arena_array(&recipe->arena, bool, recipe_key_count);
  recipe->place = arena_format(&recipe->arena, "%s: ", name);
  int code = PLAIT_OK;
  for (int i = 0; i < recipe_key_count && code == PLAIT_OK; i++) code = loader_set_default(loader, &recipe_keys[i]);
  *defaults = *recipe;
  return code;
}

int loader_end(RecipeLoader *loader, int code) {
  arena_free(&loader->arena);
  if (code < 0) recipe_free(loader->recipe);
  return code;
}

static int check_training_keys(const Recipe *r, Error *error) {
  for (int i = 0; i < recipe_key_count; i++)
    if (r->where[i] && recipe_keys[i].generation)
      return error_set(error, PLAIT_BAD_INPUT,
                       "%s%s is for generation and not for training; plait generate takes it after the model",
                       r->where[i], recipe_keys[i].path);
  return PLAIT_OK;
}

int recipe_parse(const char *name, const char *text, size_t size, const char *folder, int override_count,
                 char **overrides, Recipe *recipe, Error *error) {
  RecipeLoader loader;
  Recipe defaults;
  int code = loader_begin(&loader, name, folder, recipe, &defaults, error);
  if (code == PLAIT_OK) code = apply_file(&loader, text, size);
  for (int i = 0; i < override_count && code == PLAIT_OK; i++)
    code = apply_override(&loader, overrides[i], loader.here);
  if (code == PLAIT_OK) code = check_training_keys(recipe, error);
  if (code == PLAIT_OK) code = recipe_check(recipe, &defaults, error);
  return loader_end(&loader, code);
}

static bool takes_key(const RecipeForInference *asked, const RecipeKey *key) {
  return key->inference && (asked->generates || !key->generation);
}

// "mesh, parallel, …": the sections, and the keys without one, where there are keys that the command takes.
static const char *inference_sections(const RecipeForInference *asked, Arena *arena) {
  const char *text = "", *last = "";
  for (int i = 0; i < recipe_key_count; i++) {
    const char *path = recipe_keys[i].path, *section = arena_format(arena, "%.*s", (int)strcspn(path, "."), path);
    if (!takes_key(asked, &recipe_keys[i]) || !strcmp(section, last)) continue;
    text = arena_format(arena, "%s%s%s", text, *text ? ", " : "", last = section);
  }
  return text;
}

// A key of training, such as optimizer.lr, was surely not meant.
static int check_inference_keys(const RecipeForInference *asked, const Recipe *r, Arena *arena, Error *error) {
  const char *command = asked->command;
  for (int i = 0; i < recipe_key_count; i++) {
    const RecipeInstead *option = asked->instead;
    if (!r->where[i] || takes_key(asked, &recipe_keys[i])) continue;
    while (option && option->key && strcmp(option->key, recipe_keys[i].path)) option++;
    if (option && option->key)
      return error_set(error, PLAIT_BAD_INPUT, "%s does nothing here; give %s", option->key, option->option);
    return error_set(
        error, PLAIT_BAD_INPUT,
        "%s does nothing here; %s takes keys that say how it computes, of %s, and the options of %s --help",
        recipe_keys[i].path, command, inference_sections(asked, arena), command);
  }
  return PLAIT_OK;
}

int recipe_for_inference(const RecipeForInference *asked, Recipe *recipe, Error *error) {
  static const char nothing[] =
      "{model: {config: /none}, data: {train: /none}, run: {dir: /none}}"; // what every recipe must have
  RecipeLoader loader;
  Recipe defaults;
  int code = loader_begin(&loader, asked->command, "/", recipe, &defaults, error);
  for (int i = 0; i < asked->key_count && code == PLAIT_OK; i++)
    code = apply_override(&loader, asked->keys[i], loader.here);
  if (code == PLAIT_OK) code = check_inference_keys(asked, recipe, &loader.arena, error);
  if (code) return loader_end(&loader, code);
  int micro_given = recipe_is_given(recipe, "batch.micro");
  loader.name = asked->command;
  loader.positions = true;
  code = apply_file(&loader, nothing, strlen(nothing));
  recipe->place = ""; // of keys that no file has
  recipe->data.seq_len = asked->seq_len;
  StepParallel parallel = recipe_parallel(recipe);
  int data_ranks = parallel_row_ranks(&parallel, LAYOUT_ROW_BATCH),
      ranks = parallel_row_ranks(&parallel, LAYOUT_ROW_SEQ);
  if (asked->generates && ranks > 1 && code == PLAIT_OK) // a token has one position
    code = error_set(error, PLAIT_BAD_INPUT,
                     "generation computes one token at a time, but these keys divide positions among %d ranks "
                     "(mesh.cp, parallel.sequence or layout.seq); leave that out, and take mesh.tp, mesh.pp or mesh.dp",
                     ranks);
  if (!micro_given) recipe->batch.micro = asked->rows > data_ranks ? asked->rows / data_ranks : 1;
  recipe->batch.global = recipe->batch.micro * data_ranks * recipe->mesh.pp;
  if (code == PLAIT_OK) code = recipe_check(recipe, &defaults, error);
  return loader_end(&loader, code);
}

static int refuse_folder(const char *path, Error *error) {
  char *inside = xformat("%s/recipe.yaml", path);
  int code = file_exists(inside) ? error_set(error, PLAIT_BAD_INPUT,
                                             "%s is a run and not a recipe; its recipe is %s", path, inside)
                                 : error_set(error, PLAIT_BAD_INPUT, "%s is a folder; a recipe is a YAML file", path);
  free(inside);
  return code;
}

int recipe_load(const char *path, int override_count, char **overrides, Recipe *recipe, Error *error) {
  *recipe = (Recipe){0};
  char *text;
  size_t size;
  int code = file_is_folder(path) ? refuse_folder(path, error) : file_read(path, YAML_MAX_BYTES, &text, &size, error);
  if (code < 0) return code;
  char *real = realpath(path, NULL); // a linked recipe means the folder that it lies in
  char *slash = real ? strrchr(real, '/') : NULL;
  if (slash) slash[slash == real] = 0;
  code = recipe_parse(path, text, size, slash ? real : ".", override_count, overrides, recipe, error);
  free(real);
  free(text);
  return code;
}

void recipe_free(Recipe *recipe) {
  arena_free(&recipe->arena);
  *recipe = (Recipe){0};
}
