// Finding the tokens that begin and end a text, and writing them down for transformers.
#include "infer/text_setup.h"
#include "base/fault.h"
#include "checkpoint/huggingface_files.h"
#include "data/indexed.h"
#include <stdio.h>
#include <string.h>

static bool has(const IdVector *ids, int32_t id) {
  for (int i = 0; i < ids->count; i++)
    if (ids->data[i] == id) return true;
  return false;
}

static void add(IdVector *ids, int64_t id, int64_t vocab) {
  if (id >= 0 && id < vocab && !has(ids, (int32_t)id)) vec_push(ids, (int32_t)id);
}

// A number or a list of them, as eos_token_id is.
static void add_json(IdVector *ids, const json_t *value, int64_t vocab) {
  size_t i;
  json_t *item;
  if (json_is_integer(value)) add(ids, json_integer_value(value), vocab);
  json_array_foreach(value, i, item) if (json_is_integer(item)) add(ids, json_integer_value(item), vocab);
}

// The token with which the documents of its corpus end; -1 where they may do so by chance, as with a line's end: nobody
// has recorded it, and it is not a special token.
static int32_t learnt_end(const ModelSource *source, const Tokenizer *t, int32_t said) {
  int32_t end = source->documents.end;
  if (!t || end < 0 || !tokenizer_token(t, end)) return t ? -1 : end;
  return source->documents_known == DOCUMENTS_RECORDED || t->token_special[end] || end == said ? end : -1;
}

int text_setup(TextSetup *s, const ModelSource *source, const Tokenizer *t, Error *error) {
  static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json"};
  *s = (TextSetup){.bos = -1, .eos = -1, .said = {.end = -1, .bos = -1}};
  int64_t vocab = source->config.vocab;
  json_t *files[3] = {0}, *config = source->from_huggingface ? source->config.json : NULL;
  int code = PLAIT_OK;
  for (int i = 0; i < 3 && !code; i++) code = huggingface_files_parse(source->files, names[i], &files[i], error);
  if (code) error_prefix(error, "%s", source->path);
  if (!code && t) document_marks_find(t, &(DocumentFiles){files[0], files[1], config, files[2]}, &s->said);
  if (!code) {
    bool recorded = FAULT(runs_begin_as_files_say, source->documents_known == DOCUMENTS_RECORDED, false);
    const DocumentMarks *begin = recorded ? &source->documents : &s->said;
    for (int i = 0; i < begin->begins && t; i++) vec_push(&s->before, begin->begin[i]);
    add_json(&s->ends, json_object_get(files[2], "eos_token_id"), vocab);
    if (!s->ends.count) add_json(&s->ends, json_object_get(config, "eos_token_id"), vocab);
    int32_t end = learnt_end(source, t, s->said.end);
    add(&s->ends, end, vocab);
    if (!s->ends.count) add(&s->ends, s->said.end, vocab);
    if (s->ends.count) s->eos = s->ends.data[0];
    if (end >= 0 && !source->from_huggingface) s->eos = end;
    s->bos = s->before.count ? s->before.data[0] : s->said.bos;
    if (s->bos < 0) s->bos = s->eos; // as GPT-2: a text begins after the end of another
  }
  for (int i = 0; i < 3; i++) json_decref(files[i]);
  return code;
}

bool text_setup_contradicts(const TextSetup *s, const ModelSource *source, const Tokenizer *t, char *text,
                            size_t size) {
  if (source->documents_known != DOCUMENTS_RECORDED || !t || document_marks_equal(&source->documents, &s->said))
    return false;
  snprintf(text, size, "the documents that %s was trained on are %s, and its tokenizer's files say %s", source->path,
           document_marks_text(&source->documents, t).s, document_marks_text(&s->said, t).s);
  return true;
}

int text_setup_compare(const ModelSource *source, const Tokenizer *t, const char *prefix, char *text, size_t size,
                       Error *error) {
  IndexedDataset data;
  DocumentMarks marks;
  TextSetup setup;
  int code = indexed_open(&data, prefix, error);
  if (code) return code;
  code = document_marks_read(&data, &marks, error);
  indexed_close(&data);
  bool recorded = source->documents_known == DOCUMENTS_RECORDED;
  if (code <= 0 || (!t && !recorded)) return code < 0 ? code : 0;
  if ((code = text_setup(&setup, source, t, error))) return code;
  const DocumentMarks *own = recorded ? &source->documents : &setup.said;
  bool differ = !document_marks_equal(own, &marks);
  if (differ)
    snprintf(text, size, "the documents of %s are %s, and those of %s are %s", prefix,
             document_marks_text(&marks, t).s, source->path, document_marks_text(own, t).s);
  text_setup_free(&setup);
  return differ;
}

int text_setup_encode(const TextSetup *s, const Tokenizer *t, const char *prompt, size_t bytes, IdVector *ids,
                      int64_t *missed, Error *error) {
  for (int i = 0; i < s->before.count; i++) vec_push(ids, s->before.data[i]);
  TokenizerScratch *scratch = tokenizer_scratch_create(t);
  int code = tokenizer_encode_with(t, scratch, prompt, bytes, 0, ids, error);
  *missed = code ? 0 : tokenizer_missed(scratch).bytes;
  tokenizer_scratch_destroy(scratch);
  if (!code && !ids->count && s->bos >= 0) vec_push(ids, s->bos);
  if (!code && !ids->count)
    code = error_set(error, PLAIT_BAD_INPUT,
                     "the prompt is empty, and the tokenizer has no end-of-text token to start from");
  return code;
}

void text_setup_free(TextSetup *s) {
  vec_free(&s->before);
  vec_free(&s->ends);
}

// ---- for transformers ----------------------------------------------------------------------------------------------

static void put_file(json_t *files, const char *name, json_t *content) {
  char *dump = json_dumps(content, JSON_INDENT(2)), *text = xformat("%s\n", dump);
  json_object_set_new(files, name, json_string(text));
  free(text);
  free(dump);
  json_decref(content);
}

static json_t *id_or_null(int32_t id) { return id >= 0 ? json_integer(id) : json_null(); }

static json_t *ends_json(const TextSetup *s) {
  if (s->ends.count <= 1) return id_or_null(s->eos);
  json_t *list = json_array();
  for (int i = 0; i < s->ends.count; i++) json_array_append_new(list, json_integer(s->ends.data[i]));
  return list;
}

static void put_token(json_t *config, const char *key, const Tokenizer *t, int32_t id) {
  const char *text = id >= 0 ? tokenizer_token(t, id) : NULL;
  if (text) json_object_set_new(config, key, json_string(text));
}

// A class that takes tokenizer.json as it is: those of a family would build their own pre-tokenizer.
static json_t *tokenizer_config(const TextSetup *s, const ModelSource *source, const Tokenizer *t) {
  json_t *config = json_pack("{s:s, s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "clean_up_tokenization_spaces",
                             0);
  put_token(config, "bos_token", t, s->bos);
  put_token(config, "eos_token", t, s->eos);
  put_token(config, "unk_token", t, t->bpe.unk);
  if (s->before.count != s->said.begins) // else the post-processor says it
    json_object_set_new(config, "add_bos_token", json_boolean(s->before.count > 0));
  if (source->config.positions > 0)
    json_object_set_new(config, "model_max_length", json_integer(source->config.positions));
  return config;
}

// Does the file say all the ends that are known? (A config.json is what transformers reads where there is no
// generation_config.json.)
static bool says_ends(const json_t *file, const TextSetup *s, int64_t vocab) {
  IdVector said = {0};
  add_json(&said, json_object_get(file, "eos_token_id"), vocab);
  bool all = said.count == s->ends.count; // each of `said` is one of them
  vec_free(&said);
  return all;
}

json_t *text_setup_files(const TextSetup *s, ModelSource *source, const Tokenizer *t) {
  json_t *files = json_copy(source->files); // the object is new, the texts are shared
  json_t *generation;
  CHECK(!huggingface_files_parse(files, "generation_config.json", &generation, NULL)); // text_setup has read it
  if (t && !json_object_get(files, "tokenizer_config.json"))
    put_file(files, "tokenizer_config.json", tokenizer_config(s, source, t));
  int64_t vocab = source->config.vocab;
  bool in_config = source->from_huggingface && says_ends(source->config.json, s, vocab);
  if (!generation && s->eos >= 0 && !in_config) {
    generation = json_pack("{s:o, s:o, s:o}", "bos_token_id", id_or_null(s->bos), "eos_token_id", ends_json(s),
                           "pad_token_id", id_or_null(s->eos));
    put_file(files, "generation_config.json", json_incref(generation));
  } else if (generation && source->checkpoint && !says_ends(generation, s, vocab)) {
    json_object_set_new(generation, "eos_token_id", ends_json(s)); // with the end that the model has learnt here
    put_file(files, "generation_config.json", json_incref(generation));
  }
  if (!source->from_huggingface && (t || s->eos >= 0)) {
    json_object_set_new(source->config.json, "bos_token_id", id_or_null(s->bos));
    json_object_set_new(source->config.json, "eos_token_id", id_or_null(s->eos));
  }
  json_decref(generation);
  return files;
}
