// Decoding: ids → bytes, whole or as a stream.
#include "tokenizer/tokenizer.h"
#include "base/fault.h"
#include <string.h>

void tokenizer_stream_begin(TokenizerStream *stream, const Tokenizer *t, int skip_special) {
  *stream = (TokenizerStream){.t = t, .skip_special = skip_special};
}

// Bytes at the end of the text that begin a character which is not complete.
static int incomplete_tail(const char *text, int bytes) {
  for (int k = 1; k <= 3 && k <= bytes; k++) {
    uint8_t c = (uint8_t)text[bytes - k];
    if ((c & 0xC0) == 0x80) continue;
    int needs = c >= 0xF0 && c <= 0xF4 ? 4 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xC2 && c < 0xE0 ? 2 : 1;
    return needs > k ? k : 0;
  }
  return 0;
}

// Appends bytes to those that were held back, and again holds back an incomplete character.
static void emit(TokenizerStream *s, const char *bytes, int count, ByteVector *text) {
  int start = text->count;
  vec_reserve(text, start + s->held_count + count + 1);
  bytes_append(text, s->held, (size_t)s->held_count);
  bytes_append(text, bytes, (size_t)count);
  s->held_count = incomplete_tail(text->data + start, text->count - start);
  text->count -= s->held_count;
  if (s->held_count) memcpy(s->held, text->data + text->count, (size_t)s->held_count);
}

// The first token of a Metaspace text loses its ▁.
static void emit_first(TokenizerStream *s, int32_t id, ByteVector *text) {
  const char *marker = s->t->decoder.metaspace, *p = s->t->token_text[id];
  int n = (int)strlen(marker), bytes = s->t->token_bytes[id];
  while (bytes > 0) {
    if (bytes >= n && !memcmp(p, marker, (size_t)n)) p += n, bytes -= n;
    else emit(s, p++, 1, text), bytes--;
  }
}

void tokenizer_stream_push(TokenizerStream *s, int32_t id, ByteVector *text) {
  const Tokenizer *t = s->t;
  if (id < 0 || id >= t->vocab_size || !t->token_text[id] || (s->skip_special && t->token_special[id])) return;
  int first = !s->started;
  s->started = 1;
  if (FAULT(tokens_are_not_parted, !first, 0) && t->decoder.joins) emit(s, " ", 1, text);
  if (first && t->decoder.metaspace_drop && t->decoder.metaspace[0]) {
    emit_first(s, id, text);
    return;
  }
  const char *p = t->decoded[id].text;
  int bytes = t->decoded[id].bytes, n = (int)strlen(t->decoder.strip);
  while (s->stripped < t->decoder.strip_start && bytes >= n && n && !memcmp(p, t->decoder.strip, (size_t)n))
    p += n, bytes -= n, s->stripped++;
  if (!bytes) return;
  s->stripped = t->decoder.strip_start;
  emit(s, p, bytes, text);
}

void tokenizer_stream_end(TokenizerStream *s, ByteVector *text) {
  bytes_append(text, s->held, (size_t)s->held_count);
  s->held_count = 0;
}

int tokenizer_decode(const Tokenizer *t, const int32_t *ids, int64_t count, int skip_special, ByteVector *text,
                     Error *error) {
  TokenizerStream stream;
  tokenizer_stream_begin(&stream, t, skip_special);
  for (int64_t i = 0; i < count; i++) {
    if (!tokenizer_token(t, ids[i]))
      return error_set(error, PLAIT_BAD_INPUT, "token id %d at position %lld is not in the vocabulary of %d",
                       (int)ids[i], (long long)i, t->vocab_size);
    tokenizer_stream_push(&stream, ids[i], text);
  }
  tokenizer_stream_end(&stream, text);
  return PLAIT_OK;
}
