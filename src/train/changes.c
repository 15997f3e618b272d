// Compares a run with what its checkpoint has recorded.
#include "train/changes.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/locale_utf8.h"
#include "checkpoint/checksum.h"
#include "model/config_reader.h"
#include "recipe/recipe_keys.h"
#include "train/learning_rate.h"
#include <stdlib.h>
#include <string.h>

enum { EDGE = 4 << 20, MOST_SHOWN = 160 };

// Contents ------------------------------------------------------------------------------------------------------------

static int add_file(Checksum *sum, const char *path) {
  FileMap map;
  Error ignored = {0};
  if (file_map(path, &map, &ignored)) return 0;
  uint64_t size = map.size;
  size_t edge = map.size < EDGE ? map.size : EDGE;
  checksum_feed(sum, &size, sizeof size);
  checksum_feed(sum, map.data, edge);
  checksum_feed(sum, (const char *)map.data + map.size - edge, edge);
  file_unmap(&map);
  return 1;
}

// Of up to two files, as 16 digits; null where one cannot be read.
static json_t *fingerprint(const char *prefix, const char *const *ends, int count) {
  Checksum sum;
  int read = 1;
  checksum_begin(&sum);
  for (int i = 0; i < count; i++) {
    char *path = xformat("%s%s", prefix, ends[i]);
    read &= add_file(&sum, path);
    free(path);
  }
  char text[32];
  snprintf(text, sizeof text, "%016llx", (unsigned long long)checksum_value(&sum));
  return read ? json_string(text) : json_null();
}

json_t *changes_facts(const Recipe *recipe) {
  const struct { const char *key; const RecipeCorpora *list; } corpora[] = {{"data.train", &recipe->data.train},
                                                                            {"data.valid", &recipe->data.valid}};
  json_t *facts = json_object();
  for (int k = 0; k < 2; k++) {
    json_t *list = json_array();
    for (int i = 0; i < corpora[k].list->count; i++)
      json_array_append_new(list, fingerprint(corpora[k].list->items[i].prefix, (const char *[]){".idx", ".bin"}, 2));
    json_object_set_new(facts, corpora[k].key, list);
  }
  if (recipe->data.tokenizer)
    json_object_set_new(facts, "data.tokenizer", fingerprint(recipe->data.tokenizer, (const char *[]){""}, 1));
  return facts;
}

static int has_null(const json_t *value) {
  size_t i;
  const json_t *item;
  if (!value || json_is_null(value)) return 1;
  json_array_foreach((json_t *)value, i, item) if (json_is_null(item)) return 1;
  return 0;
}

// Lists ---------------------------------------------------------------------------------------------------------------

__attribute__((format(printf, 2, 3))) static void add(char **list, const char *format, ...) {
  char *item, *old = *list;
  va_list arguments;
  va_start(arguments, format);
  if (vasprintf(&item, format, arguments) < 0) CHECK(0, "no memory");
  va_end(arguments);
  *list = old ? xformat("%s, %s", old, item) : xstrdup(item);
  free(item);
  free(old);
}

static void note(Changes *c, int other_run, const char *what, const char *before, const char *after, const char *why) {
  char *text = xformat("%s %.*s%s %s %.*s%s%s", what, MOST_SHOWN, before, strlen(before) > MOST_SHOWN ? "..." : "",
                       locale_arrow(), MOST_SHOWN, after, strlen(after) > MOST_SHOWN ? "..." : "", why);
  add(&c->listed, "%s", text);
  if (other_run) add(&c->other_run, "%s", text);
  free(text);
}

// The model -----------------------------------------------------------------------------------------------------------

static char *json_text(const json_t *value) {
  char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
  return text ? text : xstrdup("not given");
}

static void compare_json(Changes *c, int other_run, const char *path, const json_t *before, const json_t *after) {
  const char *key;
  const json_t *value;
  json_t *keys = json_object();
  json_object_update(keys, (json_t *)before);
  json_object_update(keys, (json_t *)after);
  json_object_foreach(keys, key, value) {
    const json_t *was = json_object_get(before, key), *is = json_object_get(after, key);
    if (was && is && config_same(was, is)) continue;
    char *what = xformat("model.config: %s of %s", key, path), *a = json_text(was), *b = json_text(is);
    note(c, other_run, what, a, b, "");
    free(what);
    free(a);
    free(b);
  }
  json_decref(keys);
}

// 1: the file of now describes the same model, number for number; -1: not known.
static int compare_config(Changes *c, const ModelConfig *config, const json_t *extra) {
  const json_t *stored = json_object_get(extra, "config");
  const char *text = json_string_value(stored);
  ModelConfig before = {0};
  Error ignored = {0};
  int same = -1;
  if (text && !model_config_parse(&before, text, strlen(text), "config.json", &ignored)) {
    same = model_config_equal(&before, config);
    compare_json(c, !same, config->path, before.json, config->json);
  }
  model_config_free(&before);
  return same;
}

// The recipe ----------------------------------------------------------------------------------------------------------

// Whether a key's files hold what they held: 1 yes, 0 no, -1 not known.
static int same_contents(const char *key, const json_t *before, const json_t *after) {
  const json_t *was = json_object_get(before, key), *is = json_object_get(after, key);
  return has_null(was) || has_null(is) ? -1 : json_equal(was, is);
}

static bool same_weights(const RecipeCorpora *a, const RecipeCorpora *b) {
  bool same = a->count == b->count;
  for (int i = 0; same && i < a->count; i++) same = a->items[i].weight == b->items[i].weight;
  return same;
}

static void compare_key(Changes *c, const RecipeKey *key, const Recipe *was, const Recipe *is, int contents) {
  bool equal = recipe_value_equal(key, was, is), files = contents >= 0;
  if (key->of_this_start || (equal && contents != 0)) return;
  char *a = recipe_value_text(was, key->path), *b = recipe_value_text(is, key->path);
  if (equal) {
    char *text = xformat("%s (the contents of %s)", key->path, b);
    add(&c->listed, "%s", text);
    add(&c->other_run, "%s", text);
    free(text);
  } else {
    bool moved = files && contents == 1;
    if (moved && key->kind == RECIPE_CORPORA)
      moved =
          same_weights((const void *)((const char *)was + key->offset), (const void *)((const char *)is + key->offset));
    note(c, key->another_run && !moved, key->path, a, b, moved ? " (the same contents)" : "");
  }
  free(a);
  free(b);
}

// Consequences --------------------------------------------------------------------------------------------------------

// Of one thing that both recipes decide, from the step after `step` on: a sentence, or NULL where nothing follows.
typedef char *Follows(const Recipe *was, const Recipe *is, int64_t step);

// "2.4e-5"
static void rate_text(double rate, char text[24]) {
  snprintf(text, 24, "%.1e", rate);
  char *exponent = strchr(text, 'e') + 2, *digits = exponent;
  while (*digits == '0' && digits[1]) digits++;
  memmove(exponent, digits, strlen(digits) + 1);
}

// Keys of the schedule change the learning rates of all steps; said is where the next step's is not what was to come.
static char *follow_rate(const Recipe *was, const Recipe *is, int64_t step) {
  char last[24], expected[24], next[24];
  rate_text(learning_rate_at(was, step - 1), last);
  rate_text(learning_rate_at(was, step), expected);
  rate_text(learning_rate_at(is, step), next);
  if (FAULT(jumps_of_the_rate_are_not_said, !strcmp(next, expected) || !strcmp(next, last), 1)) return NULL;
  return xformat("the learning rate goes from %s to %s", last, next);
}

// Step n takes samples (n − 1) · batch.global on, whatever the steps before have taken.
static char *follow_order(const Recipe *was, const Recipe *is, int64_t step) {
  int64_t had = step * was->batch.global, next = step * is->batch.global;
  if (had == next) return NULL;
  return xformat(
      "batch.global counts the samples of all steps, so with %d instead of %d the next step begins at sample "
      "%lld, not %lld: %lld samples are %s",
      is->batch.global, was->batch.global, (long long)next, (long long)had,
      (long long)(next > had ? next - had : had - next), next > had ? "left out" : "trained on again");
}

// The scale is part of the state.
static char *follow_loss_scale(const Recipe *was, const Recipe *is, int64_t step) {
  double before = was->loss_scale.initial, now = is->loss_scale.initial;
  if (!(before > 0) || !(now > 0) || before == now) return NULL;
  return xformat("loss_scale.initial counts where a run begins: this one continues with the loss scale that its "
                 "checkpoint has");
}

static char *follow_keep(const Recipe *was, const Recipe *is, int64_t step) {
  char *folder = xformat("%s/checkpoints", is->run.dir);
  int keep = is->checkpoint.keep, before = was->checkpoint.keep, there = checkpoint_steps_there(folder);
  free(folder);
  if (!keep || (before && before <= keep) || there < keep) return NULL;
  return xformat("checkpoint.keep is %d: the next checkpoint removes %d of the %d that are there", keep,
                 there + 1 - keep, there);
}

static char *describe_follows(const Recipe *was, const Recipe *is, int64_t step) {
  static Follows *const all[] = {follow_rate, follow_order, follow_loss_scale, follow_keep};
  char *text = NULL;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    char *old = text, *sentence = all[i](was, is, step);
    if (!sentence) continue;
    text = xformat("%snote: %s\n", old ? old : "", sentence);
    free(sentence);
    free(old);
  }
  return text;
}

void changes_find(const Recipe *recipe, const ModelConfig *config, const json_t *facts, const Checkpoint *checkpoint,
                  Changes *changes) {
  *changes = (Changes){0};
  json_t *extra = checkpoint_extra(checkpoint);
  const char *text = json_string_value(json_object_get(extra, "recipe"));
  const json_t *before = json_object_get(extra, "facts");
  Recipe was;
  Error error = {0};
  if (!text) return;
  if (recipe_parse("its recipe", text, strlen(text), "/", 0, NULL, &was, &error)) {
    changes->unknown =
        xformat("this version of plait cannot read the recipe in %s, so it is not known what has changed "
                "since then: %s",
                checkpoint_path(checkpoint), error.message);
    return;
  }
  int same_model = compare_config(changes, config, extra);
  for (int i = 0; i < recipe_key_count; i++) {
    const RecipeKey *key = &recipe_keys[i];
    int contents = same_contents(key->path, before, facts);
    if (!strcmp(key->path, "model.config")) contents = same_model == 1 ? 1 : -1; // keys that differ are in the list
    compare_key(changes, key, &was, recipe, contents);
  }
  changes->follows = describe_follows(&was, recipe, checkpoint_step(checkpoint));
  recipe_free(&was);
}

void changes_free(Changes *changes) {
  free(changes->listed);
  free(changes->other_run);
  free(changes->unknown);
  free(changes->follows);
  *changes = (Changes){0};
}
