// Values as JSON, written as Python's json.dumps writes it, and back.
#include "base/json_read.h"
#include "chat/jinja_value.h"
#include <math.h>
#include <stdio.h>

typedef struct JsonStyle {
  const JinjaString *indent; // NULL: on one line
  JinjaValue comma, colon;
  bool ascii, sorted;
} JsonStyle;

static uint32_t code_of(const unsigned char *s, size_t n) {
  uint32_t c = n == 1 ? s[0] : n == 2 ? s[0] & 31U : n == 3 ? s[0] & 15U : s[0] & 7U;
  for (size_t i = 1; i < n; i++) c = c << 6 | (s[i] & 63U);
  return c;
}

static void put_string(Jinja *j, JinjaText *t, const JinjaString *s, bool ascii) {
  size_t n, kept = 0;
  jinja_put_word(j, t, "\"");
  for (size_t i = 0; i < s->bytes && !j->code; i += n) {
    n = 1;
    while (i + n < s->bytes && ((unsigned char)s->text[i + n] & 0xC0) == 0x80) n++;
    uint32_t c = code_of((const unsigned char *)s->text + i, n);
    static const char letters[] = "\"\\\b\f\n\r\t", escapes[] = "\"\\bfnrt";
    const char *p = c && c < 0x80 ? strchr(letters, (int)c) : NULL;
    char text[16];
    if (p) snprintf(text, sizeof text, "\\%c", escapes[p - letters]);
    else if (c < 0x20 || (ascii && c > 0x7E && c < 0x10000)) snprintf(text, sizeof text, "\\u%04x", c);
    else if (ascii && c >= 0x10000)
      snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF));
    else continue;
    jinja_put_part(j, t, s, kept, i);
    jinja_put(j, t, text, strlen(text), jinja_origin(s, i));
    kept = i + n;
  }
  jinja_put_part(j, t, s, kept, s->bytes);
  jinja_put_word(j, t, "\"");
}

static void put_line(Jinja *j, JinjaText *t, const JsonStyle *style, int depth) {
  if (!style->indent) return;
  jinja_put_word(j, t, "\n");
  for (int i = 0; i < depth && !j->code; i++) jinja_put_string(j, t, style->indent);
}

static void put_json(Jinja *j, JinjaText *t, JinjaValue v, const JsonStyle *style, int depth);

static void put_key(Jinja *j, JinjaText *t, JinjaValue key, const JsonStyle *style) {
  if (key.kind == JINJA_STRING) {
    put_string(j, t, key.string, style->ascii);
    return;
  }
  if (key.kind == JINJA_TUPLE || key.kind == JINJA_UNDEFINED) {
    jinja_fail(j, "a %s cannot be a key of JSON", jinja_type(key));
    return;
  }
  jinja_put_word(j, t, "\"");
  put_json(j, t, key, style, 0);
  jinja_put_word(j, t, "\"");
}

// The places of a dict's pairs in the order of their keys, which is by insertion sort: dicts here are small.
static int *sorted_places(Jinja *j, const JinjaDict *d) {
  int *place = jinja_alloc(j, (size_t)d->count, sizeof *place);
  for (int i = 0; i < d->count && !j->code; i++) {
    int k = i;
    for (; k > 0 && jinja_compare(j, d->pairs[place[k - 1]].key, d->pairs[i].key) > 0; k--) place[k] = place[k - 1];
    place[k] = i;
  }
  return place;
}

static void put_object(Jinja *j, JinjaText *t, const JinjaDict *d, const JsonStyle *style, int depth) {
  const int *place = style->sorted ? sorted_places(j, d) : NULL;
  jinja_put_word(j, t, "{");
  for (int i = 0; i < d->count && !j->code; i++) {
    const JinjaPair *pair = &d->pairs[place ? place[i] : i];
    if (i) jinja_put_string(j, t, style->comma.string);
    put_line(j, t, style, depth + 1);
    put_key(j, t, pair->key, style);
    jinja_put_string(j, t, style->colon.string);
    put_json(j, t, pair->value, style, depth + 1);
  }
  if (d->count) put_line(j, t, style, depth);
  jinja_put_word(j, t, "}");
}

static void put_array(Jinja *j, JinjaText *t, const JinjaList *l, const JsonStyle *style, int depth) {
  jinja_put_word(j, t, "[");
  for (int i = 0; i < l->count && !j->code; i++) {
    if (i) jinja_put_string(j, t, style->comma.string);
    put_line(j, t, style, depth + 1);
    put_json(j, t, l->items[i], style, depth + 1);
  }
  if (l->count) put_line(j, t, style, depth);
  jinja_put_word(j, t, "]");
}

static void put_json(Jinja *j, JinjaText *t, JinjaValue v, const JsonStyle *style, int depth) {
  switch (v.kind) {
  case JINJA_NONE: jinja_put_word(j, t, "null"); return;
  case JINJA_BOOLEAN: jinja_put_word(j, t, v.boolean ? "true" : "false"); return;
  case JINJA_INTEGER: jinja_put_value(j, t, v); return;
  case JINJA_REAL:
    if (isnan(v.real)) jinja_put_word(j, t, "NaN");
    else if (isinf(v.real)) jinja_put_word(j, t, v.real < 0 ? "-Infinity" : "Infinity");
    else jinja_put_value(j, t, v);
    return;
  case JINJA_STRING: put_string(j, t, v.string, style->ascii); return;
  case JINJA_LIST:
  case JINJA_TUPLE:
  case JINJA_DICT:
    if (jinja_enter(j)) {
      if (v.kind == JINJA_DICT) put_object(j, t, v.dict, style, depth);
      else put_array(j, t, v.list, style, depth);
    }
    jinja_leave(j);
    return;
  default: jinja_fail(j, "tojson is given a %s, which JSON does not have", jinja_type(v));
  }
}

static bool is_given(JinjaValue v) { return v.kind != JINJA_ABSENT && v.kind != JINJA_NONE; }

JinjaValue jinja_tojson(Jinja *j, JinjaValue v, const JinjaArguments *arguments) {
  static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
  JinjaValue a[4], indent;
  if (!jinja_arguments(j, "tojson", arguments, names, a, 4, 0)) return v;
  JsonStyle style = {.ascii = is_given(a[0]) && jinja_truth(a[0]), .sorted = is_given(a[3]) && jinja_truth(a[3])};
  JinjaText t = {0};
  int64_t width;
  if (a[1].kind == JINJA_STRING) style.indent = a[1].string;
  else if (jinja_whole(a[1], &width)) {
    for (; width > 0 && !j->code; width--) jinja_put_word(j, &t, " ");
    indent = jinja_text_end(j, &t);
    style.indent = indent.string;
  } else if (is_given(a[1])) return jinja_fail(j, "the indent of tojson is a %s", jinja_type(a[1]));
  style.comma = jinja_string(j, style.indent ? "," : ", ", style.indent ? 1 : 2, JINJA_TEMPLATE);
  style.colon = jinja_string(j, ": ", 2, JINJA_TEMPLATE);
  if (is_given(a[2])) {
    if (!jinja_is_list(a[2]) || a[2].list->count != 2 || a[2].list->items[0].kind != JINJA_STRING ||
        a[2].list->items[1].kind != JINJA_STRING)
      return jinja_fail(j, "the separators of tojson are not two texts");
    style.comma = a[2].list->items[0];
    style.colon = a[2].list->items[1];
  }
  t = (JinjaText){0};
  put_json(j, &t, v, &style, 0);
  return jinja_text_end(j, &t);
}

// Texts of the tree are copied, since it does not live on.
static JinjaValue copied(Jinja *j, const json_t *json, int origin) {
  if (json_is_string(json)) {
    size_t bytes = json_string_length(json);
    char *copy = jinja_alloc(j, bytes + 1, 1);
    memcpy(copy, json_string_value(json), bytes);
    return jinja_string(j, copy, bytes, origin);
  }
  JinjaValue v = jinja_none();
  if (!jinja_enter(j)) return jinja_leave(j), v;
  if (json_is_array(json)) {
    v = jinja_list(j, (int)json_array_size(json), JINJA_LIST);
    for (int i = 0; i < v.list->count && jinja_step(j, 0); i++)
      v.list->items[i] = copied(j, json_array_get(json, (size_t)i), origin);
  } else if (json_is_object(json)) {
    const char *key;
    json_t *value;
    v = jinja_dict(j);
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
      char *name = jinja_alloc(j, strlen(key) + 1, 1);
      strcpy(name, key);
      jinja_dict_append(j, v.dict, jinja_string(j, name, strlen(name), origin), copied(j, value, origin));
    }
  } else v = jinja_from_json(j, json, origin);
  jinja_leave(j);
  return v;
}

JinjaValue jinja_from_text(Jinja *j, JinjaValue text) {
  json_t *tree = NULL;
  Error ignored = {0};
  const JinjaString *s = text.string;
  // Of several origins, the one that may hold no special token.
  int origin = s->origin;
  for (int i = 0; i < s->part_count; i++)
    if (s->parts[i].origin != JINJA_TEMPLATE) origin = s->parts[i].origin;
  jinja_step(j, s->bytes);
  if (json_read(s->text, s->bytes, "", &tree, &ignored)) return jinja_fail(j, "from_json: the text is not JSON");
  JinjaValue v = copied(j, tree, origin);
  json_decref(tree);
  return v;
}
