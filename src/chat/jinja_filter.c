// Filters: x|…
#include "chat/jinja_value.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// a: the values given to a filter, in the order of its names; ABSENT where one is not.
typedef JinjaValue Filter(Jinja *j, JinjaValue v, const JinjaValue *a);

static bool given(JinjaValue v) { return v.kind != JINJA_ABSENT && v.kind != JINJA_NONE; }
static bool yes(JinjaValue v) { return v.kind != JINJA_ABSENT && jinja_truth(v); }

const char *jinja_attribute_name(Jinja *j, JinjaValue v) { // with an end
  char *name = jinja_alloc(j, v.string->bytes + 1, 1);
  memcpy(name, v.string->text, v.string->bytes);
  return name;
}

// ---- texts

static JinjaValue trim(Jinja *j, JinjaValue v, const JinjaValue *a) {
  v = jinja_str(j, v);
  return j->code ? v : jinja_strip(j, v.string, a[0], true, true);
}
static JinjaValue upper(Jinja *j, JinjaValue v, const JinjaValue *a) {
  return jinja_case(j, jinja_str(j, v).string, "upper");
}
static JinjaValue lower(Jinja *j, JinjaValue v, const JinjaValue *a) {
  return jinja_case(j, jinja_str(j, v).string, "lower");
}
static JinjaValue title(Jinja *j, JinjaValue v, const JinjaValue *a) {
  return jinja_case(j, jinja_str(j, v).string, "title");
}
static JinjaValue capitalize(Jinja *j, JinjaValue v, const JinjaValue *a) {
  return jinja_case(j, jinja_str(j, v).string, "capitalize");
}
static JinjaValue safe(Jinja *j, JinjaValue v, const JinjaValue *a) { return jinja_safe(j, v); }
static JinjaValue string(Jinja *j, JinjaValue v, const JinjaValue *a) { return jinja_str(j, v); }

static JinjaValue replace(Jinja *j, JinjaValue v, const JinjaValue *a) {
  JinjaValue s = jinja_str(j, v), from = jinja_str(j, a[0]), to = jinja_str(j, a[1]);
  return j->code ? v : jinja_replace(j, s, from, to, a[2]);
}

static JinjaValue indent(Jinja *j, JinjaValue v, const JinjaValue *a) {
  static const char *const none[] = {""};
  JinjaText t = {0};
  JinjaValue width = a[0];
  int64_t n = 4;
  if (width.kind != JINJA_STRING) {
    if (width.kind != JINJA_ABSENT && !jinja_whole(width, &n))
      return jinja_fail(j, "the width of indent is a %s", jinja_type(width));
    for (; n > 0 && !j->code; n--) jinja_put_word(j, &t, " ");
    width = jinja_text_end(j, &t);
  }
  if (v.kind == JINJA_UNDEFINED) return jinja_fail(j, "'%.80s' is undefined", v.name);
  if (v.kind != JINJA_STRING) return jinja_fail(j, "indent is given a %s", jinja_type(v));
  // The line's end after the text keeps an empty last line, as in jinja2.
  jinja_put_string(j, &t, v.string);
  jinja_put_word(j, &t, "\n");
  v = jinja_text_end(j, &t);
  JinjaValue lines = jinja_string_method(j, v.string, "splitlines", &(JinjaArguments){.names = none});
  t = (JinjaText){0};
  for (int i = 0; i < lines.list->count && !j->code; i++) {
    JinjaValue line = lines.list->items[i];
    if (i) jinja_put_word(j, &t, "\n");
    if (i ? jinja_truth(line) || yes(a[2]) : yes(a[1])) jinja_put_string(j, &t, width.string);
    jinja_put_string(j, &t, line.string);
  }
  return jinja_text_end(j, &t);
}

static JinjaValue format(Jinja *j, JinjaValue v, const JinjaArguments *a) {
  v = jinja_str(j, v);
  if (a->named_count) return jinja_fail(j, "format with names is not built");
  return j->code ? v : jinja_format(j, v.string, a->items, a->count);
}

// ---- numbers

static JinjaValue to_int(Jinja *j, JinjaValue v, const JinjaValue *a) {
  JinjaValue otherwise = a[0].kind == JINJA_ABSENT ? jinja_integer(0) : a[0];
  int64_t n, base = 10;
  double f = NAN;
  if (jinja_whole(v, &n)) return jinja_integer(n);
  if (a[1].kind != JINJA_ABSENT && (!jinja_whole(a[1], &base) || base < 2 || base > 36))
    return jinja_fail(j, "the base of int is none from 2 to 36");
  if (v.kind == JINJA_STRING) {
    JinjaValue s = jinja_strip(j, v.string, (JinjaValue){0}, true, true);
    const char *text = jinja_attribute_name(j, s);
    char *end;
    n = strtoll(text, &end, (int)base);
    if (*text && !*end) return jinja_integer(n);
    f = strtod(text, &end);
    if (!*text || *end) return otherwise;
  } else if (v.kind == JINJA_REAL) f = v.real;
  return f > -9.2e18 && f < 9.2e18 ? jinja_integer((int64_t)f) : otherwise;
}

static JinjaValue to_float(Jinja *j, JinjaValue v, const JinjaValue *a) {
  double f;
  if (jinja_number(v, &f)) return jinja_real(f);
  if (v.kind == JINJA_STRING) {
    JinjaValue s = jinja_strip(j, v.string, (JinjaValue){0}, true, true);
    const char *text = jinja_attribute_name(j, s);
    char *end;
    f = strtod(text, &end);
    if (*text && !*end) return jinja_real(f);
  }
  return a[0].kind == JINJA_ABSENT ? jinja_real(0) : a[0];
}

static JinjaValue absolute(Jinja *j, JinjaValue v, const JinjaValue *a) {
  int64_t n;
  if (v.kind == JINJA_REAL) return jinja_real(fabs(v.real));
  if (!jinja_whole(v, &n) || n == INT64_MIN) return jinja_fail(j, "abs is given a %s", jinja_type(v));
  return jinja_integer(n < 0 ? -n : n);
}

static JinjaValue round_number(Jinja *j, JinjaValue v, const JinjaValue *a) {
  int64_t digits = 0;
  double f;
  char text[400];
  if (!jinja_number(v, &f)) return jinja_fail(j, "round is given a %s", jinja_type(v));
  if (a[0].kind != JINJA_ABSENT && (!jinja_whole(a[0], &digits) || digits < -300 || digits > 300))
    return jinja_fail(j, "the digits of round are none");
  if (jinja_is_text(a[1], "ceil") || jinja_is_text(a[1], "floor")) {
    double scale = pow(10, (double)digits);
    return jinja_real((jinja_is_text(a[1], "ceil") ? ceil(f * scale) : floor(f * scale)) / scale);
  }
  if (a[1].kind != JINJA_ABSENT && !jinja_is_text(a[1], "common")) return jinja_fail(j, "round has no such method");
  if (v.kind != JINJA_REAL && digits >= 0) return v;
  if (digits < 0) {
    double scale = pow(10, (double)-digits);
    f = rint(f / scale) * scale;
    return v.kind == JINJA_REAL ? jinja_real(f) : jinja_integer((int64_t)f);
  }
  snprintf(text, sizeof text, "%.*f", (int)(digits > 60 ? 60 : digits), f);
  return jinja_real(strtod(text, NULL));
}

// ---- lists

static JinjaValue as_list(Jinja *j, const JinjaList *items, bool lazy) {
  JinjaValue r = jinja_list(j, items->count, JINJA_LIST);
  if (items->count) memcpy(r.list->items, items->items, sizeof *items->items * (size_t)items->count);
  r.list->lazy = lazy;
  return r;
}

static JinjaValue length(Jinja *j, JinjaValue v, const JinjaValue *a) { return jinja_integer(jinja_length(j, v)); }
static JinjaValue list(Jinja *j, JinjaValue v, const JinjaValue *a) { return as_list(j, jinja_iterate(j, v), false); }

static JinjaValue first(Jinja *j, JinjaValue v, const JinjaValue *a) {
  const JinjaList *l = jinja_iterate(j, v);
  return l->count ? l->items[0] : jinja_undefined("the first item of nothing");
}

static JinjaValue last(Jinja *j, JinjaValue v, const JinjaValue *a) {
  const JinjaList *l = jinja_iterate(j, v);
  return l->count ? l->items[l->count - 1] : jinja_undefined("the last item of nothing");
}

static JinjaValue reverse(Jinja *j, JinjaValue v, const JinjaValue *a) {
  if (v.kind == JINJA_STRING) return jinja_slice(j, v, a[0], a[0], jinja_integer(-1));
  const JinjaList *l = jinja_iterate(j, v);
  JinjaValue r = jinja_list(j, l->count, JINJA_LIST);
  for (int i = 0; i < l->count && jinja_step(j, 0); i++) r.list->items[i] = l->items[l->count - 1 - i];
  r.list->lazy = true;
  return r;
}

static JinjaValue items(Jinja *j, JinjaValue v, const JinjaValue *a) {
  if (v.kind == JINJA_UNDEFINED) return jinja_list(j, 0, JINJA_LIST);
  if (v.kind != JINJA_DICT) return jinja_fail(j, "items is given a %s", jinja_type(v));
  JinjaValue r = jinja_call(j, jinja_attribute(j, v, "items"), &(JinjaArguments){0});
  r.list->lazy = true;
  return r;
}

// An attribute by its name, or several with dots between them; whole numbers are places.
static JinjaValue attribute(Jinja *j, JinjaValue v, JinjaValue name) {
  if (name.kind != JINJA_STRING) return given(name) ? jinja_item(j, v, name) : v;
  const JinjaString *s = name.string;
  for (size_t at = 0; at <= s->bytes && !j->code;) {
    const char *dot = memchr(s->text + at, '.', s->bytes - at);
    size_t end = dot ? (size_t)(dot - s->text) : s->bytes;
    bool number = end > at && end - at < 10;
    for (size_t i = at; i < end; i++) number &= s->text[i] >= '0' && s->text[i] <= '9';
    v = jinja_item(j, v, number ? jinja_integer(strtol(s->text + at, NULL, 10)) : jinja_part(j, s, at, end));
    at = end + 1;
  }
  return v;
}

static JinjaValue without_case(Jinja *j, JinjaValue v, JinjaValue case_sensitive) {
  return v.kind == JINJA_STRING && !yes(case_sensitive) ? jinja_case(j, v.string, "lower") : v;
}

static JinjaValue join(Jinja *j, JinjaValue v, const JinjaValue *a) {
  const JinjaList *l = jinja_iterate(j, v);
  JinjaText t = {0};
  for (int i = 0; i < l->count && !j->code; i++) {
    if (i && a[0].kind != JINJA_ABSENT) jinja_put_value(j, &t, a[0]);
    jinja_put_value(j, &t, attribute(j, l->items[i], a[1]));
  }
  return jinja_text_end(j, &t);
}

static JinjaValue sum(Jinja *j, JinjaValue v, const JinjaValue *a) {
  const JinjaList *l = jinja_iterate(j, v);
  JinjaValue total = a[1].kind == JINJA_ABSENT ? jinja_integer(0) : a[1];
  for (int i = 0; i < l->count && !j->code; i++) total = jinja_binary(j, 0, total, attribute(j, l->items[i], a[0]));
  return total;
}

static JinjaValue extreme(Jinja *j, JinjaValue v, const JinjaValue *a, int sign) {
  const JinjaList *l = jinja_iterate(j, v);
  JinjaValue best = jinja_undefined("an item of nothing"), best_key = best;
  for (int i = 0; i < l->count && !j->code; i++) {
    JinjaValue key = without_case(j, attribute(j, l->items[i], a[1]), a[0]);
    if (!i || sign * jinja_compare(j, key, best_key) > 0) best = l->items[i], best_key = key;
  }
  return best;
}

static JinjaValue least(Jinja *j, JinjaValue v, const JinjaValue *a) { return extreme(j, v, a, -1); }
static JinjaValue most(Jinja *j, JinjaValue v, const JinjaValue *a) { return extreme(j, v, a, 1); }

// Merge sort of places by keys; equal ones keep their order.
static void merge_sort(Jinja *j, const JinjaValue *key, int *place, int *spare, int count, int sign) {
  if (count < 2 || j->code) return;
  int half = count / 2, a = 0, b = half, n = 0;
  merge_sort(j, key, place, spare, half, sign);
  merge_sort(j, key, place + half, spare, count - half, sign);
  while (a < half && b < count && !j->code)
    spare[n++] = sign * jinja_compare(j, key[place[b]], key[place[a]]) < 0 ? place[b++] : place[a++];
  while (a < half) spare[n++] = place[a++];
  while (b < count && n < count) spare[n++] = place[b++];
  memcpy(place, spare, sizeof *place * (size_t)n);
}

static JinjaValue sorted(Jinja *j, const JinjaList *l, const JinjaValue *key, bool reversed) {
  int *place = jinja_alloc(j, 2 * (size_t)l->count, sizeof *place);
  JinjaValue r = jinja_list(j, l->count, JINJA_LIST);
  for (int i = 0; i < l->count; i++) place[i] = i;
  merge_sort(j, key, place, place + l->count, l->count, reversed ? -1 : 1);
  for (int i = 0; i < l->count && !j->code; i++) r.list->items[i] = l->items[place[i]];
  return r;
}

static JinjaValue *keys_of(Jinja *j, const JinjaList *l, JinjaValue name, JinjaValue case_sensitive) {
  JinjaValue *key = jinja_alloc(j, (size_t)l->count, sizeof *key);
  for (int i = 0; i < l->count && !j->code; i++)
    key[i] = without_case(j, attribute(j, l->items[i], name), case_sensitive);
  return key;
}

static JinjaValue sort(Jinja *j, JinjaValue v, const JinjaValue *a) {
  const JinjaList *l = jinja_iterate(j, v);
  if (a[2].kind == JINJA_STRING && memchr(a[2].string->text, ',', a[2].string->bytes))
    return jinja_fail(j, "sort by several attributes is not built");
  return sorted(j, l, keys_of(j, l, a[2], a[1]), yes(a[0]));
}

static JinjaValue dictsort(Jinja *j, JinjaValue v, const JinjaValue *a) {
  if (v.kind != JINJA_DICT) return jinja_fail(j, "dictsort is given a %s", jinja_type(v));
  JinjaValue pairs = items(j, v, a);
  return sorted(j, pairs.list, keys_of(j, pairs.list, jinja_integer(jinja_is_text(a[1], "value")), a[0]), yes(a[2]));
}

static JinjaValue unique(Jinja *j, JinjaValue v, const JinjaValue *a) {
  const JinjaList *l = jinja_iterate(j, v);
  JinjaValue *key = keys_of(j, l, a[1], a[0]), r = jinja_list(j, 0, JINJA_LIST);
  for (int i = 0; i < l->count && !j->code; i++) {
    int k = 0;
    while (k < i && !jinja_equal(j, key[k], key[i])) k++;
    if (k == i) jinja_push(j, r.list, l->items[i]);
  }
  r.list->lazy = true;
  return r;
}

// select, reject, selectattr, rejectattr: the first values are an attribute, where there is one, and a test.
static JinjaValue choose(Jinja *j, const char *name, JinjaValue v, const JinjaArguments *a) {
  static const JinjaList none;
  const JinjaList *l = jinja_truth(v) ? jinja_iterate(j, v) : &none; // None is nothing, too
  bool keeps = name[0] == 's', by_attribute = strstr(name, "attr");
  int off = by_attribute;
  JinjaValue r = jinja_list(j, 0, JINJA_LIST);
  if (a->count < off || (a->count > off && a->items[off].kind != JINJA_STRING))
    return jinja_fail(j, "%s is given no attribute, or a test that is not a text", name);
  const char *test = a->count > off ? jinja_attribute_name(j, a->items[off]) : NULL;
  JinjaArguments rest = *a;
  rest.items += off + 1;
  rest.count -= off + 1;
  for (int i = 0; i < l->count && jinja_step(j, 0); i++) {
    JinjaValue of = by_attribute ? attribute(j, l->items[i], a->items[0]) : l->items[i];
    if (j->code) break;
    bool holds = test ? jinja_test(j, test, of, &rest) : jinja_truth(of);
    if (holds == keeps) jinja_push(j, r.list, l->items[i]);
  }
  r.list->lazy = true;
  return r;
}

static JinjaValue map(Jinja *j, JinjaValue v, const JinjaArguments *a) {
  static const char *const names[] = {"attribute", "default"};
  static const JinjaList none;
  const JinjaList *l = jinja_truth(v) ? jinja_iterate(j, v) : &none;
  JinjaValue r = jinja_list(j, l->count, JINJA_LIST), b[2];
  JinjaArguments rest = *a;
  r.list->lazy = true;
  if (a->count) {
    if (a->items[0].kind != JINJA_STRING) return jinja_fail(j, "map is given a filter that is not a text");
    const char *name = jinja_attribute_name(j, a->items[0]);
    rest.items++, rest.count--;
    for (int i = 0; i < l->count && !j->code; i++) r.list->items[i] = jinja_filter(j, name, l->items[i], &rest);
    return r;
  }
  if (!jinja_arguments(j, "map", a, names, b, 2, 1)) return r;
  for (int i = 0; i < l->count && !j->code; i++) {
    r.list->items[i] = attribute(j, l->items[i], b[0]);
    if (r.list->items[i].kind == JINJA_UNDEFINED && b[1].kind != JINJA_ABSENT) r.list->items[i] = b[1];
  }
  return r;
}

// ---- others

static JinjaValue otherwise(Jinja *j, JinjaValue v, const JinjaValue *a) {
  if (v.kind != JINJA_UNDEFINED && !(yes(a[1]) && !jinja_truth(v))) return v;
  return a[0].kind == JINJA_ABSENT ? jinja_string(j, "", 0, JINJA_TEMPLATE) : a[0];
}

static JinjaValue attr(Jinja *j, JinjaValue v, const JinjaValue *a) {
  if (a[0].kind != JINJA_STRING) return jinja_fail(j, "attr is given a %s", jinja_type(a[0]));
  return jinja_attribute(j, v, jinja_attribute_name(j, a[0]));
}

static JinjaValue from_json(Jinja *j, JinjaValue v, const JinjaValue *a) {
  return v.kind == JINJA_STRING ? jinja_from_text(j, v) : jinja_fail(j, "from_json is given a %s", jinja_type(v));
}

static const struct {
  const char *name;
  Filter *filter;
  const char *names[3];
  int values, needed;
} filters[] = {
    {"trim", trim, {"chars"}, 1},
    {"upper", upper},
    {"lower", lower},
    {"title", title},
    {"capitalize", capitalize},
    {"string", string},
    {"safe", safe},
    {"replace", replace, {"old", "new", "count"}, 3, 2},
    {"indent", indent, {"width", "first", "blank"}, 3},
    {"int", to_int, {"default", "base"}, 2},
    {"float", to_float, {"default"}, 1},
    {"abs", absolute},
    {"round", round_number, {"precision", "method"}, 2},
    {"length", length},
    {"count", length},
    {"list", list},
    {"first", first},
    {"last", last},
    {"reverse", reverse},
    {"items", items},
    {"join", join, {"d", "attribute"}, 2},
    {"sum", sum, {"attribute", "start"}, 2},
    {"min", least, {"case_sensitive", "attribute"}, 2},
    {"max", most, {"case_sensitive", "attribute"}, 2},
    {"sort", sort, {"reverse", "case_sensitive", "attribute"}, 3},
    {"dictsort", dictsort, {"case_sensitive", "by", "reverse"}, 3},
    {"unique", unique, {"case_sensitive", "attribute"}, 2},
    {"default", otherwise, {"default_value", "boolean"}, 2},
    {"d", otherwise, {"default_value", "boolean"}, 2},
    {"attr", attr, {"name"}, 1, 1},
    {"from_json", from_json}};
static const struct {
  const char *name;
  JinjaValue (*filter)(Jinja *j, JinjaValue v, const JinjaArguments *a);
} free_filters[] = {{"tojson", jinja_tojson}, {"map", map}, {"format", format}};
static const char *const choices[] = {"select", "reject", "selectattr", "rejectattr"};

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

bool jinja_has_filter(const char *name) {
  for (size_t i = 0; i < COUNT_OF(filters); i++)
    if (!strcmp(filters[i].name, name)) return true;
  for (size_t i = 0; i < COUNT_OF(free_filters); i++)
    if (!strcmp(free_filters[i].name, name)) return true;
  for (size_t i = 0; i < COUNT_OF(choices); i++)
    if (!strcmp(choices[i], name)) return true;
  return false;
}

JinjaValue jinja_filter(Jinja *j, const char *name, JinjaValue v, const JinjaArguments *a) {
  JinjaValue values[3] = {{0}};
  if (!jinja_step(j, 0)) return v;
  for (size_t i = 0; i < COUNT_OF(filters); i++) {
    if (strcmp(filters[i].name, name) != 0) continue;
    if (!jinja_arguments(j, name, a, filters[i].names, values, filters[i].values, filters[i].needed)) return v;
    return filters[i].filter(j, v, values);
  }
  for (size_t i = 0; i < COUNT_OF(free_filters); i++)
    if (!strcmp(free_filters[i].name, name)) return free_filters[i].filter(j, v, a);
  for (size_t i = 0; i < COUNT_OF(choices); i++)
    if (!strcmp(choices[i], name)) return choose(j, name, v, a);
  return jinja_fail(j, "the filter \"%.60s\" is not built", name);
}
