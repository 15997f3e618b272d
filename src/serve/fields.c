// The keys of a request: known, ignored, refused.
#include "serve/fields.h"
#include "base/fault.h"
#include "base/nearest.h"
#include <math.h>
#include <string.h>

typedef enum Treatment { READ, IGNORED, REFUSED } Treatment;
typedef struct Field {
  const char *name;
  FieldEndpoint endpoints;
  Treatment treatment;
  const char *usual;
} Field;

enum { TEXT = FIELD_TEXT, CHAT = FIELD_CHAT, BOTH = FIELD_BOTH };
static const Field fields[] = {
#define FIELD(name, endpoints, treatment, usual, meaning) {#name, (FieldEndpoint)(endpoints), treatment, usual},
#include "serve/fields.def"
#undef FIELD
};
enum { FIELDS = sizeof fields / sizeof *fields };

static const Field *find(const char *name, FieldEndpoint endpoint) {
  for (int i = 0; i < FIELDS; i++)
    if (!strcmp(fields[i].name, name) && fields[i].endpoints & endpoint) return &fields[i];
  return NULL;
}

static int unknown(const char *name, FieldEndpoint endpoint, Refusal *f) {
  const char *names[FIELDS];
  int count = 0;
  bool chat = endpoint == FIELD_CHAT;
  if (chat && !strcmp(name, "prompt"))
    return refusal_set(f, 400, "unknown_field", name, "v1/chat/completions takes messages in the place of a prompt");
  if (find(name, chat ? FIELD_TEXT : FIELD_CHAT))
    return refusal_set(f, 400, "unknown_field", name,
                       "%s is a field of v1/%scompletions, which this request is not for", name, chat ? "" : "chat/");
  for (int i = 0; i < FIELDS; i++)
    if (fields[i].endpoints & endpoint) names[count++] = fields[i].name;
  const char *nearest = nearest_word(name, names, count);
  return refusal_set(f, 400, "unknown_field", name, "%.60s is not a field of this request%s%s%s", name,
                     nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

static bool is_usual(const json_t *value, const char *usual) {
  json_t *right = json_loads(usual, JSON_DECODE_ANY, NULL);
  bool same = json_equal(value, right);
  json_decref(right);
  return same;
}

int fields_check(json_t *request, FieldEndpoint endpoint, int64_t *ignored, Refusal *f) {
  const char *key;
  json_t *value;
  void *next;
  json_object_foreach_safe(request, next, key, value) {
    const Field *field = find(key, endpoint);
    if (!field) return unknown(key, endpoint, f);
    if (json_is_null(value)) json_object_del(request, key);
    else if (field->treatment == IGNORED) ++*ignored;
    else if (field->treatment == REFUSED && !is_usual(value, field->usual))
      return strcmp(field->usual, "null")
                 ? refusal_set(f, 400, "not_built", key, "%s is not built; null and %s are taken", key, field->usual)
                 : refusal_set(f, 400, "not_built", key, "%s is not built; only null is taken", key);
  }
  return 0;
}

int field_integer(const json_t *object, const char *key, int64_t least, int64_t most, int64_t *value, Refusal *f) {
  const json_t *v = json_object_get(object, key);
  double number = json_number_value(v);
  if (!v) return 0;
  if (!json_is_number(v) || number != floor(number) || number < (double)least || number > (double)most)
    return refusal_set(f, 400, "invalid_value", key, "%s must be a whole number from %lld to %lld", key,
                       (long long)least, (long long)most);
  *value = json_is_integer(v) ? json_integer_value(v) : (int64_t)number;
  return 0;
}

int field_number(const json_t *object, const char *key, double least, double most, double *value, Refusal *f) {
  const json_t *v = json_object_get(object, key);
  double number = json_number_value(v);
  if (!v) return 0;
  if (!json_is_number(v) || !(number >= least && number <= most))
    return refusal_set(f, 400, "invalid_value", key, "%s must be a number from %g to %g", key, least, most);
  *value = number;
  return 0;
}

int field_flag(const json_t *object, const char *key, bool *value, Refusal *f) {
  const json_t *v = json_object_get(object, key);
  if (v && !json_is_boolean(v)) return refusal_set(f, 400, "invalid_value", key, "%s must be true or false", key);
  if (v) *value = json_is_true(v);
  return 0;
}
