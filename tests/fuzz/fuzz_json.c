// JSON that others have written: a tree that is written and read again is the same, and the scan for one key finds what
// the tree has.
#include "base/json_read.h"
#include "fuzz.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void compare(const json_t *tree, const char *key, const JsonValue *value) {
  const json_t *right = json_object_get(tree, key);
  int replaced;
  switch (value->kind) {
  case JSON_IS_ABSENT: CHECK(!right); return;
  case JSON_IS_OBJECT: CHECK(json_is_object(right)); break;
  case JSON_IS_ARRAY: CHECK(json_is_array(right)); break;
  case JSON_IS_NULL: CHECK(json_is_null(right)); break;
  case JSON_IS_WORD: CHECK(json_is_boolean(right)); break;
  case JSON_IS_NUMBER: CHECK(json_is_number(right) || json_is_string(right)); break; // NaN is its spelling
  case JSON_IS_STRING: {
    json_t *string = json_scan_string(value, &replaced);
    CHECK(string && json_equal(string, right) && replaced >= 0);
    json_decref(string);
  }
  }
  CHECK(value->text && (value->bytes || value->kind == JSON_IS_STRING));
}

static void check_again(const json_t *tree) {
  char *text = json_dumps(tree, JSON_COMPACT | JSON_ENCODE_ANY);
  json_t *again;
  Error error = {0};
  CHECK(text && !json_read(text, strlen(text), "again", &again, &error), "%s", error.message);
  CHECK(json_equal(tree, again), "%s", text);
  json_decref(again);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const keys[] = {"text", "", "k"};
  const char *text = (const char *)data;
  json_t *tree;
  Error error = {0};
  int code = json_read(text, size, "f.json", &tree, &error);
  fuzz_check(code, &error);
  CHECK((code == PLAIT_OK) == (tree != NULL));
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    JsonValue value;
    int replaced;
    const char *why = json_scan_key(text, size, keys[i], &value);
    CHECK(!why || *why);
    if (tree) CHECK(json_is_object(tree) ? !why : why && !strcmp(why, JSON_NO_OBJECT), "%s", why);
    if (!why && value.kind == JSON_IS_STRING) json_decref(json_scan_string(&value, &replaced));
    if (tree && !why) compare(tree, keys[i], &value);
  }
  if (tree) check_again(tree);
  json_decref(tree);
  return 0;
}
