// Encoding: added tokens, normalizer, pre-tokenizer and BPE in Hugging Face's order; lookups; cuts.
#include "tokenizer/tokenizer.h"
#include "base/fault.h"
#include "base/file.h"
#include "tokenizer/tokenizer_added.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_LIMIT = 256 << 20 }; // bytes of one call: counts of Vec are int, and ▁ has three bytes

struct TokenizerScratch {
  const Tokenizer *t;
  BpeScratch bpe;
  SplitScratch split;
  NormalizerScratch normalizer;
  // Of the call that runs:
  IdVector *ids;
  const char *text, *piece; // its text; the piece between added tokens that is being encoded
  size_t bytes;
  AddedPlaces places; // where special tokens are found
  bool everywhere;    // wherever they are
  int64_t specials; // that the text spells out
  TokenizerMissed missed;
};

TokenizerScratch *tokenizer_scratch_create(const Tokenizer *t) {
  TokenizerScratch *scratch = xcalloc(1, sizeof *scratch);
  scratch->t = t;
  return scratch;
}

void tokenizer_scratch_destroy(TokenizerScratch *scratch) {
  if (!scratch) return;
  bpe_scratch_free(&scratch->bpe);
  split_scratch_free(&scratch->split);
  normalizer_scratch_free(&scratch->normalizer);
  free(scratch);
}

void tokenizer_destroy(Tokenizer *t) {
  if (!t) return;
  bpe_free(&t->bpe);
  for (int i = 0; i < TOKENIZER_STEPS; i++) split_free(&t->split[i]), split_free(&t->normalizer[i].expression);
  unicode_normal_destroy(t->unicode);
  vec_free(&t->added_word);
  vec_free(&t->before);
  vec_free(&t->after);
  free(t->json);
  arena_free(&t->arena);
  free(t);
}

int tokenizer_save(const Tokenizer *t, const char *path, Error *error) {
  AtomicFile file;
  int code = file_begin(&file, path, error);
  if (code < 0) return code;
  if (fwrite(t->json, 1, t->json_bytes, file.stream) != t->json_bytes) {
    code = file_write_failed(path, errno, (double)t->json_bytes, error);
    file_abandon(&file);
    return code;
  }
  return file_commit(&file, error);
}

int tokenizer_vocab_size(const Tokenizer *t) { return t->vocab_size; }

int32_t tokenizer_id(const Tokenizer *t, const char *token) {
  size_t bytes = strlen(token);
  int32_t id = bpe_find(&t->bpe, token, bytes);
  for (int i = 0; id < 0 && i < t->added_count; i++) {
    int32_t k = t->added[i].id;
    if ((size_t)t->token_bytes[k] == bytes && !memcmp(t->token_text[k], token, bytes)) id = k;
  }
  return id;
}

const char *tokenizer_token(const Tokenizer *t, int32_t id) {
  return id >= 0 && id < t->vocab_size ? t->token_text[id] : NULL;
}

// ---- encoding ------------------------------------------------------------------------------------------------------

// Where the first byte is that the vocabulary lacks: exact unless the text was changed before the model saw it.
static void note_missed(TokenizerScratch *s) {
  const char *first = s->bpe.first_missed;
  if (!first) return;
  s->bpe.first_missed = NULL;
  if (s->missed.found) return;
  s->missed.found = 1;
  s->missed.exact = (uintptr_t)first >= (uintptr_t)s->text && (uintptr_t)first < (uintptr_t)(s->text + s->bytes);
  s->missed.first = (size_t)((s->missed.exact ? first : s->piece) - s->text);
}

TokenizerMissed tokenizer_missed(const TokenizerScratch *scratch) { return scratch->missed; }

int64_t tokenizer_specials(const TokenizerScratch *scratch) { return scratch->specials; }

static void put_added(TokenizerScratch *s, const AddedToken *token) {
  s->specials += token->special;
  vec_push(s->ids, token->id);
}

// Where no merge joins "x▁", a word may be cut before ▁: short words are fast and can be cached.
static void encode_word(void *argument, const char *text, size_t bytes) {
  TokenizerScratch *s = argument;
  const char *marker = s->t->marker;
  size_t n = strlen(marker), start = 0;
  for (size_t i = n; n && i < bytes;) {
    const char *p = memmem(text + i, bytes - i, marker, n);
    if (!p) break;
    i = (size_t)(p - text);
    if (memcmp(p - n, marker, n)) {
      bpe_encode_word(&s->t->bpe, &s->bpe, text + start, i - start, s->ids);
      start = i;
    }
    i += n;
  }
  bpe_encode_word(&s->t->bpe, &s->bpe, text + start, bytes - start, s->ids);
  note_missed(s);
}

// A normalized piece without added tokens: valid runs through the pre-tokenizer, other bytes one by one.
static int encode_piece(TokenizerScratch *s, const char *text, size_t bytes, int flags, Error *error) {
  SplitSink sink = {encode_word, s};
  while (bytes) {
    size_t valid = utf8_prefix(text, bytes);
    if (valid) {
      int code = split_text(s->t->split, s->t->split_count, &s->split, text, valid, flags, &sink, error);
      if (code < 0) return code;
    } else {
      bpe_encode_byte(&s->t->bpe, &s->bpe, text, s->ids);
      note_missed(s);
      valid = 1;
    }
    flags = SPLIT_CONTINUES;
    text += valid;
    bytes -= valid;
  }
  return PLAIT_OK;
}

// Encodes what lies between added tokens of one set with the next function down.
static int encode_normalized(TokenizerScratch *s, const char *text, size_t bytes, int flags, const AddedPlaces *special,
                             Error *error) {
  const Tokenizer *t = s->t;
  s->piece = text;
  int code = normalizer_run(t->normalizer, t->normalizer_count, t->unicode, &s->normalizer, flags & SPLIT_CONTINUES,
                            &text, &bytes, error);
  size_t done = 0, scan = 0;
  AddedMatch match;
  while (code >= 0 && added_next(&s->t->added_normalized, text, bytes, special, done, &scan, &match)) {
    if (match.start > done) code = encode_piece(s, text + done, match.start - done, done ? 0 : flags, error);
    put_added(s, match.token);
    done = match.end;
  }
  return code < 0 ? code : encode_piece(s, text + done, bytes - done, done ? 0 : flags, error);
}

static bool has_special(const AddedSet *set) {
  for (int i = 0; i < set->count; i++)
    if (set->tokens[i]->special) return true;
  return false;
}

// A piece of the text between added tokens. A position in normalized text is none in the text itself: where special
// tokens are to be found in normalized text, it is cut where the places for them begin and end.
static int encode_between(TokenizerScratch *s, size_t from, size_t to, int flags, Error *error) {
  const AddedPlaces *p = &s->places;
  AddedPlaces nowhere = {0}, here = *p;
  here.offset = from;
  if (s->everywhere) return encode_normalized(s, s->text + from, to - from, flags, NULL, error);
  if (!s->t->normalizer_count || !p->count || !has_special(&s->t->added_normalized))
    return encode_normalized(s, s->text + from, to - from, flags, s->t->normalizer_count ? &nowhere : &here, error);
  int code = PLAIT_OK;
  for (int i = 0; from < to && code >= 0;) {
    while (i < p->count && p->spans[i].end <= from) i++;
    bool within = i < p->count && p->spans[i].start <= from;
    size_t end = i >= p->count ? to : within ? p->spans[i].end : p->spans[i].start;
    if (end > to) end = to;
    code = encode_normalized(s, s->text + from, end - from, flags, within ? NULL : &nowhere, error);
    flags = SPLIT_CONTINUES;
    from = end;
  }
  return code;
}

static int encode_text(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t bytes, int flags,
                       IdVector *ids, Error *error) {
  int code = PLAIT_OK, place = flags & ENCODE_CONTINUES ? SPLIT_CONTINUES : SPLIT_AT_START;
  size_t done = 0, scan = 0;
  AddedMatch match;
  CHECK(s->t == t, "scratch of another tokenizer");
  if (bytes > TEXT_LIMIT)
    return error_set(error, PLAIT_BAD_INPUT, "a text of %zu bytes is over the limit of %d MiB", bytes,
                     TEXT_LIMIT >> 20);
  s->ids = ids;
  s->text = text;
  s->bytes = bytes;
  s->specials = 0;
  s->bpe.missed = 0;
  s->missed = (TokenizerMissed){0};
  const AddedPlaces *special = s->everywhere ? NULL : &s->places;
  if (flags & ENCODE_ADD_SPECIAL)
    for (int i = 0; i < t->before.count; i++) vec_push(ids, t->before.data[i]);
  while (code >= 0 && added_next(&t->added_raw, text, bytes, special, done, &scan, &match)) {
    if (match.start > done) code = encode_between(s, done, match.start, done ? 0 : place, error);
    put_added(s, match.token);
    done = match.end;
  }
  if (code >= 0) code = encode_between(s, done, bytes, done ? 0 : place, error);
  if (flags & ENCODE_ADD_SPECIAL)
    for (int i = 0; i < t->after.count; i++) vec_push(ids, t->after.data[i]);
  s->missed.bytes = s->bpe.missed;
  return code;
}

int tokenizer_encode_with(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t bytes, int flags,
                          IdVector *ids, Error *error) {
  s->everywhere = FAULT(control_tokens_are_always_found, !(flags & ENCODE_PLAIN), true);
  s->places = (AddedPlaces){0};
  return encode_text(t, s, text, bytes, flags, ids, error);
}

int tokenizer_encode_spans(const Tokenizer *t, TokenizerScratch *s, const char *text, size_t bytes,
                           const TextSpan *spans, int count, IdVector *ids, Error *error) {
  s->everywhere = FAULT(contents_hold_special_tokens, false, true);
  s->places = (AddedPlaces){.spans = spans, .count = count};
  return encode_text(t, s, text, bytes, 0, ids, error);
}

int tokenizer_encode(const Tokenizer *t, const char *text, size_t bytes, int add_special, IdVector *ids, Error *error) {
  TokenizerScratch *scratch = tokenizer_scratch_create(t);
  int code = tokenizer_encode_with(t, scratch, text, bytes, add_special ? ENCODE_ADD_SPECIAL : 0, ids, error);
  tokenizer_scratch_destroy(scratch);
  return code;
}

size_t tokenizer_cut(const Tokenizer *t, const char *text, size_t bytes, size_t from) {
  return split_cut(text, bytes, from, t->cuttable);
}
