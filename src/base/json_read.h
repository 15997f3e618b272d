// JSON that others have written: read as Python's json reads it, whose files these are. Also read, besides strict JSON:
// a UTF-8 BOM before the text; numbers of any size, NaN, Infinity and -Infinity; halves of UTF-16 surrogate pairs, each
// of which becomes U+FFFD; keys that an object has twice, the last of which wins. Objects and arrays of a tree are
// nested at most JSON_DEPTH deep; json_scan_key passes over any depth.
#pragma once
#include "base/error.h"
#include <stddef.h>

enum { JSON_DEPTH = 512 };
struct json_t;

// Reads all of text[0, bytes). Integers beyond 64 bits become the nearest real; numbers that no double holds (NaN,
// Infinity, 1e999) become a string of their spelling, so that nobody who asks for a number takes them for one.
// PLAIT_BAD_INPUT: the sentence begins with "NAME: line N: ". The caller releases *tree with json_decref.
int json_read(const char *text, size_t bytes, const char *name, struct json_t **tree, Error *error);

// 1: the file is there, *tree is its content; 0: there is no such file; negative: it is there, but is larger than
// max_bytes, unreadable, or not JSON. *tree is NULL unless it is 1.
int json_read_file(const char *path, size_t max_bytes, struct json_t **tree, Error *error);

typedef enum JsonKind {
  JSON_IS_ABSENT,
  JSON_IS_OBJECT,
  JSON_IS_ARRAY,
  JSON_IS_STRING,
  JSON_IS_NUMBER,
  JSON_IS_WORD,
  JSON_IS_NULL
} JsonKind;
typedef struct JsonValue {
  JsonKind kind;
  const char *text;
  size_t bytes;
} JsonValue; // text: its spelling

// Finds the value of a key of the object that text[0, bytes) is, without a tree; JSON_IS_ABSENT where there is none.
// NULL, or why the text is not one JSON object: JSON_NO_OBJECT where it is another value. Keys and values that are
// passed over need not be UTF-8. Where the text is cut off within the key's string, value->kind is JSON_IS_STRING.
#define JSON_NO_OBJECT "not a JSON object"
const char *json_scan_key(const char *text, size_t bytes, const char *key, JsonValue *value);

// The string of a JSON_IS_STRING value, to be released with json_decref, and how many halves of surrogate pairs were
// replaced; NULL where it is not UTF-8.
struct json_t *json_scan_string(const JsonValue *value, int *replaced);
