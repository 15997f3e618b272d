// JSON that others have written: what is read besides strict JSON, what is refused, and the scan for one key.
// tier 1
#include "base/json_read.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void reads_as(const char *text, const char *strict) {
  Error error = {0};
  json_t *tree;
  assert_int_equal(json_read(text, strlen(text), "f", &tree, &error), PLAIT_OK);
  char *out = json_dumps(tree, JSON_COMPACT | JSON_ENCODE_ANY);
  assert_string_equal(out, strict);
  free(out);
  json_decref(tree);
}

static void test_tolerates(void **state) {
  (void)state;
  reads_as("\xef\xbb\xbf{\"a\": [1, -2.5, true, false, null, \"x\"]}", "{\"a\":[1,-2.5,true,false,null,\"x\"]}");
  reads_as("[1000000000000000019884624838656]", "[1e30]");
  reads_as("[9223372036854775807, NaN, Infinity, -Infinity, 1e999]",
           "[9223372036854775807,\"NaN\",\"Infinity\",\"-Infinity\",\"1e999\"]");
  reads_as("{\"a\": 1, \"\\u0061\": 2}", "{\"a\":2}");
  reads_as("[\"\\ud83d\", \"\\ud83d\\ude00\", \"\\ude00x\", \"\\\"\\\\\\/\\n\"]",
           "[\"\xef\xbf\xbd\",\"\xf0\x9f\x98\x80\",\"\xef\xbf\xbdx\",\"\\\"\\\\/\\n\"]");
}

static void refused(const char *text, const char *message) {
  Error error = {0};
  json_t *tree;
  assert_int_equal(json_read(text, strlen(text), "f", &tree, &error), PLAIT_BAD_INPUT);
  assert_null(tree);
  assert_string_equal(error.message, message);
}

static void test_refuses(void **state) {
  (void)state;
  refused("{\"a\": 1,\n\"b\" 2}", "f: line 2: not valid JSON: a colon is expected after a key");
  refused("", "f: line 1: not valid JSON: the text ends where a value is expected");
  refused("{\"a\": 1", "f: line 1: not valid JSON: the text ends within an object");
  refused("[1] 2", "f: line 1: not valid JSON: something follows the value");
  refused("[1 2]", "f: line 1: not valid JSON: a comma or ] is expected");
  refused("[\"a", "f: line 1: not valid JSON: the text ends within a string");
  refused("[\"\\x\"]", "f: line 1: not valid JSON: a string has an invalid escape");
  refused("[\"\\u12g4\"]", "f: line 1: not valid JSON: a string has an invalid escape");
  refused("[01]", "f: line 1: not valid JSON: a comma or ] is expected");
  refused("[1.]", "f: line 1: not valid JSON: a value is expected");
  refused("[\"\xff\"]", "f: line 1: not valid JSON: a string is not UTF-8");
  refused("{\"\\u0000\": 1}", "f: line 1: not valid JSON: a key is not UTF-8, or has a NUL");
  char deep[JSON_DEPTH + 2];
  memset(deep, '[', sizeof deep - 1);
  deep[sizeof deep - 1] = 0;
  refused(deep, "f: line 1: not valid JSON: values are nested too deep");
}

static void test_file(void **state) {
  (void)state;
  char path[] = "/tmp/test_json_read.XXXXXX";
  int fd = mkstemp(path);
  Error error = {0};
  json_t *tree;
  assert_int_equal(write(fd, "{\"a\": NaN}", 10), 10);
  assert_int_equal(json_read_file(path, 100, &tree, &error), 1);
  json_decref(tree);
  assert_int_equal(write(fd, "}", 1), 1);
  assert_true(json_read_file(path, 100, &tree, &error) < 0);
  assert_non_null(strstr(error.message, ": line 1: not valid JSON"));
  close(fd);
  unlink(path);
  assert_int_equal(json_read_file(path, 100, &tree, &error), 0);
  assert_null(tree);
}

static void test_scan(void **state) {
  (void)state;
  const char *line = "{\"id\": 1e999, \"n\": {\"text\": \"no\"}, \"s\": \"\xff\\ud83d\", \"text\": \"first\", "
                     "\"te\\u0078t\": \"o\\u006ee \\ud83d\"}";
  JsonValue value;
  int replaced;
  assert_null(json_scan_key(line, strlen(line), "text", &value));
  assert_int_equal(value.kind, JSON_IS_STRING);
  json_t *string = json_scan_string(&value, &replaced);
  assert_string_equal(json_string_value(string), "one \xef\xbf\xbd");
  assert_int_equal(replaced, 1);
  json_decref(string);
  assert_null(json_scan_key("{\"text\": null}", 14, "text", &value));
  assert_int_equal(value.kind, JSON_IS_NULL);
  assert_null(json_scan_key("{}", 2, "text", &value));
  assert_int_equal(value.kind, JSON_IS_ABSENT);
  assert_string_equal(json_scan_key("[1]", 3, "text", &value), "not a JSON object");
  assert_non_null(json_scan_key("{\"text\": \"a\"", 12, "text", &value));
  assert_non_null(json_scan_key("", 0, "text", &value));
}

// What the line is not asked for may be nested deeper than any stack; what is wrong in it is still found.
static void test_scan_deep(void **state) {
  (void)state;
  enum { DEEP = 1 << 20 };
  char *line = malloc(4 * DEEP), *at = line;
  JsonValue value;
  at += sprintf(at, "{\"m\": ");
  for (int i = 0; i < DEEP; i++) *at++ = '[';
  *at++ = '7';
  for (int i = 0; i < DEEP; i++) *at++ = ']';
  char *end = at;
  at += sprintf(at, ", \"text\": \"one\"}");
  assert_null(json_scan_key(line, (size_t)(at - line), "text", &value));
  assert_int_equal(value.kind, JSON_IS_STRING);
  end[-1] = '}';
  assert_string_equal(json_scan_key(line, (size_t)(at - line), "text", &value), "a comma or ] is expected");
  assert_string_equal(json_scan_key(line, DEEP, "text", &value), "the text ends where a value is expected");
  free(line);
  const struct { const char *line, *why; } lines[] = {
      {"{\"m\": {\"a\": [{}, [], {\"b\": [1, {\"c\": null}]}], \"d\": \"\"}, \"text\": \"\"}", NULL},
      {" {\"m\": [ 1 , 2 ] , \"text\" : \"\" } \r", NULL},
      {"{\"m\": [1 2], \"text\": \"\"}", "a comma or ] is expected"},
      {"{\"m\": [1,], \"text\": \"\"}", "a value is expected"},
      {"{\"m\": [,1], \"text\": \"\"}", "a value is expected"},
      {"{\"m\": {\"a\": 1,}, \"text\": \"\"}", "a string in double quotes is expected"},
      {"{\"m\": {\"a\" 1}, \"text\": \"\"}", "a colon is expected after a key"},
      {"{\"m\": {1: 1}, \"text\": \"\"}", "a string in double quotes is expected"},
      {"{\"m\": {\"a\": 1], \"text\": \"\"}", "a comma or } is expected"},
      {"{\"m\": {\"a\": [1", "the text ends within an array"},
      {"{\"m\": {\"a\": \"x\"", "the text ends within an object"},
      {"{\"m\": [nul], \"text\": \"\"}", "a value is expected"},
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    const char *why = json_scan_key(lines[i].line, strlen(lines[i].line), "text", &value);
    if (!lines[i].why) assert_null(why);
    else assert_string_equal(why, lines[i].why);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_scan_deep), cmocka_unit_test(test_tolerates),
                                     cmocka_unit_test(test_refuses), cmocka_unit_test(test_file),
                                     cmocka_unit_test(test_scan)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
