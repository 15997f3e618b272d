// Reads values of recipes. See recipe_loader.h.
#include "recipe/recipe_loader.h"
#include "base/nearest.h"
#include "parallel/recompute_list.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CORPORA = 4096 };

const char *loader_place(RecipeLoader *loader, const YamlNode *node) {
  if (!loader->positions) return loader->name;
  return arena_format(&loader->arena, "%s:%d:%d", loader->name, node->line, node->column);
}

const char *loader_before(RecipeLoader *loader, const char *path, const YamlNode *value) {
  size_t n = strlen(path);
  if (!loader->positions && !strncmp(loader->name, path, n) && loader->name[n] == '=') return "";
  return arena_format(&loader->recipe->arena, "%s: ", loader_place(loader, value));
}

static bool read_real(const YamlNode *node, double *value);

// "; the nearest is 64", for a number that is out of the range and whose nearest value is in it; or "".
static const char *nearest_number(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node) {
  double value;
  bool number = key->kind == RECIPE_INT || key->kind == RECIPE_LONG || key->kind == RECIPE_REAL ||
                key->kind == RECIPE_LR ||
                (key->kind == RECIPE_INTS && key->one_for_all);
  if (!number || !read_real(node, &value)) return "";
  if (key->kind != RECIPE_REAL && key->kind != RECIPE_LR && value != nearbyint(value)) return "";
  if (value < key->least && !key->above) return arena_format(&loader->arena, "; the nearest is %.15g", key->least);
  if (value > key->most && !key->below) return arena_format(&loader->arena, "; the nearest is %.15g", key->most);
  return "";
}

static int wrong(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node) {
  char allowed[512];
  recipe_key_allowed(key, allowed, sizeof allowed);
  const char *hint = "";
  bool quoted = node->kind == YAML_SCALAR && !node->plain && key->kind <= RECIPE_BOOL;
  if (node->kind == YAML_SCALAR && (key->words || (key->kind == RECIPE_BOOL && !quoted)))
    hint = recipe_word_hint(key, node->text, &loader->arena);
  else if (quoted) hint = " in quotes";
  else if (node->kind == YAML_SCALAR) hint = nearest_number(loader, key, node);
  return error_set(loader->error, PLAIT_BAD_INPUT, "%s%s must be %s, not %s%s", loader_before(loader, key->path, node),
                   key->path, allowed, yaml_shown(node, &loader->arena), hint);
}

static int wrong_item(RecipeLoader *loader, const RecipeKey *key, const YamlNode *item) {
  char allowed[512];
  recipe_key_allowed(key, allowed, sizeof allowed);
  return error_set(loader->error, PLAIT_BAD_INPUT, "%s%s must be %s, but it contains %s",
                   loader_before(loader, key->path, item), key->path, allowed, yaml_shown(item, &loader->arena));
}

static int not_built(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, const char *allowed) {
  return error_set(loader->error, PLAIT_BAD_INPUT, "%s%s: %s is not built yet; %s",
                   loader_before(loader, key->path, node), key->path,
                   node->kind == YAML_SCALAR ? node->text : "this key", allowed);
}

// --- values ----------------------------------------------------------------------------------------------------------

static bool in_range(const RecipeKey *key, double value) {
  return (key->above ? value > key->least : value >= key->least) &&
         (key->below ? value < key->most : value <= key->most);
}

static bool read_integer(const YamlNode *node, int64_t *value) {
  if (node->kind != YAML_SCALAR || !node->plain) return false;
  const char *digits = node->text + (*node->text == '-' || *node->text == '+');
  if (!*digits || strspn(digits, "0123456789") != strlen(digits)) return false;
  errno = 0;
  *value = strtoll(node->text, NULL, 10);
  return errno == 0;
}

// Decimal only (strtod would take hexadecimal, inf and nan too); the nearest double, as strtod gives it.
static bool read_real(const YamlNode *node, double *value) {
  if (node->kind != YAML_SCALAR || !node->plain) return false;
  const char *text = node->text;
  if (!*text || strspn(text, "0123456789+-.eE") != strlen(text)) return false;
  char *end;
  *value = strtod(text, &end);
  return !*end && isfinite(*value);
}

static bool is_auto(const RecipeKey *key, const YamlNode *node) {
  return key->has_auto && node->kind == YAML_SCALAR && !strcmp(node->text, recipe_auto_word(key));
}

static int set_integer(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, void *field) {
  int64_t value;
  if (is_auto(key, node)) value = key->automatic;
  else if (!read_integer(node, &value) || !in_range(key, (double)value)) return wrong(loader, key, node);
  if (key->kind == RECIPE_INT) *(int *)field = (int)value;
  else *(int64_t *)field = value;
  return PLAIT_OK;
}

static int set_real(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, double *field) {
  double value;
  if (is_auto(key, node)) value = (double)key->automatic;
  else if (!read_real(node, &value) || !in_range(key, value)) return wrong(loader, key, node);
  *field = value;
  return PLAIT_OK;
}

// 3e-5, or "10 %".
static int set_lr(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, double *field) {
  size_t n = node->kind == YAML_SCALAR ? strlen(node->text) : 0;
  if (!n || node->text[n - 1] != '%') return set_real(loader, key, node, field);
  for (n--; n && node->text[n - 1] == ' ';) n--;
  YamlNode number = *node;
  double percent;
  number.text = arena_format(&loader->arena, "%.*s", (int)n, node->text);
  if (!read_real(&number, &percent) || percent < 0 || percent > 100) return wrong(loader, key, node);
  *field = -percent;
  return PLAIT_OK;
}

static int set_pair(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, double field[2]) {
  if (node->kind != YAML_LIST || node->count != 2) return wrong(loader, key, node);
  for (int i = 0; i < 2; i++) {
    double value;
    if (!read_real(node->items[i], &value) || !in_range(key, value)) return wrong_item(loader, key, node->items[i]);
    field[i] = value;
  }
  return PLAIT_OK;
}

static int set_ints(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, RecipeInts *field) {
  RecipeInts list = {0};
  int64_t one;
  const RecipeWord *word = node->kind == YAML_SCALAR ? recipe_word(key, node->text) : NULL;
  if (word) return *field = (RecipeInts){.count = word->value}, PLAIT_OK;
  if (key->one_for_all && read_integer(node, &one)) {
    if (!in_range(key, (double)one)) return wrong(loader, key, node);
    *field = (RecipeInts){1, {(int)one}};
    return PLAIT_OK;
  }
  if (node->kind == YAML_LIST && node->count > RECIPE_MAX_INTS)
    return error_set(loader->error, PLAIT_BAD_INPUT, "%s%s has %d numbers, but at most %d are allowed",
                     loader_before(loader, key->path, node), key->path, node->count, RECIPE_MAX_INTS);
  if (node->kind != YAML_LIST || node->count < 1) return wrong(loader, key, node);
  for (int i = 0; i < node->count; i++) {
    int64_t value;
    if (!read_integer(node->items[i], &value) || !in_range(key, (double)value))
      return wrong_item(loader, key, node->items[i]);
    list.items[list.count++] = (int)value;
  }
  *field = list;
  return PLAIT_OK;
}

static int wrong_axis(RecipeLoader *loader, const RecipeKey *key, const YamlNode *item) {
  const char *names[LAYOUT_WORDS];
  for (int i = 0; i < LAYOUT_WORDS; i++) names[i] = axis_names[layout_axes_named[i]];
  const char *nearest = item->kind == YAML_SCALAR ? nearest_word(item->text, names, LAYOUT_WORDS) : NULL;
  char allowed[64];
  recipe_axes_allowed(allowed, sizeof allowed);
  if (item->kind == YAML_SCALAR && axis_by_name(item->text) == AXIS_PP)
    return error_set(loader->error, PLAIT_BAD_INPUT,
                     "%s%s: pp cuts layers, not dims; allowed are %s; parallel.layers says how the layers "
                     "are divided over pp",
                     loader_before(loader, key->path, item), key->path, allowed);
  return error_set(loader->error, PLAIT_BAD_INPUT, "%s%s: %s is not a mesh axis that cuts dims; allowed are %s%s%s%s",
                   loader_before(loader, key->path, item), key->path, yaml_shown(item, &loader->arena), allowed,
                   nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

// "auto", or [tp]: names of axes, each once.
static int set_axes(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, LayoutWords *field) {
  LayoutWords list = {.count = -1};
  if (node->kind == YAML_SCALAR && !strcmp(node->text, "auto")) return *field = list, PLAIT_OK;
  if (node->kind != YAML_LIST) return wrong(loader, key, node);
  list.count = 0;
  for (int i = 0; i < node->count; i++) {
    const YamlNode *item = node->items[i];
    int axis = 0, twice = 0;
    while (axis < LAYOUT_WORDS &&
           (item->kind != YAML_SCALAR || strcmp(item->text, axis_names[layout_axes_named[axis]])))
      axis++;
    for (int k = 0; k < list.count && axis < LAYOUT_WORDS; k++) twice |= list.axis[k] == layout_axes_named[axis];
    if (twice)
      return error_set(loader->error, PLAIT_BAD_INPUT, "%s%s names %s twice; an axis cuts a dim once",
                       loader_before(loader, key->path, item), key->path, item->text);
    if (axis == LAYOUT_WORDS) return wrong_axis(loader, key, item);
    list.axis[list.count++] = layout_axes_named[axis];
  }
  return *field = list, PLAIT_OK;
}

static int set_bool(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, bool *field) {
  if (node->kind != YAML_SCALAR || !node->plain) return wrong(loader, key, node);
  if (strcmp(node->text, "true") && strcmp(node->text, "false")) return wrong(loader, key, node);
  *field = node->text[0] == 't';
  return PLAIT_OK;
}

static const char *built_words(RecipeLoader *loader, const RecipeKey *key) {
  const char *text = NULL;
  for (const RecipeWord *word = key->words; word->name; word++) {
    if (word->later) continue;
    text = text ? arena_format(&loader->arena, "%s, %s", text, word->name)
                : arena_format(&loader->arena, "what is: %s", word->name);
  }
  return text;
}

static int set_choice(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, int *field) {
  if (node->kind != YAML_SCALAR) return wrong(loader, key, node);
  const RecipeWord *word = recipe_word(key, node->text);
  if (!word) return wrong(loader, key, node);
  if (word->later) return not_built(loader, key, node, built_words(loader, key));
  *field = word->value;
  return PLAIT_OK;
}

static int set_mb(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, int *field) {
  if (node->kind != YAML_SCALAR || recipe_word(key, node->text)) return set_choice(loader, key, node, field);
  char digits[16];
  size_t n = strspn(node->text, "0123456789");
  if (!n || n >= sizeof digits || strcmp(node->text + n + strspn(node->text + n, " "), "MB"))
    return wrong(loader, key, node);
  snprintf(digits, sizeof digits, "%.*s", (int)n, node->text);
  int64_t value = strtoll(digits, NULL, 10);
  if (!in_range(key, (double)value)) return wrong(loader, key, node);
  *field = (int)value;
  return PLAIT_OK;
}

static int set_bytes(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, int64_t *field) {
  static const struct {
    const char *name;
    double scale;
  } unit[] = {{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
  char number[32];
  double value, scale = 1;
  size_t n = node->kind == YAML_SCALAR ? strlen(node->text) : 0;
  for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
    if (n > 2 && !strcmp(node->text + n - 2, unit[i].name)) scale = unit[i].scale, n -= 2;
  while (n && node->text[n - 1] == ' ') n--;
  if (!n || n >= sizeof number) return wrong(loader, key, node);
  memcpy(number, node->text, n);
  number[n] = 0;
  YamlNode digits = *node;
  digits.text = number;
  if (!read_real(&digits, &value) || !in_range(key, value * scale)) return wrong(loader, key, node);
  *field = (int64_t)(value * scale + 0.5);
  return PLAIT_OK;
}

// A list as text: YAML takes one in parentheses apart at its commas, and nested lists are segments too.
static bool list_text(const YamlNode *node, FILE *out) {
  for (int i = 0; i < node->count; i++) {
    const YamlNode *item = node->items[i];
    if (item->kind == YAML_MAP) return false;
    if (i) fputs(", ", out);
    if (item->kind == YAML_SCALAR) fputs(item->text, out);
    else {
      fputc('(', out);
      if (!list_text(item, out)) return false;
      fputc(')', out);
    }
  }
  return true;
}

static int set_word_or_list(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, RecipeWordOrList *field) {
  RecomputeList list;
  Error problem = {0};
  if (node->kind == YAML_MAP) return wrong(loader, key, node);
  if (node->kind == YAML_SCALAR && !strpbrk(node->text, ",(* ")) {
    *field = (RecipeWordOrList){0};
    return set_choice(loader, key, node, &field->word);
  }
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out, "no memory");
  bool good = true;
  if (node->kind == YAML_LIST) good = list_text(node, out);
  else fputs(node->text, out);
  fclose(out);
  int code = !good ? wrong(loader, key, node)
             : recompute_list_parse(text, 0, &list, &problem)
                 ? error_set(loader->error, PLAIT_BAD_INPUT, "%s%s: the list %s",
                             loader_before(loader, key->path, node), key->path, problem.message)
                 : PLAIT_OK;
  if (!code) {
    char *normal = recompute_list_normal(text);
    *field = (RecipeWordOrList){RECIPE_RECOMPUTE_LIST, arena_strdup(&loader->recipe->arena, normal)};
    free(normal);
  }
  free(text);
  return code;
}

char *absolute_path(Arena *arena, const char *folder, const char *text) {
  size_t length = strlen(folder);
  while (text[0] != '/' && !strncmp(text, "..", 2) && (!text[2] || text[2] == '/')) {
    while (length && folder[length - 1] == '/') length--;
    while (length && folder[length - 1] != '/') length--;
    text += text[2] ? 3 : 2;
    while (text[0] == '/') text++;
  }
  const char *joined = text[0] == '/' ? text : arena_format(arena, "%.*s/%s", (int)length, folder, text);
  char *path = arena_strdup(arena, joined), *to = path;
  for (const char *from = joined; *from;) {
    while (*from == '/') from++;
    size_t n = strcspn(from, "/");
    if (n && !(n == 1 && *from == '.')) {
      *to++ = '/';
      memmove(to, from, n);
      to += n;
    }
    from += n;
  }
  if (to == path) *to++ = '/';
  *to = 0;
  return path;
}

static int set_path(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, char **field) {
  if (node->kind != YAML_SCALAR || !*node->text) return wrong(loader, key, node);
  if (recipe_word(key, node->text)) return *field = arena_strdup(&loader->recipe->arena, node->text), PLAIT_OK;
  if (!strncmp(node->text, "~/", 2))
    return error_set(loader->error, PLAIT_BAD_INPUT, "%s%s: ~ is not expanded here; write the full path",
                     loader_before(loader, key->path, node), key->path);
  *field = absolute_path(&loader->recipe->arena, loader->folder, node->text);
  if (strlen(*field) < PATH_MAX) return PLAIT_OK;
  return error_set(loader->error, PLAIT_BAD_INPUT, "%s%s: the path is longer than %d bytes",
                   loader_before(loader, key->path, node), key->path, PATH_MAX - 1);
}

// "h200-node" is a name, "h200-node.yaml" and "clusters/mine" are paths.
static int set_name_or_path(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, char **field) {
  size_t n = node->kind == YAML_SCALAR ? strlen(node->text) : 0;
  if (!n || strchr(node->text, '/') || (n > 5 && !strcmp(node->text + n - 5, ".yaml")))
    return set_path(loader, key, node, field);
  *field = arena_strdup(&loader->recipe->arena, node->text);
  return PLAIT_OK;
}

static int set_corpus(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, RecipeCorpus *corpus) {
  corpus->weight = 1;
  if (node->kind != YAML_MAP) return set_path(loader, key, node, &corpus->prefix);
  for (int i = 0; i < node->count; i++) {
    const YamlNode *name = node->keys[i], *value = node->items[i];
    int code = PLAIT_OK;
    if (!strcmp(name->text, "prefix")) code = set_path(loader, key, value, &corpus->prefix);
    else if (strcmp(name->text, "weight"))
      code = error_set(loader->error, PLAIT_BAD_INPUT, "%s%s: unknown key %s; allowed are prefix and weight",
                       loader_before(loader, key->path, name), key->path, yaml_shown(name, &loader->arena));
    else if (!read_real(value, &corpus->weight) || !(corpus->weight > 0))
      code = error_set(loader->error, PLAIT_BAD_INPUT, "%s%s: weight must be a number above 0, not %s",
                       loader_before(loader, key->path, value), key->path, yaml_shown(value, &loader->arena));
    if (code < 0) return code;
  }
  if (corpus->prefix) return PLAIT_OK;
  return error_set(loader->error, PLAIT_BAD_INPUT, "%s%s: this entry has no prefix",
                   loader_before(loader, key->path, node), key->path);
}

static int set_corpora(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node, RecipeCorpora *field) {
  bool list = node->kind == YAML_LIST;
  int count = list ? node->count : 1;
  if (count < 1 || node->kind == YAML_MAP) return wrong(loader, key, node);
  if (count > MAX_CORPORA)
    return error_set(loader->error, PLAIT_BAD_INPUT, "%s%s: at most %d entries are allowed, not %d",
                     loader_before(loader, key->path, node), key->path, MAX_CORPORA, count);
  RecipeCorpora corpora = {arena_array(&loader->recipe->arena, RecipeCorpus, count), count};
  for (int i = 0; i < count; i++) {
    int code = set_corpus(loader, key, list ? node->items[i] : node, &corpora.items[i]);
    if (code < 0) return code;
  }
  *field = corpora;
  return PLAIT_OK;
}

int loader_set_value(RecipeLoader *loader, const RecipeKey *key, const YamlNode *node) {
  void *field = (char *)loader->recipe + key->offset;
  switch (key->kind) {
  case RECIPE_INT:
  case RECIPE_LONG: return set_integer(loader, key, node, field);
  case RECIPE_REAL: return set_real(loader, key, node, field);
  case RECIPE_LR: return set_lr(loader, key, node, field);
  case RECIPE_PAIR: return set_pair(loader, key, node, field);
  case RECIPE_INTS: return set_ints(loader, key, node, field);
  case RECIPE_AXIS_LIST: return set_axes(loader, key, node, field);
  case RECIPE_BOOL: return set_bool(loader, key, node, field);
  case RECIPE_CHOICE: return set_choice(loader, key, node, field);
  case RECIPE_MB: return set_mb(loader, key, node, field);
  case RECIPE_BYTES: return set_bytes(loader, key, node, field);
  case RECIPE_WORD_OR_LIST: return set_word_or_list(loader, key, node, field);
  case RECIPE_PATH:
  case RECIPE_WORD_OR_PATH: return set_path(loader, key, node, field);
  case RECIPE_NAME_OR_PATH: return set_name_or_path(loader, key, node, field);
  case RECIPE_CORPORA: return set_corpora(loader, key, node, field);
  }
  CHECK(0, "%s has no kind", key->path);
  return PLAIT_BAD_INPUT;
}
