// The typed getters, and their sentences.
#include "model/config_reader.h"
#include "base/fault.h"
#include "base/vec.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void config_bad_value(ConfigReader *r, const char *key, const json_t *value, const char *allowed) {
  char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
  r->code = error_set(r->error, PLAIT_BAD_INPUT, "%s: %s%s is %.60s%s; allowed: %s", r->file, r->prefix,
                      config_name(r, key), text ? text : "?", text && strlen(text) > 60 ? "…" : "", allowed);
  free(text);
}

static void remember(const ConfigReader *r, const char *key) {
  char name[160];
  snprintf(name, sizeof name, "%s%s", r->prefix, key);
  if (r->known) json_object_set_new(r->known, name, json_true());
}

static const json_t *given(const ConfigReader *r, const char *key) {
  const json_t *value = key ? json_object_get(r->object, key) : NULL;
  return json_is_null(value) ? NULL : value;
}

static const char *other_name(const ConfigReader *r, const char *key) {
  for (const ConfigAlias *a = r->aliases; a && a->key; a++)
    if (!strcmp(a->key, key)) return a->other;
  return NULL;
}

const char *config_name(const ConfigReader *r, const char *key) {
  const char *other = other_name(r, key);
  return !given(r, key) && given(r, other) ? other : key;
}

const json_t *config_value(ConfigReader *r, const char *key) {
  const char *other = other_name(r, key);
  const json_t *value = given(r, key), *second = given(r, other);
  remember(r, key);
  if (other) remember(r, other);
  if (!r->code && value && second && FAULT(other_names_are_not_compared, !config_same(value, second), 0)) {
    char *same = xformat("the same as %s%s, or only one of them", r->prefix, key);
    config_bad_value(r, other, second, same);
    free(same);
  }
  return value ? value : second;
}

int config_is_null(const ConfigReader *r, const char *key) { return json_is_null(json_object_get(r->object, key)); }

int config_whole(const json_t *value, int64_t *integer) {
  double x = json_number_value(value);
  if (json_is_integer(value)) return *integer = json_integer_value(value), 1;
  if (!json_is_real(value) || x != rint(x) || fabs(x) > 0x1p53) return 0;
  return *integer = (int64_t)x, 1;
}

int config_same(const json_t *a, const json_t *b) {
  const char *key;
  json_t *value;
  if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
  if (json_is_array(a) && json_is_array(b)) {
    int same = json_array_size(a) == json_array_size(b);
    for (size_t i = 0; i < json_array_size(a) && same; i++)
      same = config_same(json_array_get(a, i), json_array_get(b, i));
    return same;
  }
  if (!json_is_object(a) || !json_is_object(b)) return json_equal(a, b);
  int same = json_object_size(a) == json_object_size(b);
  json_object_foreach((json_t *)a, key, value) same = same && config_same(value, json_object_get(b, key));
  return same;
}

void config_missing(ConfigReader *r, const char *key, const char *allowed) {
  r->code = error_set(r->error, PLAIT_BAD_INPUT, "%s: the key %s%s is missing; allowed: %s", r->file, r->prefix, key,
                      allowed);
}

int64_t config_integer(ConfigReader *r, const char *key, int64_t lowest, int64_t highest, int64_t absent) {
  if (r->code) return 0;
  char allowed[80];
  snprintf(allowed, sizeof allowed, "an integer from %lld to %lld", (long long)lowest, (long long)highest);
  const json_t *value = config_value(r, key);
  if (!value) {
    if (absent < 0) config_missing(r, key, allowed);
    return absent;
  }
  int64_t n;
  if (config_whole(value, &n) && n >= lowest && n <= highest) return n;
  config_bad_value(r, key, value, allowed);
  return 0;
}

double config_real(ConfigReader *r, const char *key, double lowest, int closed, double highest, double absent) {
  if (r->code) return 0;
  char allowed[80];
  snprintf(allowed, sizeof allowed, "a number %s %g and below %g", closed ? "from" : "above", lowest, highest);
  const json_t *value = config_value(r, key);
  if (!value) {
    if (isnan(absent)) config_missing(r, key, allowed);
    return absent;
  }
  double x = json_is_number(value) ? json_number_value(value) : NAN;
  if ((closed ? x >= lowest : x > lowest) && x < highest) return x;
  config_bad_value(r, key, value, allowed);
  return 0;
}

double config_probability(ConfigReader *r, const char *key, double absent) {
  return config_real(r, key, 0, 1, 1, absent);
}

int config_boolean(ConfigReader *r, const char *key, int absent) {
  if (r->code) return 0;
  const json_t *value = config_value(r, key);
  if (!value) return absent;
  if (json_is_boolean(value)) return json_is_true(value);
  config_bad_value(r, key, value, "true or false");
  return 0;
}

ActivationKind config_activation(ConfigReader *r, const char *key, const char *absent) {
  static const struct {
    const char *name;
    ActivationKind kind;
  } known[] = {{"gelu_new", ACTIVATION_GELU_TANH}, {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
               {"gelu", ACTIVATION_GELU},          {"relu", ACTIVATION_RELU},
               {"silu", ACTIVATION_SILU},          {"swish", ACTIVATION_SILU}};
  if (r->code) return ACTIVATION_GELU;
  const json_t *value = config_value(r, key);
  const char *name = value ? json_string_value(value) : absent;
  for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
    if (!strcmp(name, known[i].name)) return known[i].kind;
  config_bad_value(r, key, value, "gelu_new, gelu_pytorch_tanh, gelu, relu, silu, swish");
  return ACTIVATION_GELU;
}

void config_only(ConfigReader *r, const char *key, const char *neutral) {
  const json_t *value = config_value(r, key);
  if (r->code || !value) return;
  json_t *expected = json_loads(neutral, JSON_DECODE_ANY, NULL);
  int same = config_same(value, expected);
  json_decref(expected);
  if (same) return;
  char allowed[120];
  snprintf(allowed, sizeof allowed, "only %s, because plait does not support anything else here", neutral);
  config_bad_value(r, key, value, allowed);
}

void config_must_divide(ConfigReader *r, const char *key, int64_t value, const char *by_key, int64_t by) {
  if (r->code || value % by == 0) return;
  const char *is = config_value(r, by_key) ? "is" : "is missing and then means";
  r->code = error_set(r->error, PLAIT_BAD_INPUT, "%s: %s is %lld; allowed: a multiple of %s, which %s %lld", r->file,
                      key, (long long)value, by_key, is, (long long)by);
}
