// Reads the key table (recipe_keys.c): finds keys, their words and renamed keys; says whether a recipe's value fulfils
// a condition, in words which values a key allows, and what was meant by a key or a value that there is not.
#include "recipe/recipe_keys.h"
#include "base/fault.h"
#include "base/nearest.h"
#include "op/optimizer.h"
#include <ctype.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const RecipeAlias *recipe_alias_find(const char *old) {
  for (int i = 0; i < recipe_alias_count; i++)
    if (!strcmp(recipe_aliases[i].old, old)) return &recipe_aliases[i];
  return NULL;
}

const char *recipe_alias_value(const RecipeAlias *alias, const char *value) {
  for (size_t i = 0; i < sizeof alias->values / sizeof *alias->values && alias->values[i][0]; i++)
    if (!strcmp(alias->values[i][0], value)) return alias->values[i][1];
  return value;
}

const RecipeKey *recipe_key_find(const char *path) {
  for (int i = 0; i < recipe_key_count; i++)
    if (!strcmp(recipe_keys[i].path, path)) return &recipe_keys[i];
  return NULL;
}

int recipe_key_section_length(const RecipeKey *key) {
  const char *dot = strchr(key->path, '.');
  return dot ? (int)(dot - key->path) : 0;
}

const char *recipe_key_leaf(const RecipeKey *key) {
  int length = recipe_key_section_length(key);
  return length ? key->path + length + 1 : key->path;
}

bool recipe_section_exists(const char *name) {
  size_t length = strlen(name);
  for (int i = 0; i < recipe_key_count; i++)
    if (length && (size_t)recipe_key_section_length(&recipe_keys[i]) == length &&
        !strncmp(recipe_keys[i].path, name, length))
      return true;
  return false;
}

const RecipeWord *recipe_word(const RecipeKey *key, const char *name) {
  for (const RecipeWord *w = key->words; w && w->name; w++)
    if (!strcmp(w->name, name)) return w;
  return NULL;
}

static bool is_word(const RecipeKey *key, const char *name, int value) {
  const RecipeWord *word = recipe_word(key, name);
  return word && word->value == value;
}

static bool row_has_axis(const Recipe *recipe, const RecipeKey *key, const char *name) {
  LayoutWords axes =
      recipe_layout_row(recipe, (LayoutRow)((key->offset - offsetof(Recipe, layout.rows)) / sizeof axes));
  for (int i = 0; i < axes.count; i++)
    if (!strcmp(axis_names[axes.axis[i]], name)) return true;
  return false;
}

bool recipe_fulfils(const Recipe *recipe, const RecipeKey *key, const char *condition) {
  const void *field = (const char *)recipe + key->offset;
  const char *text = strchr(condition, ' ') + 1;
  bool negated = condition[0] == '!';
  if (!strncmp(condition, "reads ", 6)) return optimizer_reads((Op) * (const int *)field, text);
  if (!strcmp(condition, "splits backward")) return schedules[*(const int *)field].splits;
  if (key->kind == RECIPE_BOOL) return (*(const bool *)field == !strcmp(text, "true")) != negated;
  if (key->kind == RECIPE_WORD_OR_LIST && !strcmp(text, "list"))
    return (((const RecipeWordOrList *)field)->list != NULL) != negated;
  if (key->kind == RECIPE_CHOICE || key->kind == RECIPE_MB || key->kind == RECIPE_WORD_OR_LIST)
    return is_word(key, text, *(const int *)field) != negated; // the first member of RecipeWordOrList
  if (key->kind == RECIPE_BYTES) return (*(const int64_t *)field != 0) != negated;
  if (key->kind == RECIPE_PATH || key->kind == RECIPE_NAME_OR_PATH) return (*(char *const *)field != NULL) != negated;
  if (key->kind == RECIPE_AXIS_LIST) return row_has_axis(recipe, key, text) != negated;
  if (key->kind == RECIPE_CORPORA && field == &recipe->data.valid) field = recipe_corpora(recipe, true); // data.split
  if (key->kind == RECIPE_CORPORA) return (((const RecipeCorpora *)field)->count > 0) != negated;
  if (key->kind == RECIPE_INTS && key->words) return is_word(key, text, ((const RecipeInts *)field)->count) != negated;
  if (key->kind == RECIPE_INTS && condition[0] == '>') { // any of them
    const RecipeInts *list = field;
    for (int i = 0; i < list->count; i++)
      if (list->items[i] > strtoll(text, NULL, 10)) return true;
    return false;
  }
  if (key->kind != RECIPE_INT && key->kind != RECIPE_LONG) return false;
  int64_t value = key->kind == RECIPE_INT ? *(const int *)field : *(const int64_t *)field,
          least = strtoll(text, NULL, 10);
  return condition[0] == '>' ? value > least : (value == least) != negated;
}

const char *recipe_auto_word(const RecipeKey *key) {
  return key->auto_word ? key->auto_word : key->has_auto ? "auto" : NULL;
}

static void range_text(const RecipeKey *key, char *out, size_t size) {
  if (key->most >= INT_MAX) snprintf(out, size, "%s %.15g", key->above ? "above" : "of at least", key->least);
  else if (key->above && !key->below) snprintf(out, size, "above %.15g, at most %.15g", key->least, key->most);
  else if (key->below && !key->above) snprintf(out, size, "of at least %.15g, below %.15g", key->least, key->most);
  else if (key->above || key->below)
    snprintf(out, size, "in %c%.15g, %.15g%c", key->above ? '(' : '[', key->least, key->most, key->below ? ')' : ']');
  else snprintf(out, size, "from %.15g to %.15g", key->least, key->most);
}

static void words_text(const RecipeWord *words, char *out, size_t size) {
  out[0] = 0;
  for (int i = 0; words[i].name; i++) {
    size_t n = strlen(out);
    snprintf(out + n, size - n, "%s%s%s", i ? ", " : "", words[i].name, words[i].later ? " (not built yet)" : "");
  }
}

void recipe_axes_allowed(char *out, size_t size) {
  size_t n = 0;
  for (int i = 0; i < LAYOUT_WORDS && n < size; i++) {
    const char *before = i == 0 ? "" : i == LAYOUT_WORDS - 1 ? " and " : ", ";
    n += (size_t)snprintf(out + n, size - n, "%s%s", before, axis_names[layout_axes_named[i]]);
  }
}

void recipe_key_allowed(const RecipeKey *key, char *out, size_t size) {
  char range[128], words[256] = "";
  range_text(key, range, sizeof range);
  if (key->words) words_text(key->words, words, sizeof words);
  switch (key->kind) {
  case RECIPE_INT:
  case RECIPE_LONG: snprintf(out, size, "an integer %s%s", range, key->has_auto ? ", or auto" : ""); break;
  case RECIPE_REAL: {
    const char *word = recipe_auto_word(key);
    snprintf(out, size, "a number %s%s%s", range, word ? ", or " : "", word ? word : "");
    break;
  }
  case RECIPE_LR: snprintf(out, size, "a number %s, or N %% of optimizer.lr with N from 0 to 100", range); break;
  case RECIPE_PAIR: snprintf(out, size, "a list of two numbers %s", range); break;
  case RECIPE_INTS:
    if (key->words) snprintf(out, size, "%s, or a list of 1 to %d integers %s", words, RECIPE_MAX_INTS, range);
    else if (key->one_for_all)
      snprintf(out, size, "an integer %s, or a list of 1 to %d of them", range, RECIPE_MAX_INTS);
    else snprintf(out, size, "a list of 1 to %d integers %s", RECIPE_MAX_INTS, range);
    break;
  case RECIPE_AXIS_LIST: {
    char names[64];
    recipe_axes_allowed(names, sizeof names);
    snprintf(out, size, "auto, or a list of mesh axes out of %s", names);
    break;
  }
  case RECIPE_BOOL: snprintf(out, size, "true or false"); break;
  case RECIPE_CHOICE: snprintf(out, size, "one of %s", words); break;
  case RECIPE_MB: snprintf(out, size, "%s, or N MB with N %s", words, range); break;
  case RECIPE_BYTES: snprintf(out, size, "a number of bytes such as 2GB, 1.5GB or 800MB"); break;
  case RECIPE_WORD_OR_LIST: snprintf(out, size, "one of %s, or a list such as [full x 4, keep x 8]", words); break;
  case RECIPE_PATH: snprintf(out, size, "a path"); break;
  case RECIPE_WORD_OR_PATH: snprintf(out, size, "%s, or a path", words); break;
  case RECIPE_NAME_OR_PATH: snprintf(out, size, "a name, or a path"); break;
  case RECIPE_CORPORA: snprintf(out, size, "a path prefix, or a list of {prefix: PATH, weight: NUMBER}"); break;
  }
}

// ---- did you mean? -------------------------------------------------------------------------------------------------

enum { MOST_WORDS = 64, MOST_NAMES = 1024 };

// Letters and digits, in lower case: learning-rate and learningRate are learning_rate.
static void plain_name(const char *text, char *out, size_t size) {
  size_t n = 0;
  for (; *text && n + 1 < size; text++)
    if (*text != '_' && *text != '-') out[n++] = (char)tolower((unsigned char)*text);
  out[n] = 0;
}

// Is `theirs` all of a path, or its end after a dot?
static bool ends_path(const char *path, const char *theirs) {
  char p[128], t[128];
  plain_name(path, p, sizeof p);
  plain_name(theirs, t, sizeof t);
  size_t n = strlen(p), m = strlen(t);
  return n >= m && !strcmp(p + n - m, t) && (n == m || p[n - m - 1] == '.');
}

// The longest that fits: "fp16.enabled" before "enabled".
static const RecipeSynonym *find_synonym(const char *path) {
  const RecipeSynonym *best = NULL;
  for (int i = 0; i < recipe_synonym_count; i++)
    if (FAULT(other_names_are_unknown, ends_path(path, recipe_synonyms[i].theirs), false) &&
        (!best || strlen(recipe_synonyms[i].theirs) > strlen(best->theirs)))
      best = &recipe_synonyms[i];
  return best;
}

const RecipeKey *recipe_key_meant(const char *path) {
  const RecipeSynonym *synonym = find_synonym(path);
  if (synonym) return recipe_key_find(synonym->path);
  const char *last = strrchr(path, '.') ? strrchr(path, '.') + 1 : path;
  for (int i = 0; i < recipe_key_count; i++)
    if (!strcmp(recipe_key_leaf(&recipe_keys[i]), last)) return &recipe_keys[i];
  for (int i = 0; i < recipe_alias_count; i++)
    if (!strcmp(strrchr(recipe_aliases[i].old, '.') + 1, last)) return recipe_key_find(recipe_aliases[i].path);
  return NULL;
}

// The nearest key, section (for "optimiser") or name of another system, for a path that is misspelt.
static const char *nearest_name(const char *path) {
  static const char *const sections[] = {"model", "data", "mesh", "parallel", "batch", "optimizer", "schedule",
                                         "checkpoint", "eval", "run", "loss_scale", "layout", "moe"};
  const char *names[MOST_NAMES], *last = strrchr(path, '.');
  int count = 0;
  for (int i = 0; i < recipe_key_count; i++) names[count++] = recipe_keys[i].path;
  for (size_t i = 0; !last && i < sizeof sections / sizeof *sections; i++) names[count++] = sections[i];
  const char *nearest = nearest_word(path, names, count);
  if (nearest) return nearest;
  last = last ? last + 1 : path;
  count = 0;
  while (count < recipe_synonym_count && count < MOST_NAMES) names[count] = recipe_synonyms[count].theirs, count++;
  nearest = strlen(last) > 4 ? nearest_word(last, names, count) : NULL; // fewer letters are near to anything
  return nearest ? find_synonym(nearest)->path : NULL;
}

const char *recipe_key_hint(const char *path, Arena *arena) {
  const RecipeSynonym *synonym = find_synonym(path);
  const RecipeKey *key = recipe_key_meant(path);
  const char *name = key ? key->path : nearest_name(path);
  if (!name) return "";
  if (!synonym) return arena_format(arena, "; did you mean %s?", name);
  return arena_format(arena, "; did you mean %s%s%s%s%s%s?", name, *synonym->value ? "=" : "", synonym->value,
                      *synonym->note ? " (" : "", synonym->note, *synonym->note ? ")" : "");
}

const char *recipe_word_hint(const RecipeKey *key, const char *value, Arena *arena) {
  static const RecipeWord truth[] = {{"true", 1, false}, {"false", 0, false}, {0}};
  const RecipeWord *words = key->kind == RECIPE_BOOL ? truth : key->words;
  const char *names[MOST_WORDS];
  char written[64], theirs[64];
  int count = 0;
  while (words && words[count].name && count < MOST_WORDS) names[count] = words[count].name, count++;
  plain_name(value, written, sizeof written);
  for (int i = 0; i < count; i++) { // "True", "1F1B"
    plain_name(names[i], theirs, sizeof theirs);
    if (!strcmp(written, theirs) && !words[i].later) return arena_format(arena, "; did you mean %s?", names[i]);
  }
  for (int k = 0; k < recipe_word_synonym_count; k++) {
    plain_name(recipe_word_synonyms[k][0], theirs, sizeof theirs);
    for (int i = 0; i < count && FAULT(other_words_are_unknown, !strcmp(written, theirs), false); i++)
      if (!strcmp(names[i], recipe_word_synonyms[k][1]) && !words[i].later)
        return arena_format(arena, "; did you mean %s?", names[i]);
  }
  const char *nearest = nearest_word(value, names, count);
  return nearest ? arena_format(arena, "; did you mean %s?", nearest) : "";
}
