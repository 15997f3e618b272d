// Tests: x is …
#include "chat/jinja_value.h"

typedef bool Test(Jinja *j, JinjaValue v, JinjaValue with);

static bool is_defined(Jinja *j, JinjaValue v, JinjaValue w) { return v.kind != JINJA_UNDEFINED; }
static bool is_undefined(Jinja *j, JinjaValue v, JinjaValue w) { return v.kind == JINJA_UNDEFINED; }
static bool is_none(Jinja *j, JinjaValue v, JinjaValue w) { return v.kind == JINJA_NONE; }
static bool is_boolean(Jinja *j, JinjaValue v, JinjaValue w) { return v.kind == JINJA_BOOLEAN; }
static bool is_true(Jinja *j, JinjaValue v, JinjaValue w) { return v.kind == JINJA_BOOLEAN && v.boolean; }
static bool is_false(Jinja *j, JinjaValue v, JinjaValue w) { return v.kind == JINJA_BOOLEAN && !v.boolean; }
static bool is_integer(Jinja *j, JinjaValue v, JinjaValue w) { return v.kind == JINJA_INTEGER; }
static bool is_float(Jinja *j, JinjaValue v, JinjaValue w) { return v.kind == JINJA_REAL; }
static bool is_number(Jinja *j, JinjaValue v, JinjaValue w) {
  return v.kind == JINJA_INTEGER || v.kind == JINJA_REAL || v.kind == JINJA_BOOLEAN;
}
static bool is_string(Jinja *j, JinjaValue v, JinjaValue w) { return v.kind == JINJA_STRING; }
static bool is_mapping(Jinja *j, JinjaValue v, JinjaValue w) { return v.kind == JINJA_DICT; }
static bool is_iterable(Jinja *j, JinjaValue v, JinjaValue w) {
  return v.kind == JINJA_UNDEFINED || v.kind == JINJA_STRING || jinja_is_list(v) || v.kind == JINJA_DICT;
}
static bool is_sequence(Jinja *j, JinjaValue v, JinjaValue w) {
  return is_iterable(j, v, w) && !(jinja_is_list(v) && v.list->lazy);
}
static bool is_callable(Jinja *j, JinjaValue v, JinjaValue w) { return v.kind >= JINJA_MACRO; }

static bool remainder_is(Jinja *j, JinjaValue v, JinjaValue by, int64_t value) {
  JinjaValue r = jinja_binary(j, 5, v, by); // ARITHMETIC_MODULO
  double x;
  return !j->code && jinja_number(r, &x) && x == (double)value;
}

static bool is_even(Jinja *j, JinjaValue v, JinjaValue w) { return remainder_is(j, v, jinja_integer(2), 0); }
static bool is_odd(Jinja *j, JinjaValue v, JinjaValue w) { return remainder_is(j, v, jinja_integer(2), 1); }
static bool is_divisible(Jinja *j, JinjaValue v, JinjaValue w) { return remainder_is(j, v, w, 0); }
static bool is_lower(Jinja *j, JinjaValue v, JinjaValue w) {
  v = jinja_str(j, v);
  return !j->code && jinja_truth(jinja_string_method(j, v.string, "islower", &(JinjaArguments){0}));
}
static bool is_upper(Jinja *j, JinjaValue v, JinjaValue w) {
  v = jinja_str(j, v);
  return !j->code && jinja_truth(jinja_string_method(j, v.string, "isupper", &(JinjaArguments){0}));
}
static bool is_equal(Jinja *j, JinjaValue v, JinjaValue w) { return jinja_equal(j, v, w); }
static bool is_unequal(Jinja *j, JinjaValue v, JinjaValue w) { return !jinja_equal(j, v, w); }
static bool is_less(Jinja *j, JinjaValue v, JinjaValue w) { return jinja_compare(j, v, w) < 0; }
static bool is_at_most(Jinja *j, JinjaValue v, JinjaValue w) { return jinja_compare(j, v, w) <= 0; }
static bool is_greater(Jinja *j, JinjaValue v, JinjaValue w) { return jinja_compare(j, v, w) > 0; }
static bool is_at_least(Jinja *j, JinjaValue v, JinjaValue w) { return jinja_compare(j, v, w) >= 0; }
static bool is_in(Jinja *j, JinjaValue v, JinjaValue w) { return jinja_contains(j, w, v); }
static bool is_filter(Jinja *j, JinjaValue v, JinjaValue w) {
  return v.kind == JINJA_STRING && jinja_has_filter(jinja_attribute_name(j, v));
}
static bool is_test(Jinja *j, JinjaValue v, JinjaValue w) {
  return v.kind == JINJA_STRING && jinja_has_test(jinja_attribute_name(j, v));
}

static const struct {
  const char *name;
  Test *test;
  int values;
} tests[] = {{"defined", is_defined}, {"undefined", is_undefined}, {"none", is_none}, {"boolean", is_boolean},
             {"true", is_true}, {"false", is_false}, {"integer", is_integer}, {"float", is_float},
             {"number", is_number}, {"string", is_string}, {"mapping", is_mapping}, {"iterable", is_iterable},
             {"sequence", is_sequence}, {"callable", is_callable}, {"even", is_even}, {"odd", is_odd},
             {"divisibleby", is_divisible, 1}, {"lower", is_lower}, {"upper", is_upper}, {"equalto", is_equal, 1},
             {"eq", is_equal, 1}, {"==", is_equal, 1}, {"ne", is_unequal, 1}, {"!=", is_unequal, 1},
             {"lt", is_less, 1}, {"lessthan", is_less, 1}, {"<", is_less, 1}, {"le", is_at_most, 1},
             {"<=", is_at_most, 1}, {"gt", is_greater, 1}, {"greaterthan", is_greater, 1}, {">", is_greater, 1},
             {"ge", is_at_least, 1}, {">=", is_at_least, 1}, {"in", is_in, 1}, {"filter", is_filter},
             {"test", is_test}, {"sameas", is_equal, 1}};

bool jinja_has_test(const char *name) {
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
    if (!strcmp(tests[i].name, name)) return true;
  return false;
}

bool jinja_test(Jinja *j, const char *name, JinjaValue v, const JinjaArguments *a) {
  static const char *const names[] = {"other"};
  JinjaValue with = {0};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    if (strcmp(tests[i].name, name) != 0) continue;
    if (!jinja_arguments(j, name, a, names, &with, tests[i].values, tests[i].values)) return false;
    return tests[i].test(j, v, with);
  }
  return jinja_fail(j, "the test \"%.60s\" is not built", name), false;
}
