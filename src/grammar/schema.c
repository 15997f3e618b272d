// Compiling JSON schemas to nodes. Schemas are compiled once each, wherever references lead to them, so that they may
// be recursive.
#include "grammar/schema.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// Keywords that change which documents are allowed, and are not built, unless they have the value that says nothing.
static const char *const refused[] = {
    "not",          "if",           "then",          "else",          "dependentRequired", "dependentSchemas",
    "dependencies", "contains",     "minContains",   "maxContains",   "patternProperties", "propertyNames",
    "multipleOf",   "uniqueItems",  "minProperties", "maxProperties", "unevaluatedProperties",
    "unevaluatedItems", "$dynamicRef", "$recursiveRef"};

static int refuse(Schema *s, int code, const char *format, va_list args) {
  char sentence[300];
  vsnprintf(sentence, sizeof sentence, format, args);
  return error_set(s->error, code, "%s%s%s", s->path, sentence[0] == '.' ? "" : " ", sentence);
}

int schema_refuse(Schema *s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int code = refuse(s, PLAIT_BAD_INPUT, format, args);
  va_end(args);
  return code;
}

int schema_not_built(Schema *s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int code = refuse(s, GRAMMAR_NOT_BUILT, format, args);
  va_end(args);
  return code;
}

size_t schema_enter(Schema *s, const char *name) {
  size_t end = strlen(s->path);
  snprintf(s->path + end, sizeof s->path - end, ".%.60s", name);
  return end;
}

void schema_leave(Schema *s, size_t end) { s->path[end] = 0; }

static int compile_at(Schema *s, const json_t *schema, const char *name) {
  size_t end = schema_enter(s, name);
  int node = schema_compile(s, schema);
  if (node >= 0) schema_leave(s, end);
  return node;
}

// ---- objects and arrays ---------------------------------------------------------------------------------------------

static int add_required(Schema *s, const json_t *required, Node *n, int at) {
  size_t i;
  json_t *name;
  json_array_foreach((json_t *)required, i, name) {
    if (!json_is_string(name)) return schema_refuse(s, ".required is not a list of strings");
    int k = 0;
    while (k < at && strcmp(n->names[k].text, json_string_value(name))) k++;
    if (k == at) { // no property: a key as others are
      n->names[at] = (StringWord){arena_strdup(&s->g->arena, json_string_value(name)), json_string_length(name)};
      n->parts[at++] = n->rest;
    }
    n->required[k] = true;
  }
  n->count = at;
  return PLAIT_OK;
}

static int compile_object(Schema *s, const json_t *schema) {
  const json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required");
  const json_t *rest = json_object_get(schema, "additionalProperties");
  if (properties && !json_is_object(properties)) return schema_refuse(s, ".properties is not an object");
  if (required && !json_is_array(required)) return schema_refuse(s, ".required is not a list of strings");
  int most = (int)(json_object_size(properties) + json_array_size(required)) + 1, at = 0;
  Node n = {.kind = NODE_OBJECT, .rest = -1, .max = -1};
  n.parts = arena_array(&s->g->arena, int, most);
  n.names = arena_array(&s->g->arena, StringWord, most);
  n.required = arena_array(&s->g->arena, bool, most);
  const char *key;
  json_t *value;
  size_t end = schema_enter(s, "properties");
  json_object_foreach((json_t *)properties, key, value) {
    n.names[at] = (StringWord){arena_strdup(&s->g->arena, key), strlen(key)};
    if ((n.parts[at++] = compile_at(s, value, key)) < 0) return PLAIT_BAD_INPUT;
  }
  schema_leave(s, end);
  if (!json_is_false(rest)) n.rest = rest ? compile_at(s, rest, "additionalProperties") : grammar_any(s->g);
  if (!json_is_false(rest) && n.rest < 0) return PLAIT_BAD_INPUT;
  if (add_required(s, required, &n, at) < 0) return PLAIT_BAD_INPUT;
  return grammar_add(s->g, n);
}

static int compile_array(Schema *s, const json_t *schema) {
  const json_t *items = json_object_get(schema, "items"), *first = json_object_get(schema, "prefixItems");
  const char *name = "prefixItems", *name_of_rest = "items";
  if (json_is_array(items)) { // as it was written before 2020
    if (first) return schema_refuse(s, ".items is a list beside prefixItems");
    first = items;
    name = "items";
    items = json_object_get(schema, name_of_rest = "additionalItems");
  }
  if (first && !json_is_array(first)) return schema_refuse(s, ".prefixItems is not a list");
  Node n = {.kind = NODE_ARRAY, .rest = -1, .count = (int)json_array_size(first)};
  n.parts = arena_array(&s->g->arena, int, n.count + 1);
  if (schema_count(s, schema, "minItems", 0, &n.min) < 0 || schema_count(s, schema, "maxItems", -1, &n.max) < 0)
    return PLAIT_BAD_INPUT;
  size_t end = schema_enter(s, name);
  for (int i = 0; i < n.count; i++) {
    char index[16];
    snprintf(index, sizeof index, "%d", i);
    if ((n.parts[i] = compile_at(s, json_array_get(first, (size_t)i), index)) < 0) return PLAIT_BAD_INPUT;
  }
  schema_leave(s, end);
  if (json_is_false(items)) return grammar_add(s->g, n);
  n.rest = items ? compile_at(s, items, name_of_rest) : grammar_any(s->g);
  return n.rest < 0 ? PLAIT_BAD_INPUT : grammar_add(s->g, n);
}

static int compile_number(Schema *s, const json_t *schema, bool integer) {
  static const char *const names[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
  const json_t *bound[4];
  for (int i = 0; i < 4; i++) {
    bound[i] = json_object_get(schema, names[i]);
    if (bound[i] && !json_is_number(bound[i])) return schema_refuse(s, ".%s is not a number", names[i]);
  }
  return grammar_number(s->g, integer, &(NumberBounds){bound[0], bound[1], bound[2], bound[3]});
}

// ---- types ----------------------------------------------------------------------------------------------------------

typedef enum Type { T_OBJECT, T_ARRAY, T_STRING, T_NUMBER, T_INTEGER, T_BOOLEAN, T_NULL, TYPES } Type;
static const char *const type_names[TYPES] = {"object", "array", "string", "number", "integer", "boolean", "null"};

static int read_type(Schema *s, const json_t *name, unsigned *types) {
  for (int t = 0; t < TYPES && json_is_string(name); t++)
    if (!strcmp(json_string_value(name), type_names[t])) return *types |= 1u << t, PLAIT_OK;
  return schema_refuse(s, ".type is not one of object, array, string, number, integer, boolean and null");
}

static int read_types(Schema *s, const json_t *schema, unsigned *types) {
  const json_t *type = json_object_get(schema, "type");
  size_t i;
  json_t *name;
  *types = type ? 0 : (1u << TYPES) - 1;
  if (type && !json_is_array(type) && read_type(s, type, types) < 0) return PLAIT_BAD_INPUT;
  if (json_is_array(type)) json_array_foreach((json_t *)type, i, name)
      if (read_type(s, name, types) < 0) return PLAIT_BAD_INPUT;
  if (*types & 1u << T_NUMBER) *types &= ~(1u << T_INTEGER);
  return PLAIT_OK;
}

static int compile_type(Schema *s, const json_t *schema, Type type) {
  switch (type) {
  case T_OBJECT: return compile_object(s, schema);
  case T_ARRAY: return compile_array(s, schema);
  case T_STRING: return schema_string(s, schema);
  case T_NUMBER: return compile_number(s, schema, false);
  case T_INTEGER: return compile_number(s, schema, true);
  case T_BOOLEAN: {
    int words[] = {grammar_word(s->g, "true", 4), grammar_word(s->g, "false", 5)};
    return grammar_union(s->g, words, 2);
  }
  default: return grammar_word(s->g, "null", 4);
  }
}

static int compile_types(Schema *s, const json_t *schema) {
  unsigned types;
  int parts[TYPES], count = 0;
  if (read_types(s, schema, &types) < 0) return PLAIT_BAD_INPUT;
  for (int t = 0; t < TYPES; t++)
    if (types & 1u << t && (parts[count++] = compile_type(s, schema, (Type)t)) < 0) return PLAIT_BAD_INPUT;
  return grammar_union(s->g, parts, count);
}

static bool is_of_types(const json_t *value, unsigned types) {
  bool whole = json_is_number(value) && floor(json_number_value(value)) == json_number_value(value);
  Type t = json_is_object(value)    ? T_OBJECT
           : json_is_array(value)   ? T_ARRAY
           : json_is_string(value)  ? T_STRING
           : json_is_number(value)  ? T_NUMBER
           : json_is_boolean(value) ? T_BOOLEAN
                                    : T_NULL;
  return (types & 1u << t) || (t == T_NUMBER && whole && types & 1u << T_INTEGER);
}

// enum and const, of which a type beside them may leave some out.
static int compile_values(Schema *s, const json_t *schema) {
  const json_t *list = json_object_get(schema, "enum"), *constant = json_object_get(schema, "const");
  unsigned types;
  const char *key;
  json_t *value;
  size_t i;
  json_object_foreach((json_t *)schema, key, value) {
    if (strcmp(key, "enum") && strcmp(key, "const") && strcmp(key, "type") && schema_is_keyword(key))
      return schema_not_built(s, ".%s beside enum or const is not built", key);
  }
  if (list && !json_is_array(list)) return schema_refuse(s, ".enum is not a list");
  if (read_types(s, schema, &types) < 0) return PLAIT_BAD_INPUT;
  Vec(const json_t *) values = {0};
  json_array_foreach((json_t *)list, i, value) {
    if (is_of_types(value, types) && (!constant || json_equal((json_t *)constant, value))) vec_push(&values, value);
  }
  if (!list && is_of_types(constant, types)) vec_push(&values, constant);
  int node = schema_values(s, values.data, (size_t)values.count);
  vec_free(&values);
  return node;
}

// ---- what puts schemas together -------------------------------------------------------------------------------------

// The schema without one of its keys; NULL where nothing else of it matters.
static const json_t *without(Schema *s, const json_t *schema, const char *left_out) {
  json_t *rest = json_copy((json_t *)schema), *value;
  const char *key;
  bool matters = false;
  vec_push(&s->owned, rest);
  json_object_del(rest, left_out);
  json_object_foreach(rest, key, value) matters |= schema_is_keyword(key);
  return matters ? rest : NULL;
}

static int compile_both(Schema *s, const json_t *base, const json_t *schema) {
  if (!base || json_is_false(schema)) return schema_compile(s, schema);
  if (json_is_true(schema)) return schema_compile(s, base);
  if (!json_is_object(schema)) return schema_refuse(s, "is not a schema");
  const json_t *both = schema_merge(s, base, schema);
  return both ? schema_compile(s, both) : PLAIT_BAD_INPUT;
}

static int compile_alternatives(Schema *s, const json_t *schema, const char *name) {
  const json_t *list = json_object_get(schema, name), *base = without(s, schema, name);
  size_t n = json_array_size(list);
  if (!n) return schema_refuse(s, ".%s is not a list of schemas", name);
  int *parts = arena_array(&s->g->arena, int, n);
  size_t end = schema_enter(s, name);
  for (size_t i = 0; i < n; i++) {
    char index[24];
    snprintf(index, sizeof index, "%zu", i);
    size_t inner = schema_enter(s, index);
    if ((parts[i] = compile_both(s, base, json_array_get(list, i))) < 0) return PLAIT_BAD_INPUT;
    schema_leave(s, inner);
  }
  if (!strcmp(name, "oneOf")) {
    OneOf one = {.nodes = parts, .count = (int)n, .path = arena_strdup(&s->g->arena, s->path)};
    vec_push(&s->g->one_of, one);
  }
  schema_leave(s, end);
  return grammar_union(s->g, parts, (int)n);
}

static int compile_all_of(Schema *s, const json_t *schema) {
  const json_t *list = json_object_get(schema, "allOf"), *all = without(s, schema, "allOf");
  size_t i;
  json_t *part;
  if (!json_array_size(list)) return schema_refuse(s, ".allOf is not a list of schemas");
  json_array_foreach((json_t *)list, i, part) {
    if (json_is_false(part)) return grammar_union(s->g, NULL, 0);
    if (json_is_true(part)) continue;
    if (!json_is_object(part)) return schema_refuse(s, ".allOf.%zu is not a schema", i);
    size_t end = schema_enter(s, "allOf");
    if (!(all = all ? schema_merge(s, all, part) : part)) return PLAIT_BAD_INPUT;
    schema_leave(s, end);
  }
  return all ? schema_compile(s, all) : grammar_any(s->g);
}

static int compile_reference(Schema *s, const json_t *schema) {
  char path[SCHEMA_PATH];
  const json_t *rest = without(s, schema, "$ref");
  if (rest) {
    const json_t *both = schema_merge(s, schema, rest);
    return both ? schema_compile(s, both) : PLAIT_BAD_INPUT;
  }
  snprintf(path, sizeof path, "%s", s->path);
  const json_t *target = schema_follow(s, json_object_get(schema, "$ref"));
  int node = target ? schema_compile(s, target) : PLAIT_BAD_INPUT;
  if (node >= 0) snprintf(s->path, sizeof s->path, "%s", path);
  return node;
}

// ---- any schema -----------------------------------------------------------------------------------------------------

static bool says_nothing(const char *key, const json_t *value) {
  if (!strcmp(key, "uniqueItems")) return json_is_false(value);
  if (!strcmp(key, "minProperties")) return json_is_number(value) && json_number_value(value) <= 0;
  if (!strcmp(key, "then") || !strcmp(key, "else")) return true; // `if` is refused
  if (!strcmp(key, "dependentRequired") || !strcmp(key, "dependentSchemas") || !strcmp(key, "dependencies") ||
      !strcmp(key, "patternProperties"))
    return json_is_object(value) && !json_object_size(value);
  return !strcmp(key, "minContains") || !strcmp(key, "maxContains") ||
         (json_is_true(value) && (!strcmp(key, "propertyNames") || !strncmp(key, "unevaluated", 11)));
}

static int check_keywords(Schema *s, const json_t *schema) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    const json_t *value = json_object_get(schema, refused[i]);
    if (value && !says_nothing(refused[i], value)) return schema_not_built(s, ".%s is not built", refused[i]);
  }
  return PLAIT_OK;
}

static int compile_new(Schema *s, const json_t *schema) {
  if (json_is_true(schema)) return grammar_any(s->g);
  if (json_is_false(schema)) return grammar_union(s->g, NULL, 0);
  if (!json_is_object(schema)) return schema_refuse(s, "is not a schema (an object, true or false)");
  if (check_keywords(s, schema) < 0) return PLAIT_BAD_INPUT;
  if (json_object_get(schema, "$ref")) return compile_reference(s, schema);
  if (json_object_get(schema, "allOf")) return compile_all_of(s, schema);
  if (json_object_get(schema, "anyOf")) return compile_alternatives(s, schema, "anyOf");
  if (json_object_get(schema, "oneOf")) return compile_alternatives(s, schema, "oneOf");
  if (json_object_get(schema, "enum") || json_object_get(schema, "const")) return compile_values(s, schema);
  return compile_types(s, schema);
}

// The place of a schema in the memo, by its address.
static int *memo_slot(Schema *s, const json_t *schema) {
  if (2 * s->memo.count >= s->slot_count) {
    s->slot_count = s->slot_count ? 2 * s->slot_count : 1024;
    free(s->slots);
    s->slots = xcalloc((size_t)s->slot_count, sizeof *s->slots);
    for (int i = 0; i < s->memo.count; i++) {
      uint32_t h = (uint32_t)((uintptr_t)s->memo.data[i].schema >> 4) * 2654435761u;
      while (s->slots[h % (uint32_t)s->slot_count]) h++;
      s->slots[h % (uint32_t)s->slot_count] = i + 1;
    }
  }
  uint32_t h = (uint32_t)((uintptr_t)schema >> 4) * 2654435761u;
  for (;; h++) {
    int *slot = &s->slots[h % (uint32_t)s->slot_count];
    if (!*slot || s->memo.data[*slot - 1].schema == schema) return slot;
  }
}

int schema_compile(Schema *s, const json_t *schema) {
  bool single = json_is_true(schema) || json_is_false(schema) || json_is_null(schema); // one address for all
  int *slot = single ? NULL : memo_slot(s, schema);
  if (slot && *slot) return s->memo.data[*slot - 1].node;
  if (s->depth >= SCHEMA_DEPTH) return schema_not_built(s, "nests deeper than the %d that are built", SCHEMA_DEPTH);
  if (s->g->nodes.count > SCHEMA_NODES || s->g->cells > SCHEMA_CELLS)
    return schema_not_built(s, "makes the schema too large");
  int mine = grammar_union(s->g, (int[]){0}, 1);
  if (slot) {
    SchemaMemo memo = {schema, mine};
    vec_push(&s->memo, memo);
    *slot = s->memo.count;
  }
  s->depth++;
  int node = compile_new(s, schema);
  s->depth--;
  if (node < 0) return node;
  s->g->nodes.data[mine].parts[0] = node;
  return mine;
}

static int add(Schema *s, const json_t *schema) {
  int node = schema_compile(s, schema);
  for (int i = 0; i < s->owned.count; i++) json_decref(s->owned.data[i]);
  vec_free(&s->owned);
  vec_free(&s->memo);
  free(s->slots);
  return node;
}

int schema_add(Grammar *g, const json_t *schema, const char *where, Error *error) {
  Schema s = {.root = schema, .where = where, .error = error, .g = g};
  snprintf(s.path, sizeof s.path, "%s", where);
  return add(&s, schema);
}

int schema_add_property(Grammar *g, const json_t *root, const char *key, const char *where, Error *error) {
  Schema s = {.root = root, .where = where, .error = error, .g = g};
  snprintf(s.path, sizeof s.path, "%s.properties.%.60s", where, key);
  return add(&s, json_object_get(json_object_get(root, "properties"), key));
}

static int finish_schema(Grammar *g, const char *where, Error *error) {
  Error why = {0};
  if (grammar_finish(g, &why) < 0)
    return error_set(error, GRAMMAR_NOT_BUILT, "%s is too large: %s", where, why.message);
  if (!g->nodes.data[g->root].possible)
    return error_set(error, PLAIT_BAD_INPUT, "%s allows no document at all", where);
  return grammar_check_one_of(g, error);
}

int grammar_from_schema(Grammar **g, const json_t *schema, const char *where, Error *error) {
  *g = grammar_create();
  (*g)->root = schema_add(*g, schema, where, error);
  int code = (*g)->root < 0 ? PLAIT_BAD_INPUT : finish_schema(*g, where, error);
  if (code >= 0) return code;
  grammar_free(*g);
  *g = NULL;
  return error->code; // what passes an error on says only that there is one
}
