// The rules for begin and end of documents, and the record of what a dataset has.
#include "data/document_marks.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json_read.h"
#include "data/indexed.h"
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 16 << 20 };
#define CONFIG "tokenizer_config.json"

// ---- the rules -----------------------------------------------------------------------------------------------------

// A token that a file names: its text, or an object that has it as "content". -1: none, or none of this tokenizer.
static int32_t token_of(const Tokenizer *t, const json_t *file, const char *key) {
  const json_t *value = json_object_get(file, key);
  if (json_is_object(value)) value = json_object_get(value, "content");
  return json_is_string(value) ? tokenizer_id(t, json_string_value(value)) : -1;
}

// eos_token_id: a number, or several, of which the first one ends documents. A file of another model has other ids:
// only a special token counts.
static int32_t first_id(const Tokenizer *t, const json_t *file) {
  const json_t *value = json_object_get(file, "eos_token_id");
  if (json_is_array(value)) value = json_array_get(value, 0);
  json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
  return id >= 0 && id < t->vocab_size && t->token_special[id] ? (int32_t)id : -1;
}

static int32_t usual_end(const Tokenizer *t) {
  static const char *const names[] = {
      "<|endoftext|>",
      "<|end_of_text|>",
      "</s>",
      "<eos>",
      "<|eos|>",
      "[EOS]",
      "<\xef\xbd\x9c\x65nd\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>", // DeepSeek's
      "<|eot_id|>",
      "<|im_end|>"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    int32_t id = tokenizer_id(t, names[i]);
    if (id >= 0) return id;
  }
  return -1;
}

static void say(char *from, const char *words) { snprintf(from, 64, "%s", words); }

static void find_begin(const Tokenizer *t, const DocumentFiles *files, DocumentMarks *m) {
  const json_t *add = json_object_get(files->tokenizer_config, "add_bos_token");
  bool template = t->before.count > 0;
  m->bos = token_of(t, files->tokenizer_config, "bos_token");
  if (m->bos < 0) m->bos = token_of(t, files->special_tokens_map, "bos_token");
  if (FAULT(add_bos_token_is_not_asked, json_is_boolean(add), false) && (json_is_false(add) || m->bos >= 0)) {
    m->begins = json_is_true(add);
    m->begin[0] = m->bos;
    m->contradicts = m->begins ? t->before.count != 1 || t->before.data[0] != m->bos : template;
    say(m->begin_from, "add_bos_token of " CONFIG);
  } else if (template) {
    m->begins = t->before.count < MARKS_MOST ? t->before.count : MARKS_MOST;
    memcpy(m->begin, t->before.data, sizeof *m->begin * (size_t)m->begins);
    say(m->begin_from, "the post-processor of tokenizer.json");
  }
  if (m->begins) m->bos = m->begin[0];
}

void document_marks_find(const Tokenizer *t, const DocumentFiles *files, DocumentMarks *m) {
  *m = (DocumentMarks){.end = -1, .bos = -1};
  find_begin(t, files, m);
  const struct { int32_t id; const char *from; } rules[] = {
      {FAULT(end_is_looked_for_by_name, token_of(t, files->tokenizer_config, "eos_token"), -1),
       "eos_token of " CONFIG},
      {token_of(t, files->special_tokens_map, "eos_token"), "eos_token of special_tokens_map.json"},
      {first_id(t, files->config), "eos_token_id of config.json"},
      {first_id(t, files->generation_config), "eos_token_id of generation_config.json"},
      {usual_end(t), "its usual name in tokenizer.json"}};
  for (size_t i = 0; i < sizeof rules / sizeof *rules && m->end < 0; i++)
    if ((m->end = rules[i].id) >= 0) say(m->end_from, rules[i].from);
}

int document_marks_of(const Tokenizer *t, const char *path, DocumentMarks *marks, Error *error) {
  static const char *const names[] = {CONFIG, "special_tokens_map.json", "config.json", "generation_config.json"};
  const char *slash = strrchr(path, '/');
  char *folder = file_is_folder(path) ? xstrdup(path)
                 : slash              ? xformat("%.*s", (int)(slash - path) + 1, path)
                                      : xstrdup(".");
  json_t *trees[4] = {0};
  int code = PLAIT_OK;
  for (int i = 0; i < 4 && code >= 0; i++) {
    char *file = xformat("%s/%s", folder, names[i]);
    code = json_read_file(file, MOST_BYTES, &trees[i], error);
    if (code > 0 && !json_is_object(trees[i])) code = error_set(error, PLAIT_BAD_INPUT, "%s: not a JSON object", file);
    free(file);
  }
  if (code >= 0) document_marks_find(t, &(DocumentFiles){trees[0], trees[1], trees[2], trees[3]}, marks);
  for (int i = 0; i < 4; i++) json_decref(trees[i]);
  free(folder);
  return code < 0 ? code : PLAIT_OK;
}

// ---- words ---------------------------------------------------------------------------------------------------------

static int token_words(char *text, size_t size, const Tokenizer *t, int32_t id) {
  const char *token = t ? tokenizer_token(t, id) : NULL;
  return token ? snprintf(text, size, "%.40s", token) : snprintf(text, size, "token %d", id);
}

MarksText document_marks_text(const DocumentMarks *m, const Tokenizer *t) {
  MarksText text = {""};
  size_t n = 0, size = sizeof text.s;
  for (int i = 0; i < m->begins && n < 150; i++) {
    n += (size_t)token_words(text.s + n, size - n, t, m->begin[i]);
    n += (size_t)snprintf(text.s + n, size - n, " ");
  }
  n += (size_t)snprintf(text.s + n, size - n, "\xe2\x80\xa6");
  if (m->end >= 0) {
    n += (size_t)snprintf(text.s + n, size - n, " ");
    n += (size_t)token_words(text.s + n, size - n, t, m->end);
  }
  if (!m->begins && m->end < 0) n = (size_t)snprintf(text.s, size, "nothing before and after them");
  const char *begin = m->begins || m->end < 0 ? m->begin_from : "", *end = m->end_from;
  if (begin[0] || end[0])
    snprintf(text.s + n, size - n, ", from %s%s%s", begin, begin[0] && end[0] && strcmp(begin, end) ? " and " : "",
             end[0] && strcmp(begin, end) ? end : "");
  return text;
}

bool document_marks_equal(const DocumentMarks *a, const DocumentMarks *b) {
  return a->end == b->end && a->begins == b->begins &&
         !memcmp(a->begin, b->begin, sizeof *a->begin * (size_t)a->begins);
}

// ---- the record ----------------------------------------------------------------------------------------------------

void document_marks_put(const DocumentMarks *m, json_t *object) {
  json_t *begin = json_array();
  for (int i = 0; i < m->begins; i++) json_array_append_new(begin, json_integer(m->begin[i]));
  json_object_set_new(object, "begin", begin);
  json_object_set_new(object, "end", m->end >= 0 ? json_integer(m->end) : json_null());
}

static bool is_id(const json_t *value) {
  return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) <= INT32_MAX;
}

int document_marks_get(const json_t *object, DocumentMarks *m) {
  const json_t *begin = json_object_get(object, "begin"), *end = json_object_get(object, "end");
  *m = (DocumentMarks){.end = is_id(end) ? (int32_t)json_integer_value(end) : -1, .bos = -1};
  if (!json_is_array(begin) || json_array_size(begin) > MARKS_MOST || !(is_id(end) || json_is_null(end))) return 0;
  for (size_t i = 0; i < json_array_size(begin); i++) {
    if (!is_id(json_array_get(begin, i))) return 0;
    m->begin[m->begins++] = (int32_t)json_integer_value(json_array_get(begin, i));
  }
  if (m->begins) m->bos = m->begin[0];
  return 1;
}

char *document_marks_record(const DocumentMarks *m, const Tokenizer *t, int64_t documents, int64_t tokens) {
  json_t *record = json_object(), *names = json_array();
  document_marks_put(m, record);
  for (int i = 0; i < m->begins; i++) json_array_append_new(names, json_string(tokenizer_token(t, m->begin[i])));
  json_object_set_new(record, "begin_tokens", names);
  json_object_set_new(record, "end_token", m->end >= 0 ? json_string(tokenizer_token(t, m->end)) : json_null());
  json_object_set_new(record, "begin_from", json_string(m->begin_from));
  json_object_set_new(record, "end_from", json_string(m->end_from));
  json_object_set_new(record, "documents", json_integer(documents));
  json_object_set_new(record, "tokens", json_integer(tokens));
  char *dump = json_dumps(record, JSON_INDENT(1)), *text = xformat("%s\n", dump);
  free(dump);
  json_decref(record);
  return text;
}

int document_marks_read(const IndexedDataset *d, DocumentMarks *marks, Error *error) {
  char *path = xformat("%s" DOCUMENT_MARKS_SUFFIX, d->prefix);
  json_t *record;
  int code = json_read_file(path, MOST_BYTES, &record, error);
  if (code > 0 && !document_marks_get(record, marks))
    code = error_set(error, PLAIT_BAD_INPUT, "%s: not a record of plait tokenize (\"begin\" and \"end\"); remove it",
                     path);
  if (code > 0) {
    json_int_t documents = json_integer_value(json_object_get(record, "documents"));
    json_int_t tokens = json_integer_value(json_object_get(record, "tokens"));
    if (FAULT(records_of_other_data_count, documents != d->documents || tokens != d->tokens, false))
      code = error_set(
          error, PLAIT_BAD_INPUT,
          "%s: records %lld documents of %lld tokens, but %s.idx has %lld of %lld: it belongs to other data; "
          "remove it",
          path, (long long)documents, (long long)tokens, d->prefix, (long long)d->documents, (long long)d->tokens);
    snprintf(marks->begin_from, sizeof marks->begin_from, "%s", "");
  }
  json_decref(record);
  free(path);
  return code;
}
