// Schemas put together: $ref, allOf, and what stands beside anyOf.
#include "grammar/schema.h"
#include <stdio.h>
#include <string.h>

static const char *const annotations[] = {
    "title",     "description",      "default",         "examples",    "$schema",     "$id",
    "id",        "$comment",         "$defs",           "definitions", "deprecated",  "readOnly",
    "writeOnly", "contentMediaType", "contentEncoding", "$anchor",     "$vocabulary", "contentSchema"};
static const char *const keywords[] = {
    "type",          "enum",          "const",         "anyOf",            "oneOf",
    "allOf",         "$ref",          "properties",    "required",         "additionalProperties",
    "items",         "prefixItems",   "minItems",      "maxItems",         "additionalItems",
    "minLength",     "maxLength",     "pattern",       "format",           "minimum",
    "maximum",       "exclusiveMinimum", "exclusiveMaximum", "not",        "if",
    "then",          "else",          "dependentRequired", "dependentSchemas", "dependencies",
    "patternProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "contains",
    "minContains",   "maxContains",   "minProperties", "maxProperties",    "uniqueItems",
    "multipleOf",    "$dynamicRef",   "$recursiveRef"};

static bool is_in(const char *key, const char *const *list, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!strcmp(key, list[i])) return true;
  return false;
}

bool schema_is_annotation(const char *key) { return is_in(key, annotations, sizeof annotations / sizeof *annotations); }
bool schema_is_keyword(const char *key) { return is_in(key, keywords, sizeof keywords / sizeof *keywords); }

// ---- $ref -----------------------------------------------------------------------------------------------------------

// The next part of a JSON pointer, after its "/", with ~1, ~0 and %XX read.
static const char *pointer_part(const char *at, char *part, size_t size) {
  size_t n = 0;
  for (; *at && *at != '/'; at++) {
    unsigned byte = (uint8_t)*at;
    if (*at == '~' && (at[1] == '0' || at[1] == '1')) byte = *++at == '0' ? '~' : '/';
    else if (*at == '%' && sscanf(at + 1, "%2x", &byte) == 1 && at[1] && at[2]) at += 2;
    if (n + 1 < size) part[n++] = (char)byte;
  }
  part[n] = 0;
  return at;
}

const json_t *schema_follow(Schema *s, const json_t *reference) {
  if (!json_is_string(reference)) return schema_refuse(s, ".$ref is not a string"), NULL;
  const char *text = json_string_value(reference), *at = text + 1;
  if (*text != '#' || (*at && *at != '/'))
    return schema_not_built(s, ".$ref is %.80s, and only references within the schema (#/…) are built", text), NULL;
  const json_t *found = s->root;
  char part[SCHEMA_PATH], path[SCHEMA_PATH];
  snprintf(path, sizeof path, "%s", s->path);
  snprintf(s->path, sizeof s->path, "%s", s->where);
  while (found && *at == '/') {
    at = pointer_part(at + 1, part, sizeof part);
    found =
        json_is_array(found) ? json_array_get(found, (size_t)strtoul(part, NULL, 10)) : json_object_get(found, part);
    schema_enter(s, part);
  }
  if (found) return found;
  snprintf(s->path, sizeof s->path, "%s", path);
  return schema_refuse(s, ".$ref is %.80s, which the schema does not have", text), NULL;
}

// ---- merging --------------------------------------------------------------------------------------------------------

static bool has_type(const json_t *types, const char *name) {
  size_t i;
  json_t *type;
  if (json_is_string(types)) return !strcmp(json_string_value(types), name);
  json_array_foreach((json_t *)types, i,
                     type) if (json_is_string(type) && !strcmp(json_string_value(type), name)) return true;
  return false;
}

static json_t *merge_types(const json_t *a, const json_t *b) {
  static const char *const names[] = {"object", "array", "string", "number", "boolean", "null"};
  json_t *both = json_array();
  for (int i = 0; i < 6; i++)
    if (has_type(a, names[i]) && has_type(b, names[i])) json_array_append_new(both, json_string(names[i]));
  bool in_a = has_type(a, "integer") || has_type(a, "number"), in_b = has_type(b, "integer") || has_type(b, "number");
  if (in_a && in_b && !(has_type(a, "number") && has_type(b, "number")))
    json_array_append_new(both, json_string("integer"));
  return both;
}

static json_t *merge_lists(const json_t *a, const json_t *b, bool all) {
  json_t *both = all ? json_copy((json_t *)a) : json_array(), *x, *y;
  size_t i, k;
  json_array_foreach((json_t *)b, i, y) {
    bool in_a = false;
    json_array_foreach((json_t *)a, k, x) in_a |= json_equal(x, y) != 0;
    if (in_a != all) json_array_append(both, y);
  }
  return both;
}

// Of two values of one keyword, the value that has both; NULL: not built.
static json_t *merge_values(const char *key, const json_t *a, const json_t *b) {
  static const char *const greater[] = {"minimum", "exclusiveMinimum", "minLength", "minItems"};
  static const char *const less[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"};
  if (json_equal((json_t *)a, (json_t *)b)) return json_incref((json_t *)a);
  if (!strcmp(key, "type")) return merge_types(a, b);
  if (!strcmp(key, "required") && json_is_array(a) && json_is_array(b)) return merge_lists(a, b, true);
  if (!strcmp(key, "enum") && json_is_array(a) && json_is_array(b)) return merge_lists(a, b, false);
  bool up = is_in(key, greater, 4);
  if (!json_is_number(a) || !json_is_number(b) || (!up && !is_in(key, less, 4))) return NULL;
  return json_incref((json_t *)((json_number_value(a) > json_number_value(b)) == up ? a : b));
}

// Keywords whose meaning depends on others beside them: those of one schema must be equal to those of the other, or
// absent in one with all that they depend on.
static bool scopes_differ(const json_t *a, const json_t *b) {
  static const char *const scopes[][3] = {{"properties", "additionalProperties", NULL},
                                          {"prefixItems", "items", "additionalItems"}};
  for (int i = 0; i < 2; i++) {
    bool in_a = false, in_b = false, equal = true;
    for (int k = 0; k < 3 && scopes[i][k]; k++) {
      const json_t *x = json_object_get(a, scopes[i][k]), *y = json_object_get(b, scopes[i][k]);
      in_a |= x != NULL;
      in_b |= y != NULL;
      equal &= x == y || (x && y && json_equal((json_t *)x, (json_t *)y));
    }
    if (in_a && in_b && !equal) return true;
  }
  return false;
}

// Two lists of properties, neither of which says anything of other keys.
static json_t *merge_properties(const json_t *a, const json_t *b) {
  const json_t *x = json_object_get(a, "properties"), *y = json_object_get(b, "properties");
  const json_t *rest = json_object_get(a, "additionalProperties"), *other = json_object_get(b, "additionalProperties");
  if (!json_is_object(x) || !json_is_object(y)) return NULL;
  if ((rest && !json_is_true(rest)) || (other && !json_is_true(other))) return NULL;
  json_t *both = json_copy((json_t *)x), *value;
  const char *key;
  json_object_foreach((json_t *)y, key, value) {
    const json_t *mine = json_object_get(x, key);
    if (mine && !json_equal((json_t *)mine, value)) return json_decref(both), NULL;
    json_object_set(both, key, value);
  }
  return both;
}

// A schema without its $ref: what that leads to, merged with the rest.
static const json_t *without_reference(Schema *s, const json_t *schema) {
  const json_t *reference = json_object_get(schema, "$ref");
  if (!reference) return schema;
  char path[SCHEMA_PATH];
  snprintf(path, sizeof path, "%s", s->path);
  const json_t *target = schema_follow(s, reference);
  if (!target) return NULL;
  snprintf(s->path, sizeof s->path, "%s", path);
  json_t *rest = json_copy((json_t *)schema);
  vec_push(&s->owned, rest);
  json_object_del(rest, "$ref");
  if (json_is_true(target)) return rest;
  if (!json_is_object(target)) return schema_not_built(s, ".$ref leads to what cannot be merged with the rest"), NULL;
  return schema_merge(s, target, rest);
}

const json_t *schema_merge(Schema *s, const json_t *a, const json_t *b) {
  if (++s->depth > SCHEMA_DEPTH)
    return schema_not_built(s, "nests deeper than the %d that are built", SCHEMA_DEPTH), NULL;
  a = without_reference(s, a);
  b = a ? without_reference(s, b) : NULL;
  s->depth--;
  if (!b) return NULL;
  json_t *properties = NULL, *all = json_copy((json_t *)a), *value;
  vec_push(&s->owned, all);
  if (scopes_differ(a, b) && !(properties = merge_properties(a, b)))
    return schema_not_built(s,
                         "puts schemas together whose properties or items would have to be merged, which is not built"),
           NULL;
  const char *key;
  json_object_foreach((json_t *)b, key, value) {
    const json_t *mine = json_object_get(a, key);
    if (schema_is_annotation(key) || !schema_is_keyword(key)) continue;
    if (!mine || (properties && !strcmp(key, "properties"))) {
      json_object_set(all, key, value);
      continue;
    }
    json_t *both = merge_values(key, mine, value);
    if (!both) {
      json_decref(properties);
      return schema_not_built(s, ".%s occurs twice in schemas that are put together, which is not built", key), NULL;
    }
    json_object_set_new(all, key, both);
  }
  if (properties) json_object_set_new(all, "properties", properties);
  return all;
}
