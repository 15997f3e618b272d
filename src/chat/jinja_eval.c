// Running expressions.
#include "chat/jinja_node.h"
#include <math.h>

static JinjaValue lookup(Jinja *j, JinjaScope *scope, const char *name) {
  static const char *const functions[] = {"range", "namespace", "dict", "raise_exception", "strftime_now"};
  for (JinjaScope *s = scope; s; s = s->parent)
    for (int i = s->count - 1; i >= 0; i--)
      if (s->bindings[i].name == name || !strcmp(s->bindings[i].name, name)) return s->bindings[i].value;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!strcmp(name, functions[i])) return (JinjaValue){.kind = JINJA_FUNCTION, .name = functions[i]};
  return jinja_undefined(name);
}

JinjaScope *jinja_scope(Jinja *j, JinjaScope *parent) {
  JinjaScope *s = jinja_alloc(j, 1, sizeof *s);
  s->parent = parent;
  return s;
}

void jinja_bind(Jinja *j, JinjaScope *s, const char *name, JinjaValue value) {
  for (int i = 0; i < s->count; i++)
    if (!strcmp(s->bindings[i].name, name)) {
      s->bindings[i].value = value;
      return;
    }
  if (s->count == s->capacity) {
    int capacity = s->capacity ? 2 * s->capacity : 4;
    JinjaBinding *bindings = jinja_alloc(j, (size_t)capacity, sizeof *bindings);
    if (s->count) memcpy(bindings, s->bindings, sizeof *bindings * (size_t)s->count);
    s->bindings = bindings;
    s->capacity = capacity;
  }
  s->bindings[s->count++] = (JinjaBinding){name, value};
}

static JinjaValue method(Jinja *j, JinjaValue self, const char *name) {
  JinjaMethod *m = jinja_alloc(j, 1, sizeof *m);
  *m = (JinjaMethod){self, name};
  return (JinjaValue){.kind = JINJA_METHOD, .method = m};
}

static bool is_one_of(const char *name, const char *words) { // "a|b|c"
  size_t n = strlen(name);
  for (const char *w = words; *w; w += strcspn(w, "|"), w += *w == '|')
    if (strcspn(w, "|") == n && !memcmp(w, name, n)) return true;
  return false;
}

static JinjaValue loop_attribute(Jinja *j, JinjaValue v, const char *name) {
  const JinjaLoop *l = v.loop;
  int n = l->items->count;
  if (!strcmp(name, "index")) return jinja_integer(l->index + 1);
  if (!strcmp(name, "index0")) return jinja_integer(l->index);
  if (!strcmp(name, "revindex")) return jinja_integer(n - l->index);
  if (!strcmp(name, "revindex0")) return jinja_integer(n - l->index - 1);
  if (!strcmp(name, "first")) return jinja_bool(l->index == 0);
  if (!strcmp(name, "last")) return jinja_bool(l->index == n - 1);
  if (!strcmp(name, "length")) return jinja_integer(n);
  if (!strcmp(name, "depth")) return jinja_integer(l->depth);
  if (!strcmp(name, "depth0")) return jinja_integer(l->depth - 1);
  if (!strcmp(name, "previtem")) return l->index ? l->items->items[l->index - 1] : jinja_undefined(name);
  if (!strcmp(name, "nextitem")) return l->index + 1 < n ? l->items->items[l->index + 1] : jinja_undefined(name);
  if (is_one_of(name, "cycle|changed")) return method(j, v, name);
  return jinja_undefined(name);
}

static JinjaValue method_of(Jinja *j, JinjaValue v, const char *name) {
  bool dict = v.kind == JINJA_DICT && is_one_of(name, "items|keys|values|get|copy");
  bool list = v.kind == JINJA_LIST && is_one_of(name, "append|extend|insert|pop|remove|reverse|sort|clear");
  bool changes = v.kind == JINJA_DICT && is_one_of(name, "pop|popitem|update|setdefault|clear");
  if (dict || list || changes || (v.kind == JINJA_STRING && jinja_has_string_method(name)) ||
      (jinja_is_list(v) && is_one_of(name, "index|count")))
    return method(j, v, name);
  return jinja_undefined(name);
}

JinjaValue jinja_attribute(Jinja *j, JinjaValue v, const char *name) {
  if (v.kind == JINJA_UNDEFINED || v.kind == JINJA_ABSENT) return jinja_fail(j, "'%.80s' is undefined", v.name);
  if (v.kind == JINJA_LOOP) return loop_attribute(j, v, name);
  JinjaValue m = v.kind == JINJA_NAMESPACE ? jinja_undefined(name) : method_of(j, v, name);
  if (m.kind == JINJA_METHOD) return m;
  if (v.kind != JINJA_DICT && v.kind != JINJA_NAMESPACE) return m;
  jinja_step(j, (size_t)v.dict->count * 8);
  const JinjaValue *found = jinja_dict_find_text(v.dict, name);
  return found ? *found : jinja_undefined(name);
}

static char *name_of_key(Jinja *j, JinjaValue key) {
  JinjaText t = {0};
  jinja_put_value(j, &t, key);
  JinjaValue s = jinja_text_end(j, &t);
  return (char *)(uintptr_t)s.string->text;
}

JinjaValue jinja_item(Jinja *j, JinjaValue v, JinjaValue key) {
  int64_t i;
  if (v.kind == JINJA_UNDEFINED) return jinja_fail(j, "'%.80s' is undefined", v.name);
  if (v.kind == JINJA_DICT) {
    JinjaValue *found = jinja_dict_find(j, v.dict, key);
    if (found) return *found;
  } else if (jinja_is_list(v) && jinja_whole(key, &i)) {
    if (i < 0) i += v.list->count;
    return i >= 0 && i < v.list->count ? v.list->items[i] : jinja_undefined("an item of a list");
  } else if (v.kind == JINJA_STRING && jinja_whole(key, &i)) {
    if (i < 0) i += jinja_length(j, v);
    size_t at = i < 0 ? v.string->bytes : jinja_char_at(v.string, i), end = at + 1;
    while (end < v.string->bytes && ((unsigned char)v.string->text[end] & 0xC0) == 0x80) end++;
    return at < v.string->bytes ? jinja_part(j, v.string, at, end) : jinja_undefined("a character of a text");
  }
  if (key.kind == JINJA_UNDEFINED || key.kind == JINJA_ABSENT) return jinja_undefined(key.name ? key.name : "");
  char *name = name_of_key(j, key);
  if (key.kind != JINJA_STRING || j->code) return jinja_undefined(name);
  return v.kind == JINJA_DICT ? method_of(j, v, name) : jinja_attribute(j, v, name);
}

static bool bound(JinjaValue v, int64_t absent, int64_t low, int64_t high, int64_t length, int64_t *to) {
  *to = absent;
  if (v.kind == JINJA_ABSENT || v.kind == JINJA_NONE) return true;
  if (!jinja_whole(v, to)) return false;
  if (*to < 0) *to += length;
  if (*to < low) *to = low;
  if (*to > high) *to = high;
  return true;
}

JinjaValue jinja_slice(Jinja *j, JinjaValue v, JinjaValue from, JinjaValue to, JinjaValue by) {
  int64_t step = 1, start, stop;
  if (v.kind == JINJA_UNDEFINED) return jinja_fail(j, "'%.80s' is undefined", v.name);
  if (v.kind != JINJA_STRING && !jinja_is_list(v)) return jinja_undefined("a slice"); // as jinja2 has it
  if (by.kind != JINJA_ABSENT && by.kind != JINJA_NONE && (!jinja_whole(by, &step) || !step))
    return jinja_fail(j, "the step of a slice is not a whole number other than 0");
  int64_t n = jinja_length(j, v), low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  if (!bound(from, step > 0 ? low : high, low, high, n, &start) ||
      !bound(to, step > 0 ? high : low, low, high, n, &stop))
    return jinja_undefined("a slice");
  if (v.kind == JINJA_STRING && step == 1) {
    if (start >= stop) return jinja_string(j, "", 0, JINJA_TEMPLATE);
    return jinja_part(j, v.string, jinja_char_at(v.string, start), jinja_char_at(v.string, stop));
  }
  int64_t count = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
  if (step > n) count = start < stop; // it would overflow
  if (step < -n) count = start > stop;
  if (count < 0) count = 0;
  const JinjaList *items = jinja_iterate(j, v);
  JinjaValue result = jinja_list(j, (int)count, v.kind == JINJA_TUPLE ? JINJA_TUPLE : JINJA_LIST);
  for (int64_t i = 0; i < count && jinja_step(j, 0); i++) result.list->items[i] = items->items[start + i * step];
  if (v.kind != JINJA_STRING) return result;
  JinjaText t = {0};
  for (int64_t i = 0; i < count && !j->code; i++) jinja_put_string(j, &t, result.list->items[i].string);
  return jinja_text_end(j, &t);
}

// ---- operators

static JinjaValue whole_binary(Jinja *j, int op, int64_t a, int64_t b) {
  int64_t r = 0;
  bool over = false;
  switch (op) {
  case ARITHMETIC_ADD: over = __builtin_add_overflow(a, b, &r); break;
  case ARITHMETIC_SUBTRACT: over = __builtin_sub_overflow(a, b, &r); break;
  case ARITHMETIC_MULTIPLY: over = __builtin_mul_overflow(a, b, &r); break;
  case ARITHMETIC_FLOOR:
  case ARITHMETIC_MODULO:
    if (!b) return jinja_fail(j, "a division by zero");
    if (b == -1) over = op == ARITHMETIC_FLOOR && a == INT64_MIN, r = op == ARITHMETIC_FLOOR && !over ? -a : 0;
    else if (op == ARITHMETIC_FLOOR) r = a / b - (a % b && (a < 0) != (b < 0));
    else r = a % b + (a % b && (a < 0) != (b < 0) ? b : 0);
    break;
  default: // ARITHMETIC_POWER, b >= 0
    for (r = 1; b > 0 && !over && jinja_step(j, 0); b--) {
      over = __builtin_mul_overflow(r, a, &r);
      if (r == 0 || (r == 1 && a == 1)) break;
    }
  }
  return over ? jinja_fail(j, "a whole number exceeds 64 bits") : jinja_integer(r);
}

static JinjaValue real_binary(Jinja *j, int op, double a, double b) {
  if ((op == ARITHMETIC_DIVIDE || op == ARITHMETIC_FLOOR || op == ARITHMETIC_MODULO) && b == 0)
    return jinja_fail(j, "a division by zero");
  switch (op) {
  case ARITHMETIC_ADD: return jinja_real(a + b);
  case ARITHMETIC_SUBTRACT: return jinja_real(a - b);
  case ARITHMETIC_MULTIPLY: return jinja_real(a * b);
  case ARITHMETIC_DIVIDE: return jinja_real(a / b);
  case ARITHMETIC_FLOOR:
  case ARITHMETIC_MODULO: { // as Python: the remainder has the sign of b, and the quotient fits it
    double r = fmod(a, b), q = (a - r) / b;
    if (r == 0) r = copysign(0, b);
    else if ((r < 0) != (b < 0)) r += b, q -= 1;
    if (op == ARITHMETIC_MODULO) return jinja_real(r);
    return jinja_real(q == 0 ? copysign(0, a / b) : q - floor(q) > 0.5 ? floor(q) + 1 : floor(q));
  }
  default: return jinja_real(pow(a, b));
  }
}

static JinjaValue repeat(Jinja *j, JinjaValue v, int64_t times) {
  if (times < 0) times = 0;
  if (v.kind == JINJA_STRING) {
    JinjaText t = {0};
    for (int64_t i = 0; i < times && v.string->bytes && !j->code; i++) jinja_put_string(j, &t, v.string);
    return jinja_text_end(j, &t);
  }
  int n = v.list->count;
  if (n && times > (1 << 24) / n) return jinja_fail(j, "a list becomes too long");
  JinjaValue r = jinja_list(j, n * (int)(n ? times : 0), v.kind);
  for (int i = 0; i < r.list->count && jinja_step(j, 0); i++) r.list->items[i] = v.list->items[i % n];
  return r;
}

static void put_escaped(Jinja *j, JinjaText *t, const JinjaString *s) {
  static const char marks[] = "&<>'\"", *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  size_t kept = 0;
  for (size_t i = 0; i < s->bytes && !j->code; i++) {
    const char *p = memchr(marks, s->text[i], 5);
    if (!p) continue;
    jinja_put_part(j, t, s, kept, i);
    jinja_put(j, t, names[p - marks], strlen(names[p - marks]), jinja_origin(s, i));
    kept = i + 1;
  }
  jinja_put_part(j, t, s, kept, s->bytes);
}

static JinjaValue join_texts(Jinja *j, const JinjaString *a, const JinjaString *b) {
  JinjaText t = {0};
  if (a->safe == b->safe) jinja_put_string(j, &t, a), jinja_put_string(j, &t, b);
  else if (a->safe) jinja_put_string(j, &t, a), put_escaped(j, &t, b);
  else put_escaped(j, &t, a), jinja_put_string(j, &t, b);
  JinjaValue v = jinja_text_end(j, &t);
  return a->safe || b->safe ? jinja_safe(j, v) : v;
}

static JinjaValue join_two(Jinja *j, JinjaValue a, JinjaValue b) {
  if (a.kind == JINJA_STRING) return join_texts(j, a.string, b.string);
  if (a.list->count > (1 << 24) - b.list->count) return jinja_fail(j, "a list becomes too long");
  JinjaValue r = jinja_list(j, a.list->count + b.list->count, a.kind);
  for (int i = 0; i < r.list->count && jinja_step(j, 0); i++)
    r.list->items[i] = i < a.list->count ? a.list->items[i] : b.list->items[i - a.list->count];
  return r;
}

JinjaValue jinja_binary(Jinja *j, int op, JinjaValue a, JinjaValue b) {
  static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
  int64_t m, n;
  double x, y;
  if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
    return jinja_fail(j, "'%.80s' is undefined", a.kind == JINJA_UNDEFINED ? a.name : b.name);
  if (jinja_whole(a, &m) && jinja_whole(b, &n) && op != ARITHMETIC_DIVIDE && !(op == ARITHMETIC_POWER && n < 0))
    return whole_binary(j, op, m, n);
  if (jinja_number(a, &x) && jinja_number(b, &y)) return real_binary(j, op, x, y);
  bool texts = a.kind == JINJA_STRING && b.kind == JINJA_STRING, lists = jinja_is_list(a) && a.kind == b.kind;
  if (op == ARITHMETIC_ADD && (texts || lists)) return join_two(j, a, b);
  if (op == ARITHMETIC_MULTIPLY && (a.kind == JINJA_STRING || jinja_is_list(a)) && jinja_whole(b, &n))
    return repeat(j, a, n);
  if (op == ARITHMETIC_MULTIPLY && (b.kind == JINJA_STRING || jinja_is_list(b)) && jinja_whole(a, &n))
    return repeat(j, b, n);
  if (op == ARITHMETIC_MODULO && a.kind == JINJA_STRING) {
    if (b.kind == JINJA_TUPLE) return jinja_format(j, a.string, b.list->items, b.list->count);
    return jinja_format(j, a.string, &b, 1);
  }
  return jinja_fail(j, "%s cannot be computed with values of types %s and %s", signs[op], jinja_type(a), jinja_type(b));
}

static bool compared(Jinja *j, int op, JinjaValue a, JinjaValue b) {
  switch (op) {
  case COMPARE_EQUAL: return jinja_equal(j, a, b);
  case COMPARE_UNEQUAL: return !jinja_equal(j, a, b);
  case COMPARE_LESS: return jinja_compare(j, a, b) < 0;
  case COMPARE_LESS_EQUAL: return jinja_compare(j, a, b) <= 0;
  case COMPARE_GREATER: return jinja_compare(j, a, b) > 0;
  case COMPARE_GREATER_EQUAL: return jinja_compare(j, a, b) >= 0;
  case COMPARE_IN: return jinja_contains(j, b, a);
  default: return !jinja_contains(j, b, a);
  }
}

static JinjaValue eval_compare(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaValue left = jinja_eval(j, scope, node->items[0]);
  bool holds = true;
  for (int i = 1; i < node->count && holds && !j->code; i++) {
    JinjaValue right = jinja_eval(j, scope, node->items[i]);
    if (!j->code) holds = compared(j, node->ops[i - 1], left, right);
    left = right;
  }
  return jinja_bool(holds);
}

// ---- nodes

static JinjaValue eval_list(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaValue v = jinja_list(j, node->count, node->kind == NODE_LIST ? JINJA_LIST : JINJA_TUPLE);
  for (int i = 0; i < node->count && !j->code; i++) v.list->items[i] = jinja_eval(j, scope, node->items[i]);
  return v;
}

static JinjaValue eval_dict(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaValue v = jinja_dict(j);
  for (int i = 0; i + 1 < node->count && !j->code; i += 2) {
    JinjaValue key = jinja_eval(j, scope, node->items[i]), value = jinja_eval(j, scope, node->items[i + 1]);
    if (!j->code) jinja_dict_put(j, v.dict, key, value);
  }
  return v;
}

static JinjaValue eval_concat(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaText t = {0};
  for (int i = 0; i < node->count && !j->code; i++) jinja_put_value(j, &t, jinja_eval(j, scope, node->items[i]));
  return jinja_text_end(j, &t);
}

static JinjaArguments eval_arguments(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaValue *items = jinja_alloc(j, (size_t)(node->count + node->named_count), sizeof *items);
  for (int i = 0; i < node->count && !j->code; i++) items[i] = jinja_eval(j, scope, node->items[i]);
  for (int i = 0; i < node->named_count && !j->code; i++)
    items[node->count + i] = jinja_eval(j, scope, node->named[i]);
  return (JinjaArguments){items, node->count, node->names, items + node->count, node->named_count};
}

static JinjaValue eval_call(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaValue function = jinja_eval(j, scope, node->a);
  JinjaArguments arguments = eval_arguments(j, scope, node);
  j->line = node->line;
  return j->code ? function : jinja_call(j, function, &arguments);
}

static JinjaValue eval_filter(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaValue v = node->a ? jinja_eval(j, scope, node->a) : *j->filtered;
  JinjaArguments arguments = eval_arguments(j, scope, node);
  j->line = node->line;
  return j->code ? v : jinja_filter(j, node->name, v, &arguments);
}

static JinjaValue eval_test(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaValue v = jinja_eval(j, scope, node->a);
  JinjaArguments arguments = eval_arguments(j, scope, node);
  j->line = node->line;
  return j->code ? v : jinja_bool(jinja_test(j, node->name, v, &arguments));
}

static JinjaValue eval_part(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaValue v = jinja_eval(j, scope, node->a), b[3] = {{0}};
  const JinjaNode *const bounds[3] = {node->b, node->c, node->d};
  for (int i = 0; i < 3 && !j->code; i++)
    if (bounds[i]) b[i] = jinja_eval(j, scope, bounds[i]);
  if (j->code) return v;
  j->line = node->line;
  return node->kind == NODE_ITEM ? jinja_item(j, v, b[0]) : jinja_slice(j, v, b[0], b[1], b[2]);
}

static JinjaValue eval_sign(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaValue v = jinja_eval(j, scope, node->a);
  if (v.kind == JINJA_UNDEFINED) return jinja_fail(j, "'%.80s' is undefined", v.name);
  if (v.kind == JINJA_REAL) return node->kind == NODE_MINUS ? jinja_real(-v.real) : v;
  int64_t i;
  if (!jinja_whole(v, &i)) return jinja_fail(j, "a value of type %s has no sign", jinja_type(v));
  return whole_binary(j, ARITHMETIC_SUBTRACT, 0, node->kind == NODE_MINUS ? i : -i);
}

static JinjaValue eval_node(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaValue a;
  switch (node->kind) {
  case NODE_CONSTANT: return node->value;
  case NODE_NAME: return lookup(j, scope, node->name);
  case NODE_LIST:
  case NODE_TUPLE: return eval_list(j, scope, node);
  case NODE_DICT: return eval_dict(j, scope, node);
  case NODE_NOT: return jinja_bool(!jinja_truth(jinja_eval(j, scope, node->a)));
  case NODE_MINUS:
  case NODE_PLUS: return eval_sign(j, scope, node);
  case NODE_BINARY: {
    a = jinja_eval(j, scope, node->a);
    JinjaValue b = jinja_eval(j, scope, node->b);
    j->line = node->line;
    return j->code ? a : jinja_binary(j, node->op, a, b);
  }
  case NODE_AND:
    a = jinja_eval(j, scope, node->a);
    return jinja_truth(a) ? jinja_eval(j, scope, node->b) : a;
  case NODE_OR:
    a = jinja_eval(j, scope, node->a);
    return jinja_truth(a) ? a : jinja_eval(j, scope, node->b);
  case NODE_COMPARE: return eval_compare(j, scope, node);
  case NODE_CONCAT: return eval_concat(j, scope, node);
  case NODE_CONDITION:
    if (jinja_truth(jinja_eval(j, scope, node->b))) return jinja_eval(j, scope, node->a);
    return node->c ? jinja_eval(j, scope, node->c) : jinja_undefined("");
  case NODE_ATTRIBUTE:
    a = jinja_eval(j, scope, node->a);
    j->line = node->line;
    return j->code ? a : jinja_attribute(j, a, node->name);
  case NODE_ITEM:
  case NODE_SLICE: return eval_part(j, scope, node);
  case NODE_CALL: return eval_call(j, scope, node);
  case NODE_FILTER: return eval_filter(j, scope, node);
  case NODE_TEST: return eval_test(j, scope, node);
  default: CHECK(false, "no expression"); return jinja_none();
  }
}

JinjaValue jinja_eval(Jinja *j, JinjaScope *scope, const JinjaNode *node) {
  JinjaValue v = jinja_undefined("");
  if (!jinja_step(j, 0)) return v;
  j->line = node->line;
  if (node->kind == NODE_CONSTANT) return node->value;
  if (jinja_enter(j)) v = eval_node(j, scope, node);
  jinja_leave(j);
  return j->code ? jinja_undefined("") : v;
}
