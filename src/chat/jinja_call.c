// Calls: global functions, methods, macros, and how arguments come to names.
#include "chat/jinja_value.h"
#include <stdlib.h>
#include <time.h>

bool jinja_arguments(Jinja *j, const char *what, const JinjaArguments *a, const char *const *names, JinjaValue *values,
                     int count, int needed) {
  for (int i = 0; i < count; i++) values[i] = i < a->count ? a->items[i] : (JinjaValue){.kind = JINJA_ABSENT};
  if (a->count > count) return jinja_fail(j, "%s is given %d values and takes %d", what, a->count, count), false;
  for (int k = 0; k < a->named_count; k++) {
    int i = 0;
    while (i < count && strcmp(names[i], a->names[k]) != 0) i++;
    if (i == count) return jinja_fail(j, "%s takes no %s=", what, a->names[k]), false;
    if (values[i].kind != JINJA_ABSENT) return jinja_fail(j, "%s is given %s twice", what, names[i]), false;
    values[i] = a->named[k];
  }
  for (int i = 0; i < needed; i++)
    if (values[i].kind == JINJA_ABSENT)
      return jinja_fail(j, "%s is given %d values and takes at least %d", what, a->count + a->named_count, needed),
             false;
  return true;
}

static JinjaValue range(Jinja *j, const JinjaArguments *a) {
  int64_t v[3] = {0, 0, 1};
  for (int i = 0; i < a->count && i < 3; i++)
    if (!jinja_whole(a->items[i], &v[i])) return jinja_fail(j, "range is given a %s", jinja_type(a->items[i]));
  if (!a->count || a->count > 3 || a->named_count) return jinja_fail(j, "range takes 1 to 3 values");
  if (a->count == 1) v[1] = v[0], v[0] = 0;
  int64_t step = v[2], count = 0, span;
  if (!step) return jinja_fail(j, "range has a step of 0");
  if (__builtin_sub_overflow(v[1], v[0], &span)) return jinja_fail(j, "a range is too long");
  if (step > 0 ? span > 0 : span < 0) count = span / step + (span % step != 0);
  if (count > 100000) return jinja_fail(j, "a range has over 100000 values"); // as jinja2's sandbox has it
  JinjaValue r = jinja_list(j, (int)count, JINJA_LIST);
  for (int64_t i = 0; i < count && jinja_step(j, 0); i++) r.list->items[i] = jinja_integer(v[0] + i * step);
  return r;
}

static JinjaValue make_dict(Jinja *j, const JinjaArguments *a, bool is_namespace) {
  JinjaValue v = jinja_dict(j);
  if (a->count > 1 || (a->count && a->items[0].kind != JINJA_DICT))
    return jinja_fail(j, "namespace and dict take a dict and values with names");
  for (int i = 0; a->count && i < a->items[0].dict->count; i++)
    jinja_dict_put(j, v.dict, a->items[0].dict->pairs[i].key, a->items[0].dict->pairs[i].value);
  for (int i = 0; i < a->named_count; i++)
    jinja_dict_put(j, v.dict, jinja_string(j, a->names[i], strlen(a->names[i]), JINJA_TEMPLATE), a->named[i]);
  if (is_namespace) v.kind = JINJA_NAMESPACE;
  return v;
}

static JinjaValue raise(Jinja *j, const JinjaArguments *a) {
  if (a->count != 1) return jinja_fail(j, "raise_exception takes one text");
  JinjaValue s = jinja_str(j, a->items[0]);
  if (!j->code) j->code = error_set(j->error, PLAIT_BAD_INPUT, "%.*s", (int)s.string->bytes, s.string->text);
  return jinja_undefined("");
}

static JinjaValue now(Jinja *j, const JinjaArguments *a) {
  char text[256];
  time_t t = time(NULL);
  struct tm tm;
  if (a->count != 1 || a->items[0].kind != JINJA_STRING) return jinja_fail(j, "strftime_now takes one text");
  const JinjaString *s = a->items[0].string;
  char *format = jinja_alloc(j, s->bytes + 1, 1);
  memcpy(format, s->text, s->bytes);
  localtime_r(&t, &tm);
  size_t n = strftime(text, sizeof text, format, &tm);
  char *copy = jinja_alloc(j, n + 1, 1);
  memcpy(copy, text, n);
  return jinja_string(j, copy, n, s->part_count ? JINJA_GIVEN : s->origin);
}

static JinjaValue call_function(Jinja *j, const char *name, const JinjaArguments *a) {
  if (!strcmp(name, "range")) return range(j, a);
  if (!strcmp(name, "namespace")) return make_dict(j, a, true);
  if (!strcmp(name, "dict")) return make_dict(j, a, false);
  if (!strcmp(name, "raise_exception")) return raise(j, a);
  return now(j, a);
}

static JinjaValue dict_method(Jinja *j, const JinjaDict *d, const char *name, const JinjaArguments *a) {
  static const char *const get[] = {"key", "default"};
  JinjaValue v[2];
  if (!strcmp(name, "get")) {
    if (!jinja_arguments(j, name, a, get, v, 2, 1)) return jinja_none();
    const JinjaValue *found = jinja_dict_find(j, d, v[0]);
    return found ? *found : v[1].kind == JINJA_ABSENT ? jinja_none() : v[1];
  }
  if (!jinja_arguments(j, name, a, get, v, 0, 0)) return jinja_none();
  if (!strcmp(name, "copy"))
    return make_dict(
        j, &(JinjaArguments){.items = &(JinjaValue){.kind = JINJA_DICT, .dict = (JinjaDict *)(uintptr_t)d}, .count = 1},
        false);
  JinjaValue r = jinja_list(j, d->count, JINJA_LIST);
  for (int i = 0; i < d->count && jinja_step(j, 0); i++) {
    JinjaValue pair = name[0] == 'k' ? d->pairs[i].key : d->pairs[i].value;
    if (name[0] == 'i') {
      pair = jinja_list(j, 2, JINJA_TUPLE);
      pair.list->items[0] = d->pairs[i].key;
      pair.list->items[1] = d->pairs[i].value;
    }
    r.list->items[i] = pair;
  }
  return r;
}

// append and pop, which transformers' sandbox refuses and templates use nevertheless (Kimi K2).
static JinjaValue change_list(Jinja *j, JinjaList *l, const char *name, const JinjaArguments *a) {
  static const char *const one[] = {""};
  JinjaValue v[1];
  int64_t i = -1;
  if (!strcmp(name, "append")) {
    if (jinja_arguments(j, name, a, one, v, 1, 1)) jinja_push(j, l, v[0]);
    return jinja_none();
  }
  if (!jinja_arguments(j, name, a, one, v, 1, 0)) return jinja_none();
  if (v[0].kind != JINJA_ABSENT && !jinja_whole(v[0], &i)) return jinja_fail(j, "pop takes a whole number");
  if (i < 0) i += l->count;
  if (i < 0 || i >= l->count) return jinja_fail(j, "pop finds nothing at this place of a list");
  JinjaValue popped = l->items[i];
  memmove(l->items + i, l->items + i + 1, sizeof *l->items * (size_t)(l->count - 1 - i));
  l->count--;
  return popped;
}

static JinjaValue list_method(Jinja *j, JinjaValue self, const char *name, const JinjaArguments *a) {
  static const char *const one[] = {""};
  JinjaList *l = self.list;
  JinjaValue v[1];
  bool counts = !strcmp(name, "count");
  if (self.kind == JINJA_LIST && (!strcmp(name, "append") || !strcmp(name, "pop"))) return change_list(j, l, name, a);
  if (!counts && strcmp(name, "index") != 0)
    return jinja_fail(j, "%s changes a list, which a template may not but by append and pop", name);
  if (!jinja_arguments(j, name, a, one, v, 1, 1)) return jinja_none();
  int64_t n = 0;
  for (int i = 0; i < l->count && !j->code; i++) {
    if (!jinja_equal(j, l->items[i], v[0])) continue;
    if (!counts) return jinja_integer(i);
    n++;
  }
  return counts ? jinja_integer(n) : jinja_fail(j, "index finds nothing");
}

static JinjaValue loop_method(Jinja *j, JinjaLoop *l, const char *name, const JinjaArguments *a) {
  if (!strcmp(name, "cycle"))
    return a->count ? a->items[l->index % a->count] : jinja_fail(j, "loop.cycle takes at least one value");
  JinjaValue now_given = jinja_list(j, a->count, JINJA_TUPLE);
  for (int i = 0; i < a->count; i++) now_given.list->items[i] = a->items[i];
  bool same = l->changed.kind != JINJA_ABSENT && jinja_equal(j, l->changed, now_given);
  l->changed = now_given;
  return jinja_bool(!same);
}

JinjaValue jinja_call(Jinja *j, JinjaValue f, const JinjaArguments *a) {
  switch (f.kind) {
  case JINJA_MACRO: return jinja_call_macro(j, f.macro, a, (JinjaValue){.kind = JINJA_ABSENT});
  case JINJA_FUNCTION: return call_function(j, f.name, a);
  case JINJA_UNDEFINED: return jinja_fail(j, "'%.80s' is undefined", f.name);
  case JINJA_METHOD: break;
  default: return jinja_fail(j, "a %s cannot be called", jinja_type(f));
  }
  JinjaValue self = f.method->self;
  const char *name = f.method->name;
  switch (self.kind) {
  case JINJA_STRING: return jinja_string_method(j, self.string, name, a);
  case JINJA_LIST:
  case JINJA_TUPLE: return list_method(j, self, name, a);
  case JINJA_LOOP: return loop_method(j, self.loop, name, a);
  default: break;
  }
  static const char *const changes[] = {"pop", "popitem", "update", "setdefault", "clear"};
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
    if (!strcmp(name, changes[i])) return jinja_fail(j, "%s changes a dict, which a template may not", name);
  return dict_method(j, self.dict, name, a);
}
