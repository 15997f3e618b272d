// Kinds of values by type, enum, const, and what refers to them or puts them together.
#include "chat/call_kinds.h"
#include <string.h>

enum { DEEPEST = 16 };

static unsigned kind_of_type(const json_t *type) {
  const char *name = json_string_value(type);
  return !name ? CALL_ALL : !strcmp(name, "string") ? CALL_TEXT : !strcmp(name, "null") ? CALL_NULL : CALL_OTHER;
}

static unsigned kind_of_value(const json_t *value) {
  return json_is_string(value) ? CALL_TEXT : json_is_null(value) ? CALL_NULL : CALL_OTHER;
}

static unsigned kinds_of_list(const json_t *list, unsigned (*kind)(const json_t *)) {
  unsigned kinds = 0;
  size_t i;
  json_t *item;
  json_array_foreach(list, i, item) kinds |= kind(item);
  return kinds;
}

const json_t *call_follow(const json_t *root, const char *reference) { // "#/$defs/name"
  if (strncmp(reference, "#/", 2) != 0) return NULL;
  const json_t *found = root;
  for (const char *at = reference + 2; found && *at;) {
    size_t n = strcspn(at, "/");
    found = json_object_getn(found, at, n);
    at += n + (at[n] == '/');
  }
  return found;
}

static unsigned kinds_of(const json_t *schema, const json_t *root, int depth) {
  const json_t *type = json_object_get(schema, "type"), *list = json_object_get(schema, "enum"), *item;
  const json_t *constant = json_object_get(schema, "const");
  const char *reference = json_string_value(json_object_get(schema, "$ref"));
  unsigned kinds = CALL_ALL, any = 0;
  size_t i;
  if (depth > DEEPEST) return kinds;
  if (json_is_array(type)) kinds &= kinds_of_list(type, kind_of_type);
  else if (type) kinds &= kind_of_type(type);
  if (list) kinds &= kinds_of_list(list, kind_of_value);
  if (constant) kinds &= kind_of_value(constant);
  if (reference) kinds &= kinds_of(call_follow(root, reference), root, depth + 1);
  json_array_foreach(json_object_get(schema, "allOf"), i, item) kinds &= kinds_of(item, root, depth + 1);
  list = json_object_get(schema, "anyOf");
  if (!list) list = json_object_get(schema, "oneOf");
  json_array_foreach(list, i, item) any |= kinds_of(item, root, depth + 1);
  return list ? kinds & any : kinds;
}

unsigned call_kinds(const json_t *schema, const json_t *root) { return kinds_of(schema, root, 0); }
