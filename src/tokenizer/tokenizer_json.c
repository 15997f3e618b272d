// Reads a tokenizer.json: vocabulary, merges and added tokens; its other components are in tokenizer_parts.c.
#include "tokenizer/tokenizer_json.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json_read.h"
#include "tokenizer/folder_check.h"
#include "tokenizer/tokenizer_added.h"
#include <stdio.h>
#include <string.h>

enum { FILE_LIMIT = 512 << 20 };

int reader_refuse(const TokenizerReader *r, const char *key, const char *format, ...) {
  char text[800];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return error_set(r->error, PLAIT_BAD_INPUT, "%s: %s %s", r->name, key, text);
}

char *reader_copy(const TokenizerReader *r, const char *text, int bytes) {
  char *copy = arena_alloc(&r->t->arena, (size_t)bytes + 1);
  memcpy(copy, text, (size_t)bytes);
  return copy;
}

const char *reader_string(const TokenizerReader *r, const json_t *object, const char *key, const char *where,
                          int *bytes) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_string(value)) {
    reader_refuse(r, where, "has no string \"%s\"", key);
    return NULL;
  }
  if (json_string_length(value) > 1 << 20) {
    reader_refuse(r, where, "has a \"%s\" of more than 1 MiB", key);
    return NULL;
  }
  if (bytes) *bytes = (int)json_string_length(value);
  return json_string_value(value);
}

int reader_flag(const TokenizerReader *r, const json_t *object, const char *key, const char *where, int fallback) {
  const json_t *value = json_object_get(object, key);
  if (!value || json_is_null(value)) return fallback;
  if (json_is_boolean(value)) return json_is_true(value);
  return reader_refuse(r, where, "has a \"%s\" that is neither true nor false", key);
}

// ---- vocabulary ----------------------------------------------------------------------------------------------------

// Longest part of a token that a message shows.
#define SHOWN(bytes) ((bytes) > 60 ? 60 : (int)(bytes))

static int read_id(const TokenizerReader *r, const json_t *value, const char *where, const char *token, size_t bytes,
                   int limit) {
  if (!json_is_integer(value)) return reader_refuse(r, where, "gives no integer id to \"%.*s\"", SHOWN(bytes), token);
  json_int_t id = json_integer_value(value);
  if (id < 0 || id >= limit)
    return reader_refuse(r, where, "gives id %lld to \"%.*s\", allowed with this many tokens are 0 to %d",
                         (long long)id, SHOWN(bytes), token, limit - 1);
  return (int)id;
}

static int place_token(const TokenizerReader *r, int id, const char *token, size_t bytes, const char *where) {
  Tokenizer *t = r->t;
  if (bytes > 1 << 16)
    return reader_refuse(r, where, "holds a token of %zu bytes (id %d), allowed are 65536", bytes, id);
  if (t->token_text[id])
    return reader_refuse(r, where, "gives id %d to \"%.*s\", which \"%.*s\" has already", id, SHOWN(bytes), token,
                         SHOWN(t->token_bytes[id]), t->token_text[id]);
  t->token_text[id] = reader_copy(r, token, (int)bytes);
  t->token_bytes[id] = (int)bytes;
  if (id >= t->vocab_size) t->vocab_size = id + 1;
  return PLAIT_OK;
}

static int read_vocabulary(const TokenizerReader *r, const json_t *vocab, int limit) {
  const char *key;
  json_t *value;
  size_t bytes;
  json_object_keylen_foreach((json_t *)vocab, key, bytes, value) {
    int id = read_id(r, value, "model.vocab", key, bytes, limit);
    if (id < 0 || (id = place_token(r, id, key, bytes, "model.vocab")) < 0) return id;
  }
  return PLAIT_OK;
}

// The id that Hugging Face's tokenizers gives it, whatever id the file declares: that of model.vocab, else that of an
// earlier listing of the token (-1 - its index in t->added), else the next one after all.
static int find_added_id(const Tokenizer *t, const json_t *vocab, const char *text, size_t bytes) {
  const json_t *known = json_object_getn(vocab, text, bytes);
  int id = (int)json_object_size(vocab);
  for (int i = 0; i < t->added_count; i++) {
    if (t->added[i].bytes == (int)bytes && !memcmp(t->added[i].text, text, bytes)) return -1 - i;
    if (t->added[i].id >= id) id = t->added[i].id + 1;
  }
  return known ? (int)json_integer_value(known) : id;
}

static int read_added_token(const TokenizerReader *r, const json_t *item, int index, const json_t *vocab) {
  char where[40];
  Tokenizer *t = r->t;
  AddedToken token;
  snprintf(where, sizeof where, "added_tokens[%d]", index);
  if (!json_is_object(item)) return reader_refuse(r, where, "is not an object");
  const char *text = reader_string(r, item, "content", where, &token.bytes);
  if (!text) return PLAIT_BAD_INPUT;
  int declared = read_id(r, json_object_get(item, "id"), where, text, (size_t)token.bytes, INT32_MAX);
  if (declared < 0) return declared;
  if ((token.special = reader_flag(r, item, "special", where, 0)) < 0) return PLAIT_BAD_INPUT;
  if ((token.lstrip = reader_flag(r, item, "lstrip", where, 0)) < 0) return PLAIT_BAD_INPUT;
  if ((token.rstrip = reader_flag(r, item, "rstrip", where, 0)) < 0) return PLAIT_BAD_INPUT;
  if ((token.single_word = reader_flag(r, item, "single_word", where, 0)) < 0) return PLAIT_BAD_INPUT;
  if ((token.normalized = reader_flag(r, item, "normalized", where, !token.special)) < 0) return PLAIT_BAD_INPUT;
  if (!token.bytes) return PLAIT_OK;
  int id = find_added_id(t, vocab, text, (size_t)token.bytes), again = id < 0;
  AddedToken *place = again ? &t->added[-1 - id] : &t->added[t->added_count++];
  token.id = again ? place->id : FAULT(added_tokens_have_declared_ids, id, declared);
  token.text = again ? place->text : reader_copy(r, text, token.bytes);
  *place = token; // listed twice: as the last one says
  if (token.special) t->token_special[token.id] = 1;
  if (token.id != declared && !t->moved) t->moved = token.text, t->moved_from = declared, t->moved_to = token.id;
  return again || json_object_getn(vocab, text, (size_t)token.bytes)
             ? PLAIT_OK
             : place_token(r, token.id, text, (size_t)token.bytes, where);
}

static int read_added_tokens(const TokenizerReader *r, const json_t *list, const json_t *vocab) {
  size_t i;
  json_t *item;
  r->t->added = arena_array(&r->t->arena, AddedToken, json_array_size(list) + 1);
  json_array_foreach(list, i, item) {
    int code = read_added_token(r, item, (int)i, vocab);
    if (code < 0) return code;
  }
  return PLAIT_OK;
}

// ---- merges --------------------------------------------------------------------------------------------------------

// "a b" or ["a", "b"].
static int merge_halves(const TokenizerReader *r, const json_t *merge, const char *where, const char *half[2],
                        size_t bytes[2]) {
  if (json_is_string(merge)) {
    half[0] = json_string_value(merge);
    size_t all = json_string_length(merge);
    const char *space = memchr(half[0], ' ', all);
    if (!space || memchr(space + 1, ' ', all - (size_t)(space - half[0]) - 1))
      return reader_refuse(r, where, "is not two tokens with a space between them");
    bytes[0] = (size_t)(space - half[0]);
    bytes[1] = all - bytes[0] - 1;
    half[1] = space + 1;
    return PLAIT_OK;
  }
  if (!json_is_array(merge) || json_array_size(merge) != 2)
    return reader_refuse(r, where, "is neither a string \"a b\" nor a list of two strings");
  for (int k = 0; k < 2; k++) {
    const json_t *value = json_array_get(merge, (size_t)k);
    if (!json_is_string(value)) return reader_refuse(r, where, "is not a list of two strings");
    half[k] = json_string_value(value);
    bytes[k] = json_string_length(value);
  }
  return PLAIT_OK;
}

static int read_merges(const TokenizerReader *r, const json_t *merges) {
  Bpe *bpe = &r->t->bpe;
  ByteVector joined = {0};
  int code = PLAIT_OK;
  size_t i;
  json_t *merge;
  json_array_foreach(merges, i, merge) {
    char where[40];
    const char *half[2];
    size_t bytes[2];
    int32_t id[3];
    snprintf(where, sizeof where, "model.merges[%zu]", i);
    if ((code = merge_halves(r, merge, where, half, bytes)) < 0) break;
    if (bytes[0] + bytes[1] > 1 << 17) {
      code = reader_refuse(r, where, "is longer than any token");
      break;
    }
    joined.count = 0;
    for (int k = 0; k < 2; k++) {
      id[k] = bpe_find(bpe, half[k], bytes[k]);
      bytes_append(&joined, half[k], bytes[k]);
      if (id[k] < 0)
        code = reader_refuse(r, where, "uses \"%.*s\", which is not in model.vocab", SHOWN(bytes[k]), half[k]);
    }
    vec_reserve(&joined, 1);
    id[2] = bpe_find(bpe, joined.data, (size_t)joined.count);
    if (id[2] < 0)
      code = reader_refuse(r, where, "makes \"%.*s\", which is not in model.vocab", SHOWN(joined.count), joined.data);
    if (code < 0) break;
    bpe_add_merge(bpe, id[0], id[1], id[2], (uint32_t)i);
  }
  vec_free(&joined);
  return code;
}

// ---- the model -----------------------------------------------------------------------------------------------------

static int check_model_kind(const TokenizerReader *r, const json_t *model) {
  const json_t *type = json_object_get(model, "type");
  if (!json_is_object(model)) return reader_refuse(r, "model", "is missing or not an object");
  if (type && !json_is_string(type)) return reader_refuse(r, "model.type", "is not a string");
  if (!type && json_object_get(model, "merges")) return PLAIT_OK; // older files name no type
  if (!type || strcmp(json_string_value(type), "BPE"))
    return reader_refuse(r, "model.type", "is %.60s, supported is BPE", type ? json_string_value(type) : "missing");
  return PLAIT_OK;
}

static int check_unsupported(const TokenizerReader *r, const json_t *model) {
  static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  for (int i = 0; i < 2; i++) {
    const json_t *value = json_object_get(model, affixes[i]);
    if (value && !json_is_null(value) && !(json_is_string(value) && !json_string_length(value)))
      return reader_refuse(r, "model", "has a %s, which is not supported", affixes[i]);
  }
  const json_t *dropout = json_object_get(model, "dropout");
  if (dropout && !json_is_null(dropout) && !(json_is_number(dropout) && json_number_value(dropout) == 0.0))
    return reader_refuse(r, "model.dropout", "is set, which is not supported: ids would be random");
  return PLAIT_OK;
}

static int read_model_flags(const TokenizerReader *r, const json_t *model) {
  Bpe *bpe = &r->t->bpe;
  if ((bpe->byte_fallback = reader_flag(r, model, "byte_fallback", "model", 0)) < 0) return PLAIT_BAD_INPUT;
  if ((bpe->fuse_unk = reader_flag(r, model, "fuse_unk", "model", 0)) < 0) return PLAIT_BAD_INPUT;
  if ((bpe->ignore_merges = reader_flag(r, model, "ignore_merges", "model", 0)) < 0) return PLAIT_BAD_INPUT;
  const json_t *unk = json_object_get(model, "unk_token");
  if (!unk || json_is_null(unk)) return PLAIT_OK;
  if (!json_is_string(unk)) return reader_refuse(r, "model.unk_token", "is neither a string nor null");
  bpe->unk = bpe_find(bpe, json_string_value(unk), json_string_length(unk)); // -1: none, and no text needs it
  return PLAIT_OK;
}

static int read_model(const TokenizerReader *r, const json_t *root) {
  Tokenizer *t = r->t;
  const json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
  const json_t *merges = json_object_get(model, "merges"), *added = json_object_get(root, "added_tokens");
  int code = check_model_kind(r, model);
  if (code < 0 || (code = check_unsupported(r, model)) < 0) return code;
  if (!json_is_object(vocab)) return reader_refuse(r, "model.vocab", "is missing or not an object");
  if (!json_is_array(merges)) return reader_refuse(r, "model.merges", "is missing or not a list");
  if (added && !json_is_null(added) && !json_is_array(added)) return reader_refuse(r, "added_tokens", "is not a list");
  if (json_array_size(added) > 20000) return reader_refuse(r, "added_tokens", "has more than 20000 members");
  size_t tokens = json_object_size(vocab) + json_array_size(added);
  if (!tokens) return reader_refuse(r, "model.vocab", "is empty");
  if (tokens > 8 << 20 || json_array_size(merges) > 16 << 20)
    return reader_refuse(r, "model.vocab", "has %zu tokens and %zu merges, more than any model", tokens,
                         json_array_size(merges));
  int limit = (int)(2 * tokens) + 4096; // ids may have holes, but not so that a small file takes much memory
  int room = limit + (int)json_array_size(added); // those that the vocabulary lacks come after its own
  t->token_text = arena_array(&t->arena, const char *, room);
  t->token_bytes = arena_array(&t->arena, int, room);
  t->token_special = arena_array(&t->arena, uint8_t, room);
  if ((code = read_vocabulary(r, vocab, limit)) < 0) return code;
  uint8_t *in_model = arena_array(&t->arena, uint8_t, room);
  for (int id = 0; id < t->vocab_size; id++) in_model[id] = t->token_text[id] != NULL;
  if ((code = read_added_tokens(r, added, vocab)) < 0) return code;
  code = bpe_init(&t->bpe, t->token_text, t->token_bytes, t->vocab_size, in_model, (int)json_array_size(merges));
  if (code < 0) return reader_refuse(r, "model.vocab", "holds a token twice");
  if ((code = read_merges(r, merges)) < 0) return code;
  return read_model_flags(r, model);
}

int tokenizer_parse(const char *json, size_t bytes, const char *name, Tokenizer **out, Error *error) {
  Tokenizer *t = xcalloc(1, sizeof *t);
  TokenizerReader r = {t, name, error};
  int code = PLAIT_OK;
  *out = NULL;
  json_t *root = NULL;
  if (!bytes) code = error_set(error, PLAIT_BAD_INPUT, "%s: is empty, not a tokenizer.json", name);
  else if ((code = json_read(json, bytes, name, &root, error))) {
  } else if (!json_is_object(root)) code = error_set(error, PLAIT_BAD_INPUT, "%s: is not a JSON object", name);
  if (code >= 0) code = read_model(&r, root);
  if (code >= 0) code = reader_components(&r, root);
  if (code >= 0) {
    bpe_finish(&t->bpe);
    code = reader_finish_decoder(&r);
  }
  json_decref(root);
  if (code < 0) {
    tokenizer_destroy(t);
    return code;
  }
  added_set_build(&t->added_raw, &t->arena, t->added, t->added_count, 0);
  added_set_build(&t->added_normalized, &t->arena, t->added, t->added_count, 1);
  added_prepare_word(t);
  reader_finish_cuts(&r);
  t->json = xcalloc(bytes + 1, 1);
  memcpy(t->json, json, bytes);
  t->json_bytes = bytes;
  *out = t;
  return PLAIT_OK;
}

int tokenizer_load(const char *path, Tokenizer **t, Error *error) {
  char *file = file_is_folder(path) ? xformat("%s/tokenizer.json", path) : xstrdup(path), *data = NULL;
  size_t bytes = 0;
  *t = NULL;
  int code = folder_check_tokenizer(path, error);
  if (code >= 0) code = file_read(file, FILE_LIMIT, &data, &bytes, error);
  if (code >= 0) code = tokenizer_parse(data, bytes, file, t, error);
  free(data);
  free(file);
  return code;
}
