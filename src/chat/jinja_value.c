// Values: making them, comparing them, what is in them.
#include "chat/jinja_value.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

JinjaValue jinja_fail(Jinja *j, const char *format, ...) {
  if (j->code) return jinja_undefined("");
  char text[600];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  j->code = error_set(j->error, PLAIT_BAD_INPUT, "%s: line %d: %s", j->template->name, j->line, text);
  return jinja_undefined("");
}

bool jinja_step(Jinja *j, size_t work) {
  j->steps += 1 + (int64_t)(work / 64);
  if (!j->code && j->steps > j->limits.steps)
    jinja_fail(j, "the template takes more than %lld steps", (long long)j->limits.steps);
  if (!j->code && j->arena.total > j->limits.memory)
    jinja_fail(j, "the template takes more than %zu MiB of memory", j->limits.memory >> 20);
  return !j->code;
}

bool jinja_enter(Jinja *j) {
  if (j->depth++ >= JINJA_DEPTH) jinja_fail(j, "the template, or a value in it, is nested too deep");
  return !j->code;
}

void jinja_leave(Jinja *j) { j->depth--; }

void *jinja_alloc(Jinja *j, size_t count, size_t size) { return arena_alloc(&j->arena, count ? count * size : 1); }

JinjaValue jinja_string(Jinja *j, const char *text, size_t bytes, int origin) {
  JinjaString *s = jinja_alloc(j, 1, sizeof *s);
  *s = (JinjaString){.text = text, .bytes = bytes, .origin = origin};
  return (JinjaValue){.kind = JINJA_STRING, .string = s};
}

JinjaValue jinja_list(Jinja *j, int count, JinjaKind kind) {
  JinjaList *l = jinja_alloc(j, 1, sizeof *l);
  l->items = jinja_alloc(j, (size_t)count, sizeof *l->items);
  l->count = count;
  for (int i = 0; i < count; i++) l->items[i] = jinja_undefined("");
  return (JinjaValue){.kind = kind, .list = l};
}

void jinja_push(Jinja *j, JinjaList *l, JinjaValue v) {
  if (l->count >= l->capacity) {
    int capacity = l->count < 4 ? 4 : 2 * l->count;
    JinjaValue *items = jinja_alloc(j, (size_t)capacity, sizeof *items);
    if (l->count) memcpy(items, l->items, sizeof *items * (size_t)l->count);
    l->items = items;
    l->capacity = capacity;
  }
  l->items[l->count++] = v;
}

JinjaValue jinja_dict(Jinja *j) {
  return (JinjaValue){.kind = JINJA_DICT, .dict = jinja_alloc(j, 1, sizeof(JinjaDict))};
}

JinjaValue *jinja_dict_find(Jinja *j, const JinjaDict *d, JinjaValue key) {
  jinja_step(j, (size_t)d->count * 8);
  for (int i = 0; i < d->count; i++) {
    const JinjaValue *k = &d->pairs[i].key;
    if (k->kind == JINJA_STRING && key.kind == JINJA_STRING) {
      if (k->string->bytes == key.string->bytes && !memcmp(k->string->text, key.string->text, key.string->bytes))
        return &d->pairs[i].value;
    } else if (k->kind != JINJA_STRING && key.kind != JINJA_STRING && jinja_equal(j, *k, key))
      return &d->pairs[i].value;
  }
  return NULL;
}

JinjaValue *jinja_dict_find_text(const JinjaDict *d, const char *key) {
  for (int i = 0; i < d->count; i++)
    if (jinja_is_text(d->pairs[i].key, key)) return &d->pairs[i].value;
  return NULL;
}

void jinja_dict_append(Jinja *j, JinjaDict *d, JinjaValue key, JinjaValue value) {
  if (d->count == d->capacity) {
    int capacity = d->capacity ? 2 * d->capacity : 4;
    JinjaPair *pairs = jinja_alloc(j, (size_t)capacity, sizeof *pairs);
    if (d->count) memcpy(pairs, d->pairs, sizeof *pairs * (size_t)d->count);
    d->pairs = pairs;
    d->capacity = capacity;
  }
  d->pairs[d->count++] = (JinjaPair){key, value};
}

void jinja_dict_put(Jinja *j, JinjaDict *d, JinjaValue key, JinjaValue value) {
  if (key.kind == JINJA_LIST || key.kind == JINJA_DICT || key.kind == JINJA_ABSENT) {
    jinja_fail(j, "a value of type %s cannot be a key", jinja_type(key));
    return;
  }
  JinjaValue *at = jinja_dict_find(j, d, key);
  if (at) *at = value;
  else jinja_dict_append(j, d, key, value);
}

JinjaValue jinja_from_json(Jinja *j, const json_t *json, int origin) {
  JinjaValue v = jinja_none();
  if (!jinja_step(j, 0)) return v;
  switch (json_typeof(json)) {
  case JSON_OBJECT: {
    const char *key;
    json_t *value;
    v = jinja_dict(j);
    if (jinja_enter(j))
      json_object_foreach((json_t *)(uintptr_t)json, key, value)
        jinja_dict_append(j, v.dict, jinja_string(j, key, strlen(key), origin), jinja_from_json(j, value, origin));
    jinja_leave(j);
    return v;
  }
  case JSON_ARRAY:
    if (json_array_size(json) > 1 << 24) return jinja_fail(j, "a list has too many items");
    v = jinja_list(j, (int)json_array_size(json), JINJA_LIST);
    if (jinja_enter(j))
      for (int i = 0; i < v.list->count; i++)
        v.list->items[i] = jinja_from_json(j, json_array_get(json, (size_t)i), origin);
    jinja_leave(j);
    return v;
  case JSON_STRING: return jinja_string(j, json_string_value(json), json_string_length(json), origin);
  case JSON_INTEGER: return jinja_integer(json_integer_value(json));
  case JSON_REAL: return jinja_real(json_real_value(json));
  case JSON_TRUE:
  case JSON_FALSE: return jinja_bool(json_is_true(json));
  case JSON_NULL: break;
  }
  return v;
}

bool jinja_truth(JinjaValue v) {
  switch (v.kind) {
  case JINJA_ABSENT:
  case JINJA_UNDEFINED:
  case JINJA_NONE: return false;
  case JINJA_BOOLEAN: return v.boolean;
  case JINJA_INTEGER: return v.integer != 0;
  case JINJA_REAL: return v.real != 0;
  case JINJA_STRING: return v.string->bytes > 0;
  case JINJA_LIST:
  case JINJA_TUPLE: return v.list->count > 0 || v.list->lazy;
  case JINJA_DICT: return v.dict->count > 0;
  default: return true;
  }
}

const char *jinja_type(JinjaValue v) {
  static const char *const names[] = {"nothing", "undefined", "NoneType", "bool", "int", "float", "str", "list",
                                      "tuple", "dict", "namespace", "loop", "macro", "function", "method"};
  return names[v.kind];
}

bool jinja_number(JinjaValue v, double *number) {
  if (v.kind == JINJA_REAL) *number = v.real;
  else if (v.kind == JINJA_INTEGER) *number = (double)v.integer;
  else if (v.kind == JINJA_BOOLEAN) *number = v.boolean;
  else return false;
  return true;
}

bool jinja_whole(JinjaValue v, int64_t *number) {
  if (v.kind == JINJA_INTEGER) *number = v.integer;
  else if (v.kind == JINJA_BOOLEAN) *number = v.boolean;
  else return false;
  return true;
}

static bool dicts_equal(Jinja *j, const JinjaDict *a, const JinjaDict *b) {
  if (a->count != b->count) return false;
  for (int i = 0; i < a->count && !j->code; i++) {
    const JinjaValue *other = jinja_dict_find(j, b, a->pairs[i].key);
    if (!other || !jinja_equal(j, a->pairs[i].value, *other)) return false;
  }
  return true;
}

static bool lists_equal(Jinja *j, const JinjaList *a, const JinjaList *b) {
  if (a->count != b->count) return false;
  for (int i = 0; i < a->count && !j->code; i++)
    if (!jinja_equal(j, a->items[i], b->items[i])) return false;
  return true;
}

bool jinja_equal(Jinja *j, JinjaValue a, JinjaValue b) {
  double x, y;
  int64_t m, n;
  bool equal = false;
  if (!jinja_step(j, 0)) return false;
  if (jinja_whole(a, &m) && jinja_whole(b, &n)) return m == n;
  if (jinja_number(a, &x) && jinja_number(b, &y)) return x == y;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
  case JINJA_STRING:
    return a.string->bytes == b.string->bytes && !memcmp(a.string->text, b.string->text, a.string->bytes);
  case JINJA_LIST:
  case JINJA_TUPLE:
    if (jinja_enter(j)) equal = lists_equal(j, a.list, b.list);
    jinja_leave(j);
    return equal;
  case JINJA_DICT:
    if (jinja_enter(j)) equal = dicts_equal(j, a.dict, b.dict);
    jinja_leave(j);
    return equal;
  case JINJA_NAMESPACE: return a.dict == b.dict;
  case JINJA_LOOP: return a.loop == b.loop;
  case JINJA_MACRO: return a.macro == b.macro;
  case JINJA_FUNCTION: return !strcmp(a.name, b.name);
  case JINJA_METHOD: return a.method == b.method;
  default: return true; // none, undefined
  }
}

static int compare_lists(Jinja *j, const JinjaList *a, const JinjaList *b) {
  for (int i = 0; i < a->count && i < b->count && !j->code; i++)
    if (!jinja_equal(j, a->items[i], b->items[i])) return jinja_compare(j, a->items[i], b->items[i]);
  return (a->count > b->count) - (a->count < b->count);
}

int jinja_compare(Jinja *j, JinjaValue a, JinjaValue b) {
  double x, y;
  int64_t m, n;
  int order = 0;
  if (!jinja_step(j, 0)) return 0;
  if (jinja_whole(a, &m) && jinja_whole(b, &n)) return (m > n) - (m < n);
  if (jinja_number(a, &x) && jinja_number(b, &y)) return (x > y) - (x < y);
  if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
    size_t least = a.string->bytes < b.string->bytes ? a.string->bytes : b.string->bytes;
    order = least ? memcmp(a.string->text, b.string->text, least) : 0;
    return order ? order : (a.string->bytes > b.string->bytes) - (a.string->bytes < b.string->bytes);
  }
  if (jinja_is_list(a) && a.kind == b.kind) {
    if (jinja_enter(j)) order = compare_lists(j, a.list, b.list);
    jinja_leave(j);
    return order;
  }
  if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
    return jinja_fail(j, "'%.80s' is undefined", a.kind == JINJA_UNDEFINED ? a.name : b.name), 0;
  return jinja_fail(j, "values of types %s and %s have no order", jinja_type(a), jinja_type(b)), 0;
}

static const JinjaList *characters(Jinja *j, const JinjaString *s) {
  int64_t n = jinja_chars(s);
  JinjaValue list = jinja_list(j, n > 1 << 24 ? 0 : (int)n, JINJA_LIST);
  size_t at = 0;
  for (int i = 0; i < list.list->count && jinja_step(j, 0); i++) {
    size_t next = at + 1;
    while (next < s->bytes && ((unsigned char)s->text[next] & 0xC0) == 0x80) next++;
    list.list->items[i] = jinja_part(j, s, at, next);
    at = next;
  }
  return list.list;
}

const JinjaList *jinja_iterate(Jinja *j, JinjaValue v) {
  static const JinjaList none;
  switch (v.kind) {
  case JINJA_UNDEFINED: return &none;
  case JINJA_LIST:
  case JINJA_TUPLE: return v.list;
  case JINJA_STRING: return characters(j, v.string);
  case JINJA_DICT: {
    JinjaValue keys = jinja_list(j, v.dict->count, JINJA_LIST);
    for (int i = 0; i < v.dict->count; i++) keys.list->items[i] = v.dict->pairs[i].key;
    return keys.list;
  }
  default: jinja_fail(j, "a value of type %s cannot be iterated over", jinja_type(v)); return &none;
  }
}

bool jinja_contains(Jinja *j, JinjaValue in, JinjaValue item) {
  switch (in.kind) {
  case JINJA_UNDEFINED: return false;
  case JINJA_STRING:
    if (item.kind != JINJA_STRING) return jinja_fail(j, "a %s cannot be in a text", jinja_type(item)), false;
    jinja_step(j, in.string->bytes);
    return !item.string->bytes ||
           memmem(in.string->text, in.string->bytes, item.string->text, item.string->bytes) != NULL;
  case JINJA_LIST:
  case JINJA_TUPLE:
    for (int i = 0; i < in.list->count && !j->code; i++)
      if (jinja_equal(j, in.list->items[i], item)) return true;
    return false;
  case JINJA_DICT: return jinja_dict_find(j, in.dict, item) != NULL;
  default: return jinja_fail(j, "nothing can be in a value of type %s", jinja_type(in)), false;
  }
}

int64_t jinja_length(Jinja *j, JinjaValue v) {
  switch (v.kind) {
  case JINJA_UNDEFINED: return 0;
  case JINJA_STRING: jinja_step(j, v.string->bytes); return jinja_chars(v.string);
  case JINJA_LIST:
  case JINJA_TUPLE:
    if (v.list->lazy) jinja_fail(j, "what a filter makes one by one has no length; put it into |list");
    return v.list->count;
  case JINJA_DICT: return v.dict->count;
  default: return jinja_fail(j, "a value of type %s has no length", jinja_type(v)), 0;
  }
}
