// One parser for trees and for scans: without a place for the result it only walks over values, however deep they are.
#include "base/json_read.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/vec.h"
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

enum { SCAN_DEPTH = 1 << 28 }; // a byte each

typedef struct Reader {
  const char *at, *end, *why;
  int depth;
} Reader;

static bool fails(Reader *r, const char *why) {
  if (!r->why) r->why = why;
  return false;
}

static void skip_space(Reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

static bool takes(Reader *r, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return false;
  r->at += n;
  return true;
}

static int hex_unit(const char *s) { // of four digits; -1: they are not
  int unit = 0;
  for (int i = 0; i < 4; i++) {
    char c = s[i];
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}

// Walks over a string; *raw: what stands between its quotes.
static bool take_raw(Reader *r, JsonValue *raw) {
  if (r->at == r->end || *r->at != '"') return fails(r, "a string in double quotes is expected");
  const char *start = ++r->at;
  while (r->at < r->end && *r->at != '"') {
    if ((unsigned char)*r->at < 0x20)
      return fails(r, "a string has a control character, or its closing quote is missing");
    if (*r->at++ != '\\') continue;
    if (r->at == r->end) break;
    char c = *r->at++;
    if (c == 'u' ? r->end - r->at < 4 || hex_unit(r->at) < 0 : !c || !strchr("\"\\/bfnrt", c))
      return fails(r, "a string has an invalid escape");
  }
  if (r->at == r->end) return fails(r, "the text ends within a string");
  *raw = (JsonValue){JSON_IS_STRING, start, (size_t)(r->at++ - start)};
  return true;
}

static size_t put_utf8(char *out, uint32_t c) {
  if (c < 0x80) {
    out[0] = (char)c;
    return 1;
  }
  size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
  out[0] = (char)((0xf00 >> n & 0xff) | c);
  return n;
}

// Decodes what take_raw has walked over into `out`, which has room for as many bytes; returns how many there are.
static size_t decode(const JsonValue *raw, char *out, int *replaced) {
  const char *s = raw->text, *end = s + raw->bytes, *letters = "bfnrt", *codes = "\b\f\n\r\t";
  size_t n = 0;
  while (s < end) {
    if (*s != '\\') {
      out[n++] = *s++;
      continue;
    }
    const char *letter = strchr(letters, s[1]);
    if (s[1] != 'u') {
      out[n++] = letter ? codes[letter - letters] : s[1];
      s += 2;
      continue;
    }
    uint32_t c = (uint32_t)hex_unit(s + 2);
    s += 6;
    if (c >= 0xd800 && c < 0xe000) {
      int low = c < 0xdc00 && end - s >= 6 && s[0] == '\\' && s[1] == 'u' ? hex_unit(s + 2) : -1;
      bool pair = low >= 0xdc00 && low < 0xe000;
      c = pair ? 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)low - 0xdc00) : 0xfffd;
      s += pair ? 6 : 0;
      *replaced += !pair;
    }
    n += put_utf8(out + n, c);
  }
  return n;
}

static bool spells(const JsonValue *raw, const char *key, size_t length) {
  char *name = xcalloc(raw->bytes + 1, 1);
  int replaced = 0;
  bool equal = decode(raw, name, &replaced) == length && !memcmp(name, key, length);
  free(name);
  return equal;
}

json_t *json_scan_string(const JsonValue *value, int *replaced) {
  char *text = xcalloc(value->bytes + 1, 1);
  *replaced = 0;
  json_t *string = json_stringn(text, decode(value, text, replaced)); // NULL where it is not UTF-8
  free(text);
  return string;
}

static bool take_digits(Reader *r) {
  const char *start = r->at;
  while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
  return r->at > start;
}

static bool take_number(Reader *r) {
  bool good;
  takes(r, "-");
  if (takes(r, "Infinity")) return true;
  good = takes(r, "0") || take_digits(r);
  if (good && takes(r, ".")) good = take_digits(r);
  if (good && (takes(r, "e") || takes(r, "E"))) {
    if (!takes(r, "+")) takes(r, "-");
    good = take_digits(r);
  }
  return good || fails(r, "a value is expected");
}

static json_t *number_of(const char *text, size_t bytes) {
  json_t *number = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);
  if (!number) number = json_loadb(text, bytes, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
  return FAULT(json_large_number_is_null, number ? number : json_stringn(text, bytes), json_null());
}

static bool take_value(Reader *r, JsonValue *value, json_t **tree);

static bool fails_within(Reader *r, bool object) {
  if (r->at == r->end) return fails(r, object ? "the text ends within an object" : "the text ends within an array");
  return fails(r, object ? "a comma or } is expected" : "a comma or ] is expected");
}

static bool take_object(Reader *r, json_t **tree, const char *key, JsonValue *found) {
  if (tree) *tree = json_object();
  r->at++;
  skip_space(r);
  if (takes(r, "}")) return true;
  size_t length = key ? strlen(key) : 0;
  do {
    JsonValue raw, value;
    json_t *child = NULL;
    int replaced;
    skip_space(r);
    if (!take_raw(r, &raw)) return false;
    skip_space(r);
    if (!takes(r, ":")) return fails(r, "a colon is expected after a key");
    bool wanted = key && raw.bytes >= length && spells(&raw, key, length);
    if (wanted) skip_space(r), found->kind = r->at < r->end && *r->at == '"' ? JSON_IS_STRING : JSON_IS_ABSENT;
    if (!take_value(r, &value, tree ? &child : NULL)) return false;
    if (wanted) *found = value;
    if (tree) {
      json_t *name = json_scan_string(&raw, &replaced);
      const char *text = json_string_value(name);
      bool good = name && strlen(text) == json_string_length(name);
      if (FAULT(json_first_key_wins, true, !good || !json_object_get(*tree, text)))
        json_object_set_new(*tree, good ? text : "", child);
      else json_decref(child);
      json_decref(name);
      if (!good) return fails(r, "a key is not UTF-8, or has a NUL");
    }
    skip_space(r);
  } while (takes(r, ","));
  return takes(r, "}") || fails_within(r, true);
}

static bool take_array(Reader *r, json_t **tree) {
  *tree = json_array();
  r->at++;
  skip_space(r);
  if (takes(r, "]")) return true;
  do {
    JsonValue value;
    json_t *child = NULL;
    if (!take_value(r, &value, &child)) return false;
    json_array_append_new(*tree, child);
    skip_space(r);
  } while (takes(r, ","));
  return takes(r, "]") || fails_within(r, false);
}

// All but objects and arrays.
static bool take_simple(Reader *r, JsonValue *value, json_t **tree) {
  const char *start = r->at;
  bool good = true;
  if (*start == '"') {
    int replaced;
    good = take_raw(r, value);
    if (good && tree && !(*tree = json_scan_string(value, &replaced))) good = fails(r, "a string is not UTF-8");
  } else if (takes(r, "null") || takes(r, "true") || takes(r, "false")) {
    value->kind = *start == 'n' ? JSON_IS_NULL : JSON_IS_WORD;
    if (tree) *tree = *start == 'n' ? json_null() : json_boolean(*start == 't');
  } else {
    value->kind = JSON_IS_NUMBER;
    good = takes(r, "NaN") || take_number(r);
    if (good && tree) *tree = number_of(start, (size_t)(r->at - start));
  }
  return good;
}

typedef Vec(char) Closers; // of the objects and arrays around a place

// After a value: closes what ends there; true where another value follows, or nothing is open any more.
static bool close_ended(Reader *r, Closers *open) {
  while (open->count) {
    char closer = open->data[open->count - 1];
    skip_space(r);
    if (takes(r, ",")) return true;
    if (r->at == r->end || *r->at != closer) return fails_within(r, closer == '}');
    r->at++;
    open->count--;
  }
  return true;
}

// Walks over an object or an array.
static bool skip_nested(Reader *r, Closers *open) {
  do {
    JsonValue value = {0};
    skip_space(r);
    if (open->count && open->data[open->count - 1] == '}') {
      if (!take_raw(r, &value)) return false;
      skip_space(r);
      if (!takes(r, ":")) return fails(r, "a colon is expected after a key");
      skip_space(r);
    }
    if (r->at == r->end) return fails(r, "the text ends where a value is expected");
    bool opens = *r->at == '{' || *r->at == '[';
    if (opens && open->count == SCAN_DEPTH) return fails(r, "values are nested too deep");
    if (opens) {
      vec_push(open, *r->at++ == '{' ? '}' : ']');
      skip_space(r);
      if (r->at == r->end || *r->at != open->data[open->count - 1]) continue; // its first value
    } else if (!take_simple(r, &value, NULL)) return false;
    if (!close_ended(r, open)) return false;
  } while (open->count);
  return true;
}

// Where it fails, *tree is NULL.
static bool take_value(Reader *r, JsonValue *value, json_t **tree) {
  *value = (JsonValue){0};
  skip_space(r);
  const char *start = r->at;
  bool good;
  if (r->at == r->end) return fails(r, "the text ends where a value is expected");
  if (*start != '{' && *start != '[') {
    good = take_simple(r, value, tree);
  } else if (!tree) {
    Closers open = {0};
    good = skip_nested(r, &open);
    vec_free(&open);
  } else if (r->depth == JSON_DEPTH) {
    good = fails(r, "values are nested too deep");
  } else {
    r->depth++;
    good = *start == '{' ? take_object(r, tree, NULL, NULL) : take_array(r, tree);
    r->depth--;
  }
  if (*start == '{' || *start == '[') value->kind = *start == '{' ? JSON_IS_OBJECT : JSON_IS_ARRAY;
  if (value->kind != JSON_IS_STRING) value->text = start, value->bytes = (size_t)(r->at - start);
  if (good || !tree) return good;
  json_decref(*tree);
  *tree = NULL;
  return false;
}

static Reader begin(const char *text, size_t bytes) {
  Reader r = {.at = text, .end = text + bytes};
  takes(&r, "\xef\xbb\xbf");
  skip_space(&r);
  return r;
}

static bool at_end(Reader *r) {
  skip_space(r);
  return r->at == r->end || fails(r, "something follows the value");
}

int json_read(const char *text, size_t bytes, const char *name, json_t **tree, Error *error) {
  Reader r = begin(text, bytes);
  JsonValue value;
  *tree = NULL;
  if (take_value(&r, &value, tree) && at_end(&r)) return PLAIT_OK;
  int line = 1;
  for (const char *s = text; s < r.at; s++) line += *s == '\n';
  json_decref(*tree);
  *tree = NULL;
  return error_set(error, PLAIT_BAD_INPUT, "%s: line %d: not valid JSON: %s", name, line, r.why);
}

int json_read_file(const char *path, size_t max_bytes, json_t **tree, Error *error) {
  struct stat st;
  char *text;
  size_t bytes;
  *tree = NULL;
  if (stat(path, &st) < 0 && errno == ENOENT) return 0;
  int code = file_read(path, max_bytes, &text, &bytes, error);
  if (code < 0) return code;
  code = json_read(text, bytes, path, tree, error);
  free(text);
  return code < 0 ? code : 1;
}

const char *json_scan_key(const char *text, size_t bytes, const char *key, JsonValue *value) {
  Reader r = begin(text, bytes);
  *value = (JsonValue){0};
  if (r.at < r.end && *r.at != '{') {
    JsonValue other;
    return take_value(&r, &other, NULL) && at_end(&r) ? JSON_NO_OBJECT : r.why;
  }
  if (r.at == r.end) return "the text ends where a value is expected";
  return take_object(&r, NULL, key, value) && at_end(&r) ? NULL : r.why;
}
