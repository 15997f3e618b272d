// First bytes and first lines of files that are given as text.
#include "tokenizer/text_kind.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "base/json_read.h"
#include "base/vec.h"
#include "tokenizer/text_check.h"
#include "tokenizer/text_stream.h"
#include <string.h>

enum { SAMPLE_BYTES = 32 << 10, FIRST_LINES = 8 };
#define AS_TEXT "--as-text takes FILES as text, whatever they are"
#define AS_ONE "--as-text takes it as one text"

// ---- text at all? --------------------------------------------------------------------------------------------------

// Counts of the first bytes; where they end within a character, without it.
static TextCheck sample(const char *head, size_t bytes) {
  TextCheck check = {0};
  size_t n = bytes < SAMPLE_BYTES ? bytes : SAMPLE_BYTES;
  for (int i = 0; i < 3 && n < bytes && n && (head[n] & 0xc0) == 0x80; i++) n--;
  text_check_scan(&check, head, n, true);
  return check;
}

static int check_bytes(const char *path, const char *head, size_t bytes, bool lines, Error *error) {
  const char *words;
  char why[300];
  FileKind kind = file_kind_of(head, bytes < FILE_KIND_HEAD ? bytes : FILE_KIND_HEAD, &words);
  TextCheck check = sample(head, bytes);
  check.lines = lines;
  if (lines && kind == FILE_KIND_JSON) return PLAIT_OK; // what stands in its lines is for their parser
  bool clean = !check.nul && text_check_verdict(&check, why, sizeof why) != TEXT_IS_NONE;
  // Text may begin as some formats do ("GGUF is a format …", a web page); a PDF may look like text.
  bool other = kind == FILE_KIND_PACKED || kind == FILE_KIND_OTHER || kind == FILE_KIND_SAFETENSORS;
  if (other && clean && (bytes < 5 || memcmp(head, "%PDF-", 5) != 0)) other = false;
  if (bytes >= 4 && !memcmp(head, "PAR1", 4) && other)
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s is a Parquet file; Python with pandas makes lines of JSON of it: python3 -c \"import pandas; "
                     "pandas.read_parquet('%s').to_json('lines.jsonl', orient='records', lines=True)\" (" AS_TEXT ")",
                     path, path);
  if (other || kind == FILE_KIND_POINTER)
    return error_set(error, PLAIT_BAD_INPUT, "%s %s (" AS_TEXT ")", path, words);
  if (clean) return PLAIT_OK;
  if (check.nul) return error_set(error, PLAIT_BAD_INPUT, "%s is binary data (" AS_TEXT ")", path);
  return error_set(error, PLAIT_BAD_INPUT, "%s %s (" AS_TEXT ")", path, why);
}

// ---- JSON? ---------------------------------------------------------------------------------------------------------

typedef enum Shape { SHAPE_TEXT, SHAPE_LINES, SHAPE_LINES_OF_OTHER_KEY, SHAPE_ARRAY, SHAPE_LONG_OBJECT } Shape;

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void skip_space(const char **at, const char *end) {
  while (*at < end && is_space(**at)) ++*at;
}

// The text under the key may be null; a line that is cut off counts where its text has begun.
static bool has_text(const JsonValue *value) { return value->kind == JSON_IS_STRING || value->kind == JSON_IS_NULL; }

// Of a file that begins with an object which its line holds whole.
static Shape shape_of_lines(const char *at, const char *end, bool whole, const char *key, bool given) {
  int objects = 0;
  while (objects < FIRST_LINES && at < end) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    JsonValue value;
    if (!stop && !whole) break;
    if (!stop) stop = end;
    if (json_scan_key(at, (size_t)(stop - at), key, &value)) break;
    if (has_text(&value)) return SHAPE_LINES;
    objects++;
    at = stop;
    skip_space(&at, end);
  }
  return objects > 1 || given ? SHAPE_LINES_OF_OTHER_KEY : SHAPE_TEXT;
}

static Shape shape_of(const char *head, size_t bytes, bool whole, const char *key, bool given) {
  const char *at = head, *end = head + bytes;
  JsonValue value;
  if (bytes > 2 && !memcmp(at, "\xef\xbb\xbf", 3)) at += 3;
  skip_space(&at, end);
  if (at == end || (*at != '{' && *at != '[')) return SHAPE_TEXT;
  if (*at == '[') {
    at++;
    skip_space(&at, end);
    if (at == end || *at != '{') return SHAPE_TEXT;
    json_scan_key(at, (size_t)(end - at), key, &value); // which complains of what follows the first object
    return has_text(&value) ? SHAPE_ARRAY : SHAPE_TEXT;
  }
  const char *line = memchr(at, '\n', (size_t)(end - at));
  bool cut = !line && !whole;
  const char *why = json_scan_key(at, (size_t)((line ? line : end) - at), key, &value);
  if (!why && !cut) return shape_of_lines(at, end, whole, key, given);
  if (cut) return has_text(&value) ? SHAPE_LINES : SHAPE_TEXT;
  if (!has_text(&value)) json_scan_key(at, (size_t)(end - at), key, &value);
  return has_text(&value) ? SHAPE_LONG_OBJECT : SHAPE_TEXT;
}

static int check_shape(const char *path, Shape shape, const char *key, Error *error) {
  switch (shape) {
  case SHAPE_ARRAY:
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s is one JSON array of objects with the key \"%s\", and plait reads an object a line: "
                     "jq -c '.[]' FILE > lines.jsonl writes them so (" AS_ONE ")",
                     path, key);
  case SHAPE_LONG_OBJECT:
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s begins with a JSON object with the key \"%s\" that does not end in its line, and plait reads "
                     "an object a line: jq -c . FILE > lines.jsonl writes them so; --jsonl says which line is damaged "
                     "(" AS_ONE ")",
                     path, key);
  case SHAPE_LINES_OF_OTHER_KEY:
    return error_set(error, PLAIT_BAD_INPUT,
                     "%s holds lines of JSON without the key \"%s\": --key NAME says under which key the text is "
                     "(" AS_ONE ")",
                     path, key);
  default: return PLAIT_OK;
  }
}

int text_kind_look(const char *path, const char *head, size_t bytes, bool whole, const TextKindOptions *how,
                   TextLines *lines, Error *error) {
  const char *key = how->key ? how->key : "text";
  const char *name = text_stream_name(path);
  *lines = how->lines || text_stream_holds_lines(path) ? TEXT_LINES_NAMED : TEXT_IS_ONE;
  if (FAULT(contents_decide_nothing, how->as_text, true) || !bytes) return PLAIT_OK;
  int code = check_bytes(name, head, bytes, *lines, error);
  if (code || *lines) return code;
  Shape shape = shape_of(head, bytes, whole, key, how->key != NULL);
  if (shape == SHAPE_LINES) *lines = TEXT_LINES_FOUND;
  return check_shape(name, shape, key, error);
}

// ---- a file --------------------------------------------------------------------------------------------------------

static int look_at_stream(const char *path, TextStream *stream, const TextKindOptions *how, Error *error) {
  char *head = xcalloc(TEXT_KIND_HEAD, 1);
  size_t got = 0;
  TextLines lines;
  int code = text_stream_read(stream, head, TEXT_KIND_HEAD, &got, error);
  if (!code) code = text_kind_look(path, head, got, got < TEXT_KIND_HEAD, how, &lines, error);
  free(head);
  return code;
}

int text_kind_check(const char *path, const TextKindOptions *how, Error *error) {
  TextStream *stream;
  TextLines lines;
  FileMap map;
  int packed = text_stream_open(&stream, path, error);
  if (packed < 0) return packed;
  if (packed) {
    int code = look_at_stream(path, stream, how, error);
    text_stream_close(stream);
    return code < 0 ? code : 1;
  }
  int code = file_map(path, &map, error);
  if (code) return code;
  size_t bytes = map.size < TEXT_KIND_HEAD ? map.size : TEXT_KIND_HEAD;
  code = text_kind_look(path, (const char *)map.data, bytes, bytes == map.size, how, &lines, error);
  file_unmap(&map);
  return code;
}
