// Reads the normalizer of a tokenizer.json, and applies it to texts.
#include "tokenizer/tokenizer_normalize.h"
#include "tokenizer/tokenizer_json.h"
#include <string.h>

enum { TEXT_MOST = 1 << 30 }; // bytes of a normalized text: counts of Vec are int

// ---- reading -------------------------------------------------------------------------------------------------------

static int is(const char *type, const char *name) { return !strcmp(type, name); }

int reader_replace(const TokenizerReader *r, const json_t *component, const char *where, NormalizerStep *step) {
  const json_t *pattern = json_object_get(component, "pattern");
  step->kind = NORMALIZE_REPLACE;
  if (!json_is_string(json_object_get(pattern, "String")))
    return reader_refuse(r, where, "is a Replace whose pattern is not a String, which is not supported");
  const char *from = reader_string(r, pattern, "String", where, &step->from_bytes);
  const char *to = reader_string(r, component, "content", where, &step->to_bytes);
  if (!from || !to) return PLAIT_BAD_INPUT;
  if (!step->from_bytes || step->from_bytes > 64 || step->to_bytes > 64)
    return reader_refuse(r, where, "replaces %d by %d bytes, allowed are 1 to 64 by 0 to 64", step->from_bytes,
                         step->to_bytes);
  step->from = reader_copy(r, from, step->from_bytes);
  step->to = reader_copy(r, to, step->to_bytes);
  return PLAIT_OK;
}

static int read_expression(const TokenizerReader *r, const json_t *component, const char *where, NormalizerStep *step) {
  const json_t *pattern = json_object_get(json_object_get(component, "pattern"), "Regex");
  Error why = {0};
  step->kind = NORMALIZE_EXPRESSION;
  const char *to = reader_string(r, component, "content", where, &step->to_bytes);
  if (!to) return PLAIT_BAD_INPUT;
  if (step->to_bytes > 64) return reader_refuse(r, where, "replaces by %d bytes, allowed are 0 to 64", step->to_bytes);
  step->to = reader_copy(r, to, step->to_bytes);
  if (split_compile(&step->expression, json_string_value(pattern), json_string_length(pattern), &why) < 0)
    return reader_refuse(r, where, "has an expression that plait cannot use: %s", why.message);
  return PLAIT_OK;
}

int reader_normalizer(const TokenizerReader *r, const json_t *component, const char *type, const char *where) {
  static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"};
  Tokenizer *t = r->t;
  if (t->normalizer_count == TOKENIZER_STEPS)
    return reader_refuse(r, where, "is one step more than the %d allowed", TOKENIZER_STEPS);
  NormalizerStep *step = &t->normalizer[t->normalizer_count++];
  for (int i = 0; i < 6; i++) {
    if (!is(type, forms[i])) continue;
    step->kind = NORMALIZE_FORM;
    step->form = (UnicodeForm)i; // names are in the order of the enum
    if (!t->unicode) t->unicode = unicode_normal_create();
    return PLAIT_OK;
  }
  if (is(type, "Replace")) {
    int regex = json_is_string(json_object_get(json_object_get(component, "pattern"), "Regex"));
    return (regex ? read_expression : reader_replace)(r, component, where, step);
  }
  if (is(type, "Strip")) {
    step->kind = NORMALIZE_STRIP;
    step->strip_left = reader_flag(r, component, "strip_left", where, 1);
    step->strip_right = reader_flag(r, component, "strip_right", where, 1);
    return step->strip_left < 0 || step->strip_right < 0 ? PLAIT_BAD_INPUT : PLAIT_OK;
  }
  if (!is(type, "Prepend"))
    return reader_refuse(r, where,
                         "is %.60s, which is not supported (supported: NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, "
                         "Replace, Prepend, Strip, Sequence)",
                         type);
  step->kind = NORMALIZE_PREPEND;
  const char *text = reader_string(r, component, "prepend", where, &step->prepend_bytes);
  if (!text) return PLAIT_BAD_INPUT;
  if (step->prepend_bytes > 64) return reader_refuse(r, where, "prepends more than 64 bytes");
  step->prepend = reader_copy(r, text, step->prepend_bytes);
  return PLAIT_OK;
}

// A normalized added token is matched in normalized text, so it goes through the normalizer itself.
int reader_normalize_added(const TokenizerReader *r) {
  Tokenizer *t = r->t;
  NormalizerScratch scratch = {0};
  int code = PLAIT_OK;
  for (int i = 0; i < t->added_count && code >= 0; i++) {
    AddedToken *token = &t->added[i];
    if (!token->normalized) continue;
    const char *text = token->text;
    size_t bytes = (size_t)token->bytes;
    code = normalizer_run(t->normalizer, t->normalizer_count, t->unicode, &scratch, 0, &text, &bytes, r->error);
    if (code < 0) break;
    if (bytes > 1 << 20)
      code = reader_refuse(r, "added_tokens", "has a token that grows over 1 MiB when it is normalized");
    else {
      token->text = reader_copy(r, text, (int)bytes);
      token->bytes = (int)bytes;
    }
  }
  normalizer_scratch_free(&scratch);
  return code;
}

// ---- applying ------------------------------------------------------------------------------------------------------

void normalizer_scratch_free(NormalizerScratch *scratch) {
  vec_free(&scratch->text);
  vec_free(&scratch->other);
  unicode_scratch_free(&scratch->unicode);
  split_scratch_free(&scratch->split);
}

static int too_large(Error *error) {
  return error_set(error, PLAIT_BAD_INPUT, "a text grows over %d MiB when it is normalized", TEXT_MOST >> 20);
}

static int replace_all(const NormalizerStep *step, const char *text, size_t bytes, ByteVector *out, Error *error) {
  size_t n = (size_t)step->from_bytes;
  for (const char *p; n && (p = memmem(text, bytes, step->from, n));) {
    bytes_append(out, text, (size_t)(p - text));
    bytes_append(out, step->to, (size_t)step->to_bytes);
    if (out->count > TEXT_MOST) return too_large(error);
    bytes -= (size_t)(p - text) + n;
    text = p + n;
  }
  bytes_append(out, text, bytes);
  return PLAIT_OK;
}

static int replace_matches(const NormalizerStep *step, NormalizerScratch *s, const char *text, size_t bytes,
                           ByteVector *out, Error *error) {
  SplitMatches m;
  size_t done = 0;
  int code;
  matches_begin(&m, &step->expression, &s->split, 0, text, bytes);
  while ((code = matches_next(&m, error)) > 0) {
    bytes_append(out, text + done, m.start - done);
    bytes_append(out, step->to, (size_t)step->to_bytes);
    if (out->count > TEXT_MOST) return too_large(error);
    done = m.end;
  }
  if (code >= 0) bytes_append(out, text + done, bytes - done);
  return code;
}

// The same for text with bytes that are not UTF-8: they stay, and part what is around them.
static int replace_in_valid(const NormalizerStep *step, NormalizerScratch *s, const char *text, size_t bytes,
                            ByteVector *out, Error *error) {
  while (bytes) {
    size_t valid = utf8_prefix(text, bytes);
    int code = valid ? replace_matches(step, s, text, valid, out, error) : PLAIT_OK;
    if (code < 0) return code;
    if (!valid) bytes_append(out, text, valid = 1);
    text += valid;
    bytes -= valid;
  }
  return PLAIT_OK;
}

int normalizer_run(const NormalizerStep *steps, int count, const UnicodeNormal *unicode, NormalizerScratch *s,
                   int continues, const char **text, size_t *bytes, Error *error) {
  ByteVector *out = &s->text;
  for (int i = 0; i < count && *bytes; i++) {
    const NormalizerStep *step = &steps[i];
    int code = PLAIT_OK;
    if (step->kind == NORMALIZE_STRIP) {
      for (int n; step->strip_left && *bytes && (n = utf8_space(*text, *bytes)); *bytes -= (size_t)n) *text += n;
      for (int n; step->strip_right && *bytes && (n = utf8_space_before(*text, *bytes));) *bytes -= (size_t)n;
      continue;
    }
    if (step->kind == NORMALIZE_FORM) {
      int changed = unicode_normalize(unicode, step->form, &s->unicode, *text, *bytes, TEXT_MOST, out);
      if (changed < 0) return too_large(error);
      if (!changed) continue;
    } else if (step->kind == NORMALIZE_PREPEND) {
      if (continues) continue;
      out->count = 0;
      bytes_append(out, step->prepend, (size_t)step->prepend_bytes);
      bytes_append(out, *text, *bytes);
    } else {
      out->count = 0;
      code = step->kind == NORMALIZE_REPLACE ? replace_all(step, *text, *bytes, out, error)
                                             : replace_in_valid(step, s, *text, *bytes, out, error);
    }
    if (code < 0) return code;
    *text = out->data;
    *bytes = (size_t)out->count;
    out = out == &s->text ? &s->other : &s->text;
  }
  return PLAIT_OK;
}
