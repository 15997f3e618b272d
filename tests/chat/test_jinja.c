// tier 1; rooms chat
// The interpreter of Jinja against what Python's jinja2 has made of the same templates (golden.json, by
// scripts/golden_jinja.py), where bytes come from, what templates may not do, and what is said then.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/file.h"
#include "base/json_read.h"
#include "jinja_lines.h"
#include <stdio.h>
#include <string.h>

#define CHATS TESTS_FOLDER "/chat/"

static json_t *read_template(const char *name) {
  char path[1024], *text;
  size_t bytes;
  Error error = {0};
  snprintf(path, sizeof path, CHATS "templates/%s", name);
  if (file_read(path, 1 << 20, &text, &bytes, &error)) fail_msg("%s", error.message);
  json_t *string = json_stringn(text, bytes);
  free(text);
  return string;
}

static void test_goldens(void **state) {
  (void)state;
  json_t *golden, *wanted;
  Error error = {0};
  size_t i;
  assert_int_equal(json_read_file(CHATS "golden.json", 8 << 20, &golden, &error), 1);
  json_array_foreach(json_object_get(golden, "cases"), i, wanted) {
    const char *name = json_string_value(json_object_get(wanted, "template"));
    json_int_t chat = json_integer_value(json_object_get(wanted, "chat"));
    json_t *variables = json_array_get(json_object_get(golden, "chats"), (size_t)chat);
    json_t *line = json_pack("{s:o, s:O}", "template", read_template(name), "variables", variables);
    json_t *answer = jinja_line(line);
    const json_t *text = json_object_get(wanted, "text"), *got = json_object_get(answer, "text");
    if (text ? !json_equal(text, got) : got != NULL)
      fail_msg("%s, chat %d:\n%s\nshould be\n%s", name, (int)chat,
               got ? json_string_value(got) : json_string_value(json_object_get(answer, "error")),
               text ? json_string_value(text) : "an error");
    json_decref(answer);
    json_decref(line);
  }
  assert_true(i > 100);
  json_decref(golden);
}

static json_t *render(const char *template, const char *variables) {
  json_t *v = json_loads(variables, 0, NULL), *line = json_pack("{s:s, s:o}", "template", template, "variables", v);
  assert_non_null(v);
  json_t *answer = jinja_line(line);
  json_decref(line);
  return answer;
}

static const struct {
  const char *template, *sentence;
} refused[] = {{"a\n{{ x", "t: line 2: {{ has no }}"},
               {"{% if x %}\n\nb", "t: line 3: the template ends before elif|else|endif of line 1"},
               {"{% if x %}{% endfor %}", "t: line 1: there is no tag {% endfor %} here"},
               {"{% include 'x' %}", "t: line 1: the tag {% include %} is not built"},
               {"{{ x | wordwrap(3) }}", "t: line 1: the filter \"wordwrap\" is not built"},
               {"{{ x is escaped }}", "t: line 1: the test \"escaped\" is not built"},
               {"{% for i in x recursive %}{% endfor %}", "t: line 1: a recursive loop is not built"},
               {"{{ f(*x) }}", "t: line 1: arguments with * are not built"},
               {"{{ 'a }}", "t: line 1: a string has no end, or an escape that is none"},
               {"{{ (1 }}", "t: line 1: a bracket closes what is not open"},
               {"{{ 1 1 }}", "t: line 1: }} is expected, not \"1\""},
               {"{{ ? }}", "t: line 1: \"?\" does not belong into an expression"},
               {"{# x", "t: line 1: a comment {# has no #}"},
               {"{% break %}", "t: line 1: break and continue stand in no loop"},
               {"\n{{ nothing.a }}", "t: line 2: 'nothing' is undefined"},
               {"{{ d.a.b }}", "t: line 1: 'a' is undefined"},
               {"{{ 'a' + 1 }}", "t: line 1: + cannot be computed with values of types str and int"},
               {"{{ 'a' < 1 }}", "t: line 1: values of types str and int have no order"},
               {"{{ 1 // 0 }}", "t: line 1: a division by zero"},
               {"{{ 9223372036854775807 + 1 }}", "t: line 1: a whole number exceeds 64 bits"},
               {"{{ raise_exception('Roles must ' ~ 'alternate') }}", "Roles must alternate"},
               {"{{ d.update({}) }}", "t: line 1: update changes a dict, which a template may not"},
               {"{{ [1].sort() }}", "t: line 1: sort changes a list, which a template may not but by append and pop"},
               {"{{ range(1000000) }}", "t: line 1: a range has over 100000 values"},
               {"{% for a, b in [1] %}{% endfor %}", "t: line 1: a value of type int cannot be iterated over"},
               {"{% set x = 1 %}{% set x.y = 2 %}", "t: line 1: x is not a namespace; only values of those can be set"},
               {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "t: line 1: f is given 2 values and takes 1"},
               {"{{ f(1) }}", "t: line 1: 'f' is undefined"},
               {"{{ d | tojson(index=2) }}", "t: line 1: tojson takes no index="},
               // Without end, or without bounds
               {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
                "t: line 1: the template, or a value in it, is nested too deep"},
               {"{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
                "t: line 1: the template takes more than 256 MiB of memory"},
               {"{% set n = namespace(s='0123456789') %}{% for a in range(90) %}{% set n.s = n.s + n.s %}{% endfor %}",
                "t: line 1: a text becomes longer than 64 MiB"},
               {"{% set n = namespace(s=[0, 1]) %}{% for a in range(90) %}{% set n.s = n.s + n.s %}{% endfor %}",
                "t: line 1: the template takes more than 256 MiB of memory"},
               {"{% set s = '0123456789' * 1000 %}{% for a in range(90000) %}{{ s }}{% endfor %}",
                "t: line 1: a text becomes longer than 64 MiB"},
               {"{% set n = namespace(l=[]) %}{% for a in range(5000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
                "t: line 1: the template, or a value in it, is nested too deep"},
               {"{% set l = [] %}{% set _ = l.append(l) %}{{ l == [l] }}",
                "t: line 1: the template, or a value in it, is nested too deep"},
               {"{% set l = [1] %}{% for a in l %}{% set _ = l.append(a) %}{% endfor %}",
                "t: line 1: the template takes more than 256 MiB of memory"}};

static void test_refusals(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    json_t *answer = render(refused[i].template, "{\"d\": {\"k\": 1}}");
    const char *why = json_string_value(json_object_get(answer, "error"));
    if (!why || strcmp(why, refused[i].sentence))
      fail_msg("%s: %s, should be %s", refused[i].template, why ? why : "no error", refused[i].sentence);
    json_decref(answer);
  }
}

// Nested brackets, blocks and operators as deep as anybody may write them: a sentence, or a text.
static void test_depth(void **state) {
  (void)state;
  static const char *const parts[][3] = {{"{{ ", "(", "1"},      {"{{ ", "[", "1"},
                                         {"{{ ", "-", "1"},      {"{{ ", "not ", "1"},
                                         {"{{ 1", " + 1", ""},   {"{{ 1", "|abs", ""},
                                         {"{{ 1", " if 1", ""},  {"{{ d", "[0]", ""},
                                         {"", "{% if 1 %}", ""}, {"{% if 1 %}", "{% elif 1 %}", ""},
                                         {"{{ 1", " and 1", ""}, {"{{ 1", " < 1", ""},
                                         {"{{ 1", "~1", ""},     {"{{ ", "{1:", "1"}};
  for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
    for (int n = 10; n <= 100000; n *= 10) {
      size_t bytes = strlen(parts[k][1]);
      char *text = malloc(100 + bytes * (size_t)n), *end = text;
      end += sprintf(end, "%s", parts[k][0]);
      for (int i = 0; i < n; i++) end += sprintf(end, "%s", parts[k][1]);
      sprintf(end, "%s }}", parts[k][2]);
      json_t *answer = render(text, "{\"d\": []}");
      assert_true(json_object_get(answer, "error") || json_object_get(answer, "text"));
      json_decref(answer);
      free(text);
    }
}

// Where bytes come from: T the template, a digit a message, G other variables. A letter for each byte.
static const struct {
  const char *template, *text, *origins;
} origins[] = {
    {"a{{ messages[0].content }}b", "axYzb", "T000T"},
    {"{{ messages[0].content[1:] + messages[1].content }}", "Yzqq", "0011"},
    {"{{ messages[0].content | upper }}{{ messages[1].content | replace('q', 'AB') }}", "XYZABAB", "000TTTT"},
    {"{{ 'a-b' | replace('-', messages[0].content) }}", "axYzb", "T000T"},
    {"{{ messages[0].content[::-1] }}{{ messages | length }}", "zYx3", "000T"},
    {"{{ messages[1].content | tojson }}", "\"qq\"", "T11T"},
    {"{{ [messages[0].content, 1] }}", "['xYz', 1]", "TT000TTTTT"},
    {"{{ messages[:2] | map(attribute='content') | join('+') }}", "xYz+qq", "000T11"},
    {"{% set s %}<{{ messages[0].content }}>{% endset %}{{ s[1:-1] ~ s | trim('<') }}", "xYzxYz>", "000000T"},
    {"{{ '%s!' % messages[1].content }}{{ '{}'.format(g) }}", "qq!gg", "11TGG"},
    {"{% filter upper %}i{{ messages[0].content }}{% endfilter %}", "IXYZ", "T000"},
    {"{% macro f(x) %}({{ x.split('Y')[1] }}){% endmacro %}{{ f(messages[0].content) }}", "(z)", "T0T"},
    {"{% for c in messages[1].content %}{{ c }}{{ loop.index }}{% endfor %}", "q1q2", "1T1T"},
    {"{{ ('a\nb' ~ messages[1].content) | indent(1) }}", "a\n bqq", "TTTT11"},
    {"{{ messages[2].content | from_json | tojson }}", "{\"k\": \"\xc3\xa9\"}", "TT2TTTT22TT"},
    {"{{ strftime_now(messages[1].content) }}", "qq", "11"}};

static void test_origins(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof origins / sizeof *origins; i++) {
    json_t *answer =
        render(origins[i].template, "{\"g\": \"gg\", \"messages\": [{\"content\": \"xYz\"}, {\"content\": \"qq\"}, "
                                    "{\"content\": \"{\\\"k\\\": \\\"\\u00e9\\\"}\"}]}");
    const char *text = json_string_value(json_object_get(answer, "text"));
    assert_string_equal(text ? text : json_string_value(json_object_get(answer, "error")), origins[i].text);
    char got[100] = "";
    size_t k, at = 0;
    json_t *part;
    json_array_foreach(json_object_get(answer, "parts"), k, part) {
      json_int_t origin = json_integer_value(json_array_get(part, 1));
      while (at < (size_t)json_integer_value(json_array_get(part, 0)))
        got[at++] = origin == JINJA_TEMPLATE ? 'T' : origin == JINJA_GIVEN ? 'G' : (char)('0' + origin);
    }
    if (strcmp(got, origins[i].origins) != 0)
      fail_msg("%s: %s, should be %s", origins[i].template, got, origins[i].origins);
    json_decref(answer);
  }
}

int main(int argc, char **argv) {
  if (argc == 2) return jinja_lines(argv[1]); // scripts/golden_jinja.py compares
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_goldens), cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_depth), cmocka_unit_test(test_origins)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
