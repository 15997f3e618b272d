// Tokens by their bytes, with their log-probabilities.
#include "serve/reply_logprobs.h"
#include <stdio.h>

enum { SHOWN = 64 }; // bytes of a token that completions name when it is not UTF-8

json_t *json_of_bytes(const char *text, int bytes) {
  ByteVector valid = {0};
  utf8_append(&valid, text, (size_t)bytes);
  json_t *string = json_stringn(valid.data ? valid.data : "", (size_t)valid.count);
  vec_free(&valid);
  return string;
}

json_t *json_of_text(const ByteVector *text, int from, int to) {
  return from < to ? json_of_bytes(text->data + from, to - from) : json_string("");
}

typedef struct TokenBytes { const char *text; int bytes; } TokenBytes;

static TokenBytes bytes_of(const Output *o, int32_t id) {
  const Tokenizer *t = o->stream.t;
  if (!tokenizer_token(t, id)) return (TokenBytes){"", 0};
  return (TokenBytes){t->decoded[id].text, t->decoded[id].bytes};
}

// As OpenAI names tokens that are a part of a character.
static json_t *name_of(const Output *o, int32_t id) {
  TokenBytes p = bytes_of(o, id);
  if (utf8_prefix(p.text, (size_t)p.bytes) == (size_t)p.bytes) return json_stringn(p.text, (size_t)p.bytes);
  char name[8 + 4 * SHOWN] = "bytes:";
  for (int i = 0, at = 6; i < p.bytes && i < SHOWN; i++, at += 4)
    snprintf(name + at, 5, "\\x%02x", (unsigned char)p.text[i]);
  return json_string(name);
}

static int characters(const Output *o, int from, int to) {
  int n = 0;
  for (int i = from; i < to; i++) n += ((unsigned char)o->text.data[i] & 0xC0) != 0x80;
  return n;
}

static json_t *top_of_completion(const Output *o, const OutputToken *t) {
  json_t *top = json_object();
  for (int i = t->top; i-- > 0;) { // the most likely one of two that have the same text stays
    json_t *name = name_of(o, o->top_ids.data[t->top_at + i]);
    json_object_set_new(top, json_string_value(name), json_real(o->top_logprobs.data[t->top_at + i]));
    json_decref(name);
  }
  return top;
}

json_t *logprobs_of_completion(const Output *o, int from, int to) {
  json_t *tokens = json_array(), *logprobs = json_array(), *top = json_array(), *offset = json_array();
  int at = 0, count = 0;
  for (int i = from; i < to; i++) {
    const OutputToken *t = &o->told.data[i];
    int end = t->from < o->text.count ? t->from : o->text.count;
    count += characters(o, at, end);
    at = end;
    json_array_append_new(tokens, name_of(o, t->id));
    json_array_append_new(logprobs, t->first ? json_null() : json_real(t->logprob));
    json_array_append_new(top, t->first || !t->top ? json_null() : top_of_completion(o, t));
    json_array_append_new(offset, json_integer(count));
  }
  return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs, "top_logprobs", top,
                   "text_offset", offset);
}

static json_t *token_of_chat(const Output *o, int32_t id, double logprob) {
  TokenBytes p = bytes_of(o, id);
  json_t *bytes = json_array();
  for (int i = 0; i < p.bytes; i++) json_array_append_new(bytes, json_integer((unsigned char)p.text[i]));
  return json_pack("{s:o, s:f, s:o}", "token", json_of_bytes(p.text, p.bytes), "logprob", logprob, "bytes", bytes);
}

json_t *logprobs_of_chat(const Output *o, int from, int to) {
  json_t *content = json_array();
  for (int i = from; i < to; i++) {
    const OutputToken *t = &o->told.data[i];
    json_t *token = token_of_chat(o, t->id, t->logprob), *top = json_array();
    for (int k = 0; k < t->top; k++)
      json_array_append_new(top, token_of_chat(o, o->top_ids.data[t->top_at + k], o->top_logprobs.data[t->top_at + k]));
    json_object_set_new(token, "top_logprobs", top);
    json_array_append_new(content, token);
  }
  return json_pack("{s:o}", "content", content);
}
