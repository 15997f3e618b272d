// One value of a cluster file: its text, checked against the key's row, into the field.
#include "base/nearest.h"
#include "machine/cluster_keys.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *cluster_place(ClusterReader *reader, const YamlNode *node) {
  if (!reader->positions) return reader->name;
  return arena_format(&reader->arena, "%s:%d:%d", reader->name, node->line, node->column);
}

// Decimal only: strtod would take hexadecimal, inf and nan as well.
static bool read_real(const YamlNode *node, double *value) {
  if (node->kind != YAML_SCALAR || !node->plain) return false;
  const char *text = node->text;
  if (!*text || strspn(text, "0123456789+-.eE") != strlen(text)) return false;
  char *end;
  *value = strtod(text, &end);
  return !*end && isfinite(*value);
}

static bool read_integer(const YamlNode *node, double *value) {
  if (node->kind != YAML_SCALAR || !node->plain || strlen(node->text) > 15) return false;
  const char *digits = node->text + (*node->text == '-' || *node->text == '+');
  if (!*digits || strspn(digits, "0123456789") != strlen(digits)) return false;
  *value = (double)strtoll(node->text, NULL, 10);
  return true;
}

static bool in_range(const ClusterKey *key, double value) { return value >= key->least && value <= key->most; }

// "; the nearest is 1", "; did you mean switch?", " in quotes", or "".
static const char *hint(ClusterReader *reader, const ClusterKey *key, const YamlNode *node) {
  double value;
  if (node->kind != YAML_SCALAR) return "";
  const char *const *words = cluster_key_words(key);
  if (words) {
    int count = 0;
    while (words[count]) count++;
    const char *nearest = nearest_word(node->text, words, count);
    return nearest ? arena_format(&reader->arena, "; did you mean %s?", nearest) : "";
  }
  if (!node->plain && (key->kind == CLUSTER_INT || key->kind == CLUSTER_REAL)) return " in quotes";
  bool number = key->kind == CLUSTER_INT || key->kind == CLUSTER_REAL || key->kind == CLUSTER_RATES;
  if (!number || !read_real(node, &value)) return "";
  if (key->kind == CLUSTER_INT && value != nearbyint(value) && in_range(key, nearbyint(value)))
    return arena_format(&reader->arena, "; the nearest is %.15g", nearbyint(value));
  if (value < key->least) return arena_format(&reader->arena, "; the nearest is %.15g", key->least);
  if (value > key->most) return arena_format(&reader->arena, "; the nearest is %.15g", key->most);
  return key->kind == CLUSTER_INT ? arena_format(&reader->arena, "; write %.0f", value) : "";
}

static int wrong(ClusterReader *reader, const ClusterKey *key, const char *path, const YamlNode *node) {
  char allowed[192];
  cluster_key_allowed(key, allowed, sizeof allowed);
  return error_set(reader->error, PLAIT_BAD_INPUT, "%s: %s must be %s, not %s%s", cluster_place(reader, node), path,
                   allowed, yaml_shown(node, &reader->arena), hint(reader, key, node));
}

int cluster_set_rate(ClusterReader *reader, const ClusterKey *key, const char *path, const YamlNode *node,
                     double *rate) {
  double value;
  if (!read_real(node, &value) || !in_range(key, value))
    return error_set(reader->error, PLAIT_BAD_INPUT, "%s: %s must be a number of at least %g %s, not %s%s",
                     cluster_place(reader, node), path, key->least, key->unit, yaml_shown(node, &reader->arena),
                     hint(reader, key, node));
  return *rate = value, PLAIT_OK;
}

static int wrong_dtype(ClusterReader *reader, const char *path, const YamlNode *name) {
  const char *names[DTYPE_COUNT], *list = NULL;
  int count = 0;
  for (int d = 0; d < DTYPE_COUNT; d++) {
    if (!cluster_dtype_has_rate((Dtype)d)) continue;
    names[count++] = dtype_name((Dtype)d);
    list = list ? arena_format(&reader->arena, "%s, %s", list, dtype_name((Dtype)d)) : dtype_name((Dtype)d);
  }
  const char *nearest = nearest_word(name->text, names, count);
  return error_set(reader->error, PLAIT_BAD_INPUT, "%s: %s: %s is not a dtype that has a rate; those are %s%s%s%s",
                   cluster_place(reader, name), path, yaml_shown(name, &reader->arena), list,
                   nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

static int set_rates(ClusterReader *reader, const ClusterKey *key, const char *path, const YamlNode *node,
                     double *rates) {
  if (node->kind != YAML_MAP) return wrong(reader, key, path, node);
  memset(rates, 0, sizeof *rates * DTYPE_COUNT);
  for (int i = 0; i < node->count; i++) {
    int dtype = dtype_from_name(node->keys[i]->text);
    if (dtype < 0 || !cluster_dtype_has_rate((Dtype)dtype)) return wrong_dtype(reader, path, node->keys[i]);
    const char *whole = arena_join(&reader->arena, path, node->keys[i]->text);
    int code = cluster_set_rate(reader, key, whole, node->items[i], &rates[dtype]);
    if (code < 0) return code;
  }
  if (rates[DTYPE_F32] > 0) return PLAIT_OK;
  return error_set(reader->error, PLAIT_BAD_INPUT, "%s: %s has no rate for fp32, in which some of every step is "
                   "computed; write %s: {fp32: RATE}", cluster_place(reader, node), path, key->name);
}

static int set_pair(ClusterReader *reader, const ClusterKey *key, const char *path, const YamlNode *node,
                    double *pair) {
  if (node->kind == YAML_SCALAR && !strcmp(node->text, "auto")) return pair[0] = pair[1] = -1, PLAIT_OK;
  if (node->kind != YAML_LIST || node->count != 2) return wrong(reader, key, path, node);
  for (int i = 0; i < 2; i++) {
    double value;
    if (!read_real(node->items[i], &value) || !in_range(key, value)) {
      char allowed[192];
      cluster_key_allowed(key, allowed, sizeof allowed);
      return error_set(reader->error, PLAIT_BAD_INPUT, "%s: %s must be %s, but it contains %s",
                       cluster_place(reader, node->items[i]), path, allowed,
                       yaml_shown(node->items[i], &reader->arena));
    }
    pair[i] = value;
  }
  return PLAIT_OK;
}

bool cluster_is_level_name(const char *text) {
  static const char *const others[] = {"device", "software", "name",   "source", "base",    "spread",
                                       "levels", "spaces",   "islands", "measured", "kernels", "host", "disk"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (!strcmp(text, others[i])) return false;
  return *text >= 'a' && *text <= 'z' && strlen(text) <= 32 &&
         strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-") == strlen(text);
}

static int set_level_name(ClusterReader *reader, const ClusterKey *key, const char *path, const YamlNode *node,
                          const char **field) {
  if (node->kind != YAML_SCALAR) return wrong(reader, key, path, node);
  if (!cluster_is_level_name(node->text)) {
    char allowed[192];
    cluster_key_allowed(key, allowed, sizeof allowed);
    return error_set(reader->error, PLAIT_BAD_INPUT,
                     "%s: %s must be %s, of at most 32 characters, and not the name of another section, not %s",
                     cluster_place(reader, node), path, allowed, yaml_shown(node, &reader->arena));
  }
  return *field = arena_strdup(&reader->cluster->arena, node->text), PLAIT_OK;
}

// The place of the word among those that are allowed, or -1.
static int read_word(const ClusterKey *key, const YamlNode *node) {
  const char *const *words = cluster_key_words(key);
  if (node->kind != YAML_SCALAR || (key->kind == CLUSTER_BOOL && !node->plain)) return -1;
  for (int i = 0; words[i]; i++)
    if (!strcmp(words[i], node->text)) return i;
  return -1;
}

int cluster_set_value(ClusterReader *reader, const ClusterKey *key, const char *path, const YamlNode *node,
                      void *field) {
  double value;
  int word = cluster_key_words(key) ? read_word(key, node) : 0;
  if (word < 0) return wrong(reader, key, path, node);
  switch (key->kind) {
  case CLUSTER_TEXT:
    if (node->kind != YAML_SCALAR || !*node->text || yaml_is_null(node)) return wrong(reader, key, path, node);
    return *(const char **)field = arena_strdup(&reader->cluster->arena, node->text), PLAIT_OK;
  case CLUSTER_LEVEL_NAME: return set_level_name(reader, key, path, node, field);
  case CLUSTER_SPACE_NAME: return *(const char **)field = cluster_key_words(key)[word], PLAIT_OK;
  case CLUSTER_INT:
    if (!read_integer(node, &value) || !in_range(key, value)) return wrong(reader, key, path, node);
    return *(int *)field = (int)value, PLAIT_OK;
  case CLUSTER_REAL:
    if (!read_real(node, &value) || !in_range(key, value)) return wrong(reader, key, path, node);
    return *(double *)field = value, PLAIT_OK;
  case CLUSTER_PAIR: return set_pair(reader, key, path, node, field);
  case CLUSTER_RATES: return set_rates(reader, key, path, node, field);
  case CLUSTER_LEVEL_KIND: return *(LevelKind *)field = (LevelKind)word, PLAIT_OK;
  case CLUSTER_BOOL:
  case CLUSTER_BACKEND:
  case CLUSTER_ATTENTION: return *(int *)field = word, PLAIT_OK;
  case CLUSTER_MAP:
  case CLUSTER_LIST:
  case CLUSTER_KERNELS:
  case CLUSTER_TABLE: break;
  }
  return wrong(reader, key, path, node);
}
