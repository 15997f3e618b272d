// The effective recipe, its comparison, and docs/recipes.md, all from the key table.
#include "base/file.h"
#include "base/yaml.h"
#include "op/optimizer.h"
#include "recipe/recipe_keys.h"
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static bool is_single(const RecipeCorpora *corpora) { return corpora->count == 1 && corpora->items[0].weight == 1; }

static bool is_list(const Recipe *recipe, const RecipeKey *key) {
  return key->kind == RECIPE_CORPORA && !is_single((const RecipeCorpora *)((const char *)recipe + key->offset));
}

// A blend as a list of lines, or between brackets on one line.
static void print_corpora(const RecipeCorpora *corpora, bool one_line, FILE *out) {
  if (is_single(corpora)) {
    yaml_print_text(corpora->items[0].prefix, out);
    return;
  }
  for (int i = 0; i < corpora->count; i++) {
    fputs(!one_line ? "\n    - {prefix: " : i ? ", {prefix: " : "[{prefix: ", out);
    yaml_print_text(corpora->items[i].prefix, out);
    fputs(", weight: ", out);
    yaml_print_real(corpora->items[i].weight, out);
    fputc('}', out);
  }
  if (one_line) fputc(']', out);
}

static bool is_absent(const Recipe *recipe, const RecipeKey *key) {
  if (!strncmp(key->path, "loss_scale.", 11) && recipe->precision != DTYPE_F16)
    return true; // refused there, so left out here
  const void *field = (const char *)recipe + key->offset;
  switch (key->kind) {
  case RECIPE_PATH:
  case RECIPE_NAME_OR_PATH:
  case RECIPE_WORD_OR_PATH: return !*(char *const *)field;
  case RECIPE_CORPORA: return ((const RecipeCorpora *)field)->count == 0;
  case RECIPE_INTS: return !key->words && ((const RecipeInts *)field)->count == 0;
  case RECIPE_BYTES: return *(const int64_t *)field == 0;
  default: return false;
  }
}

static void print_integer(const RecipeKey *key, int64_t value, FILE *out) {
  if (key->has_auto && value == key->automatic) fputs(recipe_auto_word(key), out);
  else fprintf(out, "%lld", (long long)value);
}

static void print_key_real(const RecipeKey *key, double value, FILE *out) {
  if (key->has_auto && value == (double)key->automatic) fputs(recipe_auto_word(key), out);
  else yaml_print_real(value, out);
}

static void print_mb(const RecipeKey *key, int value, FILE *out) {
  const RecipeWord *word = key->words;
  while (word->name && word->value != value) word++;
  if (word->name) fputs(word->name, out);
  else fprintf(out, "%d MB", value);
}

static void print_axes(const LayoutWords *axes, FILE *out) {
  if (axes->count < 0) {
    fputs("auto", out);
    return;
  }
  fputc('[', out);
  for (int i = 0; i < axes->count; i++) fprintf(out, "%s%s", i ? ", " : "", axis_names[axes->axis[i]]);
  fputc(']', out);
}

static bool is_automatic(const Recipe *recipe, const RecipeKey *key) {
  return recipe->dp_is_auto && key->offset == offsetof(Recipe, mesh.dp);
}

static void print_ints(const RecipeKey *key, const RecipeInts *list, FILE *out) {
  if (key->words && list->count <= 0) {
    for (const RecipeWord *word = key->words; word->name; word++)
      if (word->value == list->count) fputs(word->name, out);
    return;
  }
  if (key->one_for_all && list->count == 1) {
    fprintf(out, "%d", list->items[0]);
    return;
  }
  for (int i = 0; i < list->count; i++) fprintf(out, "%s%d", i ? ", " : "[", list->items[i]);
  fputc(']', out);
}

// 2GB where that is exact.
static void print_bytes(int64_t bytes, FILE *out) {
  static const struct { int64_t scale; const char *name; } unit[] = {
      {1000000000, "GB"}, {1000000, "MB"}, {1000, "kB"}, {1, ""}};
  for (int i = 0; i < 4; i++)
    if (bytes % unit[i].scale == 0) {
      fprintf(out, "%lld%s", (long long)(bytes / unit[i].scale), unit[i].name);
      return;
    }
}

// The first word of a value: others of the same value are only read.
static const char *word_of(const RecipeKey *key, int value) {
  for (const RecipeWord *word = key->words; word->name; word++)
    if (word->value == value) return word->name;
  return "";
}

static void print_value(const Recipe *recipe, const RecipeKey *key, FILE *out) {
  const void *field = (const char *)recipe + key->offset;
  if (is_automatic(recipe, key)) { // another start may have other ranks
    fputs(recipe_auto_word(key), out);
    return;
  }
  switch (key->kind) {
  case RECIPE_INT: print_integer(key, *(const int *)field, out); break;
  case RECIPE_LONG: print_integer(key, *(const int64_t *)field, out); break;
  case RECIPE_REAL: print_key_real(key, *(const double *)field, out); break;
  case RECIPE_LR: {
    double rate = *(const double *)field;
    yaml_print_real(fabs(rate), out);
    if (rate < 0) fputs(" %", out);
    break;
  }
  case RECIPE_PAIR:
    fputc('[', out);
    yaml_print_real(((const double *)field)[0], out);
    fputs(", ", out);
    yaml_print_real(((const double *)field)[1], out);
    fputc(']', out);
    break;
  case RECIPE_INTS: print_ints(key, field, out); break;
  case RECIPE_AXIS_LIST: print_axes(field, out); break;
  case RECIPE_BOOL: fputs(*(const bool *)field ? "true" : "false", out); break;
  case RECIPE_CHOICE: fputs(word_of(key, *(const int *)field), out); break;
  case RECIPE_MB: print_mb(key, *(const int *)field, out); break;
  case RECIPE_BYTES: print_bytes(*(const int64_t *)field, out); break;
  case RECIPE_WORD_OR_LIST:
    if (((const RecipeWordOrList *)field)->list) fprintf(out, "[%s]", ((const RecipeWordOrList *)field)->list);
    else fputs(word_of(key, ((const RecipeWordOrList *)field)->word), out);
    break;
  case RECIPE_WORD_OR_PATH:
    if (**(char *const *)field != '/') {
      fputs(*(char *const *)field, out);
      break;
    } // fall through
  case RECIPE_NAME_OR_PATH:
  case RECIPE_PATH: yaml_print_text(*(char *const *)field, out); break;
  case RECIPE_CORPORA: print_corpora(field, false, out); break;
  }
}

static bool same_section(const RecipeKey *a, const RecipeKey *b) {
  int length = recipe_key_section_length(a);
  return length == recipe_key_section_length(b) && !strncmp(a->path, b->path, (size_t)length);
}

// Prints the heading of a section where `key` starts one, and the key with the indentation it has there.
static void print_key(const RecipeKey *key, const RecipeKey *before, FILE *out) {
  int length = recipe_key_section_length(key);
  if (length && (!before || !same_section(before, key))) fprintf(out, "%.*s:\n", length, key->path);
  fprintf(out, "%s%s:", length ? "  " : "", recipe_key_leaf(key));
}

void recipe_print(const Recipe *recipe, FILE *out) {
  const RecipeKey *before = NULL;
  for (int i = 0; i < recipe_key_count; i++) {
    const RecipeKey *key = &recipe_keys[i];
    if (is_absent(recipe, key) || key->generation) continue;
    print_key(key, before, out);
    if (!is_list(recipe, key)) fputc(' ', out);
    print_value(recipe, key, out);
    fputc('\n', out);
    before = key;
  }
}

int recipe_write(const Recipe *recipe, const char *path, Error *error) {
  AtomicFile file;
  int code = file_begin(&file, path, error);
  if (code < 0) return code;
  fputs("# The effective recipe: every default filled in, all paths absolute. `plait train` on it continues the run; "
        "to repeat\n"
        "# it, add run.dir=NEW.\n",
        file.stream);
  recipe_print(recipe, file.stream);
  return file_commit(&file, error);
}

char *recipe_value_text(const Recipe *recipe, const char *path) {
  const RecipeKey *key = recipe_key_find(path);
  if (is_absent(recipe, key)) return xformat("not given");
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out, "no memory");
  if (key->kind == RECIPE_CORPORA) print_corpora((const void *)((const char *)recipe + key->offset), true, out);
  else print_value(recipe, key, out);
  fclose(out);
  return text;
}

static bool equal_text(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

static bool equal_corpora(const RecipeCorpora *a, const RecipeCorpora *b) {
  if (a->count != b->count) return false;
  for (int i = 0; i < a->count; i++)
    if (!equal_text(a->items[i].prefix, b->items[i].prefix) || a->items[i].weight != b->items[i].weight) return false;
  return true;
}

static bool equal_value(const RecipeKey *key, const void *a, const void *b) {
  switch (key->kind) {
  case RECIPE_INT:
  case RECIPE_MB:
  case RECIPE_CHOICE: return *(const int *)a == *(const int *)b;
  case RECIPE_BYTES:
  case RECIPE_LONG: return *(const int64_t *)a == *(const int64_t *)b;
  case RECIPE_WORD_OR_LIST:
    return ((const RecipeWordOrList *)a)->word == ((const RecipeWordOrList *)b)->word &&
           equal_text(((const RecipeWordOrList *)a)->list, ((const RecipeWordOrList *)b)->list);
  case RECIPE_LR:
  case RECIPE_REAL: return *(const double *)a == *(const double *)b;
  case RECIPE_PAIR: return !memcmp(a, b, 2 * sizeof(double));
  case RECIPE_INTS: return !memcmp(a, b, sizeof(RecipeInts));
  case RECIPE_AXIS_LIST: return layout_words_equal(a, b);
  case RECIPE_BOOL: return *(const bool *)a == *(const bool *)b;
  case RECIPE_PATH:
  case RECIPE_NAME_OR_PATH:
  case RECIPE_WORD_OR_PATH: return equal_text(*(char *const *)a, *(char *const *)b);
  case RECIPE_CORPORA: return equal_corpora(a, b);
  }
  return false;
}

bool recipe_value_equal(const RecipeKey *key, const Recipe *a, const Recipe *b) {
  if (is_automatic(a, key) || is_automatic(b, key)) return is_automatic(a, key) && is_automatic(b, key);
  return equal_value(key, (const char *)a + key->offset, (const char *)b + key->offset);
}

bool recipe_equal(const Recipe *a, const Recipe *b) {
  for (int i = 0; i < recipe_key_count; i++)
    if (!recipe_value_equal(&recipe_keys[i], a, b)) return false;
  return true;
}

// --- docs/recipes.md -------------------------------------------------------------------------------------------------

static void print_example(FILE *out) {
  const RecipeKey *before = NULL;
  fputs("```yaml\n", out);
  for (int i = 0; i < recipe_key_count; i++) {
    const RecipeKey *key = &recipe_keys[i];
    if (!key->example) continue;
    bool starts = !before || !same_section(before, key) || !recipe_key_section_length(key);
    if (starts && before) fputs(recipe_key_section_length(before) ? "}\n" : "\n", out);
    if (starts && recipe_key_section_length(key)) fprintf(out, "%.*s: {", recipe_key_section_length(key), key->path);
    fprintf(out, "%s%s: %s", starts ? "" : ", ", recipe_key_leaf(key), key->example);
    before = key;
  }
  fputs("}\n```\n", out);
}

// Text in a table cell: a bar would end the cell.
static void print_cell(const char *text, FILE *out) {
  for (; *text; text++) fputs(*text == '|' ? "\\|" : (char[]){*text, 0}, out);
}

// The optimizers that read a key which not all of them read, and their betas or momentum where these are not the key's
// default.
static void print_readers(const char *leaf, FILE *out) {
  const RecipeKey *names = recipe_key_find("optimizer.name");
  int listed = 0;
  for (const RecipeWord *word = names->words; word->name; word++) {
    if (!optimizer_reads((Op)word->value, leaf)) continue;
    const double *betas = op_def((Op)word->value)->optimizer->betas;
    fprintf(out, "%s%s", listed++ ? ", " : " For ", word->name);
    if (!strcmp(leaf, "betas") && strcmp(word->name, names->fallback))
      fprintf(out, " (default [%g, %g])", betas[0], betas[1]);
    double momentum = op_def((Op)word->value)->optimizer->momentum;
    if (!strcmp(leaf, "momentum") && momentum > 0) fprintf(out, " (default %g)", momentum);
  }
  if (listed) fputs(".", out);
}

void recipe_key_describe(const RecipeKey *key, FILE *out) {
  fputs(key->doc, out);
  for (const RecipeWord *word = key->words; key->meaning && word->name; word++)
    fprintf(out, " `%s`: %s.", word->name, key->meaning(word->value));
  if (key->path == strstr(key->path, "optimizer.")) print_readers(recipe_key_leaf(key), out);
}

static void print_row(const RecipeKey *key, FILE *out) {
  char allowed[512];
  recipe_key_allowed(key, allowed, sizeof allowed);
  fprintf(out, "| `%s` | ", key->path);
  print_cell(allowed, out);
  if (key->required) fputs(" | must be given | ", out);
  else if (key->fallback) fprintf(out, " | `%s` | ", key->fallback);
  else fputs(" | none | ", out);
  char *text;
  size_t size;
  FILE *cell = open_memstream(&text, &size);
  CHECK(cell, "no memory");
  recipe_key_describe(key, cell);
  fclose(cell);
  print_cell(text, out);
  free(text);
  if (key->another_run) fputs(" *Fixed.*", out);
  fputs(" |\n", out);
}

// The names of other systems, by key.
static void print_synonyms(FILE *out) {
  fputs("\n## Names in other systems\n\nplait refuses these names, and the message says the key that is meant:\n\n"
        "| key | elsewhere |\n|---|---|\n", out);
  for (int k = 0; k < recipe_key_count; k++) {
    int listed = 0;
    for (int i = 0; i < recipe_synonym_count; i++) {
      const RecipeSynonym *s = &recipe_synonyms[i];
      if (strcmp(s->path, recipe_keys[k].path)) continue;
      if (!listed++) fprintf(out, "| `%s` | ", s->path);
      fprintf(out, "%s`%s`", listed > 1 ? ", " : "", s->theirs);
      if (*s->value) fprintf(out, " (%s)", s->value);
    }
    if (listed) fputs(" |\n", out);
  }
}

void recipe_print_docs(FILE *out) {
  fputs("<!-- Made from the key table in src/recipe/recipe_keys.c by `plait recipe --docs`; a test compares. -->\n"
        "# Recipes\n\n"
        "A recipe is a YAML file that says what plait trains, on what data, and how. The tables below list every key "
        "and\n"
        "its default. A usual recipe:\n\n",
        out);
  print_example(out);
  fputs(
      "\n- You can also write a section over several lines. The order of keys does not matter.\n"
      "- `plait train RECIPE key=value …` sets keys from the command line: `batch.micro=4`, or\n"
      "  `'optimizer.betas=[0.9, 0.99]'`. The value is YAML. If a key is given twice, the later value wins; an empty\n"
      "  value means the default. Shells complete keys and values (`plait docs completion bash`).\n"
      "- Paths in the file are relative to the recipe's folder, those in `key=value` to the current folder.\n"
      "- Mistakes are refused before any data is read or memory allocated: unknown keys, keys that the file gives\n"
      "  twice, values of a wrong type or out of range, values that are not built yet. The message names the line and\n"
      "  column in the file, or the key where it was set by `key=value`. Anchors, aliases and tags of YAML are not\n"
      "  supported.\n"
      "- `plait recipe RECIPE` checks a recipe and prints the effective one: every default filled in, paths\n"
      "  absolute. A run keeps it as `recipe.yaml` in its folder: `plait train RUN/recipe.yaml` continues the run, "
      "and\n"
      "  with `run.dir=NEW` after it repeats the run in the folder NEW.\n"
      "- A run that resumes prints every key that has changed. Keys marked *Fixed* belong to the run: a resume that\n"
      "  changes one of them, or the contents of its files, is refused without `--force`.\n",
      out);
  const RecipeKey *before = NULL;
  for (int i = 0; i < recipe_key_count; i++) {
    const RecipeKey *key = &recipe_keys[i];
    if (!before || !same_section(before, key) || !recipe_key_section_length(key)) {
      int length = recipe_key_section_length(key);
      fprintf(out, "\n## %.*s\n\n| key | value | default | |\n|---|---|---|---|\n", length ? length : 99, key->path);
    }
    print_row(key, out);
    before = key;
  }
  fputs("\nRenamed keys, whose old names still work:", out);
  for (int i = 0; i < recipe_alias_count; i++)
    fprintf(out, "%s `%s` is now `%s`", i ? ";" : "", recipe_aliases[i].old, recipe_aliases[i].path);
  fputs(".\n", out);
  print_synonyms(out);
}

// "mesh.dp=8": a word of a command line, and of recipe_variant.
static char *key_word(const Recipe *recipe, const RecipeKey *key) {
  if (is_absent(recipe, key)) return xformat("%s=null", key->path);
  char *value = recipe_value_text(recipe, key->path), *word;
  bool list = *value == '[';
  for (char *from = value, *to = value; list; from++) { // "[dp, tp]" without blanks
    if (*from != ' ') *to++ = *from;
    if (!*from) break;
  }
  word = list || !strchr(value, ' ') ? xformat("%s=%s", key->path, value) : recipe_key_text(key->path, value);
  free(value);
  return word;
}

char *recipe_differences(const Recipe *recipe, const Recipe *other) {
  char *text = xstrdup("");
  for (int i = 0; i < recipe_key_count; i++) {
    if (recipe_value_equal(&recipe_keys[i], recipe, other)) continue;
    char *word = key_word(other, &recipe_keys[i]), *longer = xformat("%s%s%s", text, *text ? " " : "", word);
    free(text);
    free(word);
    text = longer;
  }
  return text;
}
