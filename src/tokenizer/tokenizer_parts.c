// Reads the components around the model: normalizer, pre-tokenizer, decoder and post-processor of a tokenizer.json.
#include "tokenizer/tokenizer_json.h"
#include <stdio.h>
#include <string.h>

static int read_each(const TokenizerReader *r, const json_t *component, const char *where, const char *list,
                     ReaderPart part, int depth) {
  if (!component || json_is_null(component)) return PLAIT_OK;
  if (!json_is_object(component)) return reader_refuse(r, where, "is not an object");
  if (depth > 8) return reader_refuse(r, where, "nests more than 8 deep");
  const char *type = reader_string(r, component, "type", where, NULL);
  if (!type) return PLAIT_BAD_INPUT;
  if (strcmp(type, "Sequence")) return part(r, component, type, where);
  const json_t *members = json_object_get(component, list);
  size_t i;
  json_t *member;
  if (!json_is_array(members)) return reader_refuse(r, where, "is a Sequence without a list \"%s\"", list);
  json_array_foreach(members, i, member) {
    char inner[100];
    snprintf(inner, sizeof inner, "%.60s.%s[%zu]", where, list, i);
    int code = read_each(r, member, inner, list, part, depth + 1);
    if (code < 0) return code;
  }
  return PLAIT_OK;
}

int reader_each(const TokenizerReader *r, const json_t *component, const char *where, const char *list,
                ReaderPart part) {
  return read_each(r, component, where, list, part, 0);
}

static int is(const char *type, const char *name) { return !strcmp(type, name); }

// ---- pre-tokenizer -------------------------------------------------------------------------------------------------

static int compile(const TokenizerReader *r, SplitStep *step, const char *pattern, size_t bytes, const char *where) {
  Error why = {0};
  int code = split_compile(step, pattern, bytes, &why);
  return code < 0 ? reader_refuse(r, where, "has an expression that plait cannot use: %s", why.message) : code;
}

// `fallback`: where it is absent; NULL: it must be there.
static int read_behavior(const TokenizerReader *r, const json_t *component, SplitStep *step, const char *where,
                         const char *fallback) {
  static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
  const char *behavior = fallback && !json_object_get(component, "behavior")
                             ? fallback
                             : reader_string(r, component, "behavior", where, NULL);
  int which = 0;
  if (!behavior) return PLAIT_BAD_INPUT;
  while (which < 5 && strcmp(behavior, names[which])) which++;
  if (which == 5)
    return reader_refuse(r, where,
                         "has the behavior %.60s, allowed are Isolated, Removed, Contiguous, MergedWithPrevious and "
                         "MergedWithNext",
                         behavior);
  step->behavior = (SplitBehavior)which; // names are in the order of the enum
  return PLAIT_OK;
}

static int read_split(const TokenizerReader *r, const json_t *component, SplitStep *step, const char *where) {
  const json_t *pattern = json_object_get(component, "pattern");
  const json_t *text = json_object_get(pattern, "String"), *expression = json_object_get(pattern, "Regex");
  if (read_behavior(r, component, step, where, NULL) < 0) return PLAIT_BAD_INPUT;
  if ((step->invert = reader_flag(r, component, "invert", where, 0)) < 0) return PLAIT_BAD_INPUT;
  if (json_is_string(expression))
    return compile(r, step, json_string_value(expression), json_string_length(expression), where);
  if (!json_is_string(text) || json_string_length(text) > 4096)
    return reader_refuse(r, where, "has a pattern that is neither a Regex nor a short String");
  if (!json_string_length(text)) return compile(r, step, "", 0, where); // an empty match between all characters
  step->kind = SPLIT_STRING;
  step->string = xstrdup(json_string_value(text));
  step->string_bytes = (int)strlen(step->string);
  return PLAIT_OK;
}

static int read_metaspace(const TokenizerReader *r, const json_t *component, SplitStep *step, const char *where) {
  const json_t *scheme = json_object_get(component, "prepend_scheme");
  int legacy = reader_flag(r, component, "add_prefix_space", where, 1), bytes;
  const char *replacement = reader_string(r, component, "replacement", where, &bytes), *name = "always";
  uint32_t code;
  if (legacy < 0 || !replacement) return PLAIT_BAD_INPUT;
  if (!bytes || utf8_get(replacement, (size_t)bytes, &code) != bytes || !code)
    return reader_refuse(r, where, "has a replacement that is not one character");
  if ((step->split = reader_flag(r, component, "split", where, 1)) < 0) return PLAIT_BAD_INPUT;
  if (json_is_string(scheme)) name = json_string_value(scheme);
  else if (!legacy) name = "never";
  if (is(name, "always")) step->prepend = PREPEND_ALWAYS;
  else if (is(name, "first")) step->prepend = PREPEND_FIRST;
  else if (is(name, "never")) step->prepend = PREPEND_NEVER;
  else return reader_refuse(r, where, "has the prepend_scheme %.60s, allowed are always, first and never", name);
  step->kind = SPLIT_METASPACE;
  step->behavior = SPLIT_NEXT;
  step->string = xstrdup(replacement);
  step->string_bytes = bytes;
  return PLAIT_OK;
}

static int read_delimiter(const TokenizerReader *r, const json_t *component, SplitStep *step, const char *where) {
  uint32_t code;
  const char *delimiter = reader_string(r, component, "delimiter", where, &step->string_bytes);
  if (!delimiter) return PLAIT_BAD_INPUT;
  if (utf8_get(delimiter, (size_t)step->string_bytes, &code) != step->string_bytes || !step->string_bytes || !code)
    return reader_refuse(r, where, "has a delimiter that is not one character");
  step->kind = SPLIT_STRING;
  step->behavior = SPLIT_REMOVED;
  step->string = xstrdup(delimiter);
  return PLAIT_OK;
}

static int read_pre_tokenizer(const TokenizerReader *r, const json_t *component, const char *type, const char *where) {
  Tokenizer *t = r->t;
  if (t->split_count == TOKENIZER_STEPS)
    return reader_refuse(r, where, "is one step more than the %d allowed", TOKENIZER_STEPS);
  if (t->bpe.byte_level)
    return reader_refuse(r, where, "is %.60s after ByteLevel, which must be the last step", type);
  SplitStep *step = &t->split[t->split_count++];
  if (is(type, "BertPreTokenizer")) { // two steps
    if (t->split_count == TOKENIZER_STEPS)
      return reader_refuse(r, where, "is one step more than the %d allowed", TOKENIZER_STEPS);
    step->behavior = SPLIT_REMOVED;
    t->split_count++;
    return split_compile_class(step, SPLIT_SPACE, r->error)
               ? PLAIT_BAD_INPUT
               : split_compile_class(step + 1, SPLIT_PUNCTUATION, r->error);
  }
  if (is(type, "Whitespace")) { // text that does not match is removed
    step->behavior = SPLIT_REMOVED;
    step->invert = 1;
    return split_compile_class(step, SPLIT_WORDS, r->error);
  }
  if (is(type, "WhitespaceSplit")) {
    step->behavior = SPLIT_REMOVED;
    return split_compile_class(step, SPLIT_SPACE, r->error);
  }
  if (is(type, "Punctuation")) {
    if (read_behavior(r, component, step, where, "Isolated") < 0) return PLAIT_BAD_INPUT;
    return split_compile_class(step, SPLIT_PUNCTUATION, r->error);
  }
  if (is(type, "CharDelimiterSplit")) return read_delimiter(r, component, step, where);
  if (is(type, "Split")) return read_split(r, component, step, where);
  if (is(type, "Metaspace")) return read_metaspace(r, component, step, where);
  if (is(type, "Digits")) {
    int individual = reader_flag(r, component, "individual_digits", where, 0);
    if (individual < 0) return PLAIT_BAD_INPUT;
    if (!individual) step->behavior = SPLIT_CONTIGUOUS;
    return split_compile_class(step, individual ? SPLIT_DIGIT : SPLIT_DIGITS, r->error);
  }
  if (!is(type, "ByteLevel"))
    return reader_refuse(
        r, where,
        "is %.60s, which is not supported (supported: ByteLevel, Split, Digits, Metaspace, Whitespace, "
        "WhitespaceSplit, Punctuation, BertPreTokenizer, CharDelimiterSplit, Sequence)",
        type);
  t->bpe.byte_level = 1;
  if ((step->prefix_space = reader_flag(r, component, "add_prefix_space", where, 1)) < 0) return PLAIT_BAD_INPUT;
  int use_regex = reader_flag(r, component, "use_regex", where, 1);
  if (use_regex > 0) return compile(r, step, SPLIT_GPT2, strlen(SPLIT_GPT2), where);
  step->kind = SPLIT_NOTHING;
  return use_regex;
}

// ---- decoder -------------------------------------------------------------------------------------------------------

static int read_strip(const TokenizerReader *r, const json_t *component, const char *where) {
  TokenizerDecoder *d = &r->t->decoder;
  const json_t *start = json_object_get(component, "start"), *stop = json_object_get(component, "stop");
  int bytes;
  const char *content = reader_string(r, component, "content", where, &bytes);
  if (!content) return PLAIT_BAD_INPUT;
  if (bytes < 1 || bytes > 4) return reader_refuse(r, where, "strips something that is not one character");
  if (!json_is_integer(start) || json_integer_value(start) < 0 || json_integer_value(start) > 1 << 20)
    return reader_refuse(r, where, "has no sensible \"start\"");
  if (stop && (!json_is_integer(stop) || json_integer_value(stop) != 0))
    return reader_refuse(r, where, "strips the end of texts, which is not supported");
  memcpy(d->strip, content, (size_t)bytes);
  d->strip_start = (int)json_integer_value(start);
  return PLAIT_OK;
}

static int read_decoder(const TokenizerReader *r, const json_t *component, const char *type, const char *where) {
  TokenizerDecoder *d = &r->t->decoder;
  if (d->strip[0]) return reader_refuse(r, where, "is %.60s after Strip, which must be the last step", type);
  if (is(type, "ByteLevel")) d->byte_level = 1;
  else if (is(type, "ByteFallback")) d->byte_fallback = 1;
  else if (is(type, "Strip")) return read_strip(r, component, where);
  else if (is(type, "Replace")) {
    if (d->replaces == TOKENIZER_STEPS)
      return reader_refuse(r, where, "is one step more than the %d allowed", TOKENIZER_STEPS);
    return reader_replace(r, component, where, &d->replace[d->replaces++]);
  } else if (is(type, "Metaspace")) {
    SplitStep step = {0};
    int code = read_metaspace(r, component, &step, where);
    if (code >= 0) memcpy(d->metaspace, step.string, (size_t)step.string_bytes);
    d->metaspace_drop = step.prepend != PREPEND_NEVER;
    split_free(&step);
    return code;
  } else if (!is(type, "Fuse"))
    return reader_refuse(r, where,
                         "is %.60s, which is not supported (supported: ByteLevel, Metaspace, Replace, ByteFallback, "
                         "Fuse, Strip, Sequence)",
                         type);
  return PLAIT_OK;
}

static int decode_byte_level(const char *text, int bytes, ByteVector *out) {
  int start = out->count;
  for (int i = 0; i < bytes;) {
    uint32_t letter;
    int n = utf8_get(text + i, (size_t)(bytes - i), &letter), byte = n ? bpe_letter_byte(letter) : -1;
    if (byte < 0) return out->count = start, -1;
    vec_push(out, (char)byte);
    i += n;
  }
  return 0;
}

static void decode_token(const Tokenizer *t, const char *text, int bytes, int added, ByteVector *out) {
  const TokenizerDecoder *d = &t->decoder;
  unsigned byte;
  char closing;
  if (d->byte_level) {
    // Added tokens stand in the text as they are; Hugging Face reads their letters as bytes, which mangles accents.
    if (added || decode_byte_level(text, bytes, out) < 0) bytes_append(out, text, (size_t)bytes);
    return;
  }
  if (d->byte_fallback && bytes == 6 && sscanf(text, "<0x%2X%c", &byte, &closing) == 2 && closing == '>') {
    vec_push(out, (char)byte);
    return;
  }
  for (int i = 0; i < bytes;) {
    int n = 0, marker = (int)strlen(d->metaspace);
    for (int k = 0; k < d->replaces && !n; k++) {
      const NormalizerStep *step = &d->replace[k];
      if (step->from_bytes > bytes - i || memcmp(text + i, step->from, (size_t)step->from_bytes)) continue;
      bytes_append(out, step->to, (size_t)step->to_bytes);
      n = step->from_bytes;
    }
    if (!n && marker && marker <= bytes - i && !memcmp(text + i, d->metaspace, (size_t)marker)) {
      vec_push(out, ' ');
      n = marker;
    }
    if (!n) vec_push(out, text[i]);
    i += n ? n : 1;
  }
}

static void set_decoded(const TokenizerReader *r, int32_t id, const char *token, int bytes, int added) {
  ByteVector text = {0};
  decode_token(r->t, token, bytes, added, &text);
  r->t->decoded[id].text = reader_copy(r, text.data ? text.data : "", text.count);
  r->t->decoded[id].bytes = text.count;
  vec_free(&text);
}

int reader_finish_decoder(const TokenizerReader *r) {
  Tokenizer *t = r->t;
  if (t->bpe.byte_level) t->decoder.byte_level = 1; // also where the file names no decoder
  if (t->bpe.byte_level && t->bpe.byte_fallback)
    for (int b = 0; b < 256; b++)
      if (t->bpe.byte_id[b] < 0)
        return reader_refuse(r, "model.byte_fallback", "is set, which ByteLevel does not support");
  t->decoded = arena_alloc(&t->arena, (size_t)t->vocab_size * sizeof *t->decoded);
  for (int32_t id = 0; id < t->vocab_size; id++)
    if (t->token_text[id]) set_decoded(r, id, t->token_text[id], t->token_bytes[id], 0);
  for (int i = 0; i < t->added_count; i++) // what they match in normalized text, so that it comes back
    set_decoded(r, t->added[i].id, t->added[i].text, t->added[i].bytes, 1);
  return PLAIT_OK;
}

// ---- post-processor ------------------------------------------------------------------------------------------------

static int add_special_id(const TokenizerReader *r, const json_t *id, IdVector *ids, const char *where) {
  if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= r->t->vocab_size ||
      !r->t->token_text[json_integer_value(id)])
    return reader_refuse(r, where, "adds a token that is not in the vocabulary");
  vec_push(ids, (int32_t)json_integer_value(id));
  return PLAIT_OK;
}

static int read_template(const TokenizerReader *r, const json_t *component, const char *where) {
  const json_t *single = json_object_get(component, "single"), *specials = json_object_get(component, "special_tokens");
  IdVector *ids = &r->t->before;
  size_t i, k;
  json_t *piece, *id;
  if (!json_is_array(single)) return reader_refuse(r, where, "has no list \"single\"");
  json_array_foreach(single, i, piece) {
    if (json_object_get(piece, "Sequence")) {
      if (ids == &r->t->after) return reader_refuse(r, where, "uses the text twice, which is not supported");
      ids = &r->t->after;
      continue;
    }
    const json_t *name = json_object_get(json_object_get(piece, "SpecialToken"), "id");
    if (!json_is_string(name)) return reader_refuse(r, where, "has a piece that is neither Sequence nor SpecialToken");
    const json_t *list = json_object_get(json_object_get(specials, json_string_value(name)), "ids");
    if (!json_is_array(list))
      return reader_refuse(r, where, "uses \"%.60s\", which its special_tokens do not give", json_string_value(name));
    json_array_foreach(list, k, id) {
      if (add_special_id(r, id, ids, where) < 0) return PLAIT_BAD_INPUT;
    }
  }
  return PLAIT_OK;
}

static int read_post_processor(const TokenizerReader *r, const json_t *component, const char *type, const char *where) {
  if (is(type, "ByteLevel")) return PLAIT_OK; // changes offsets only
  if (r->t->before.count || r->t->after.count) return reader_refuse(r, where, "is a second one that adds tokens");
  if (is(type, "TemplateProcessing")) return read_template(r, component, where);
  if (!is(type, "RobertaProcessing") && !is(type, "BertProcessing"))
    return reader_refuse(r, where,
                         "is %.60s, which is not supported (supported: TemplateProcessing, RobertaProcessing, "
                         "BertProcessing, ByteLevel, Sequence)",
                         type);
  int code = add_special_id(r, json_array_get(json_object_get(component, "cls"), 1), &r->t->before, where);
  return code < 0 ? code : add_special_id(r, json_array_get(json_object_get(component, "sep"), 1), &r->t->after, where);
}

int reader_components(const TokenizerReader *r, const json_t *root) {
  int code = reader_each(r, json_object_get(root, "normalizer"), "normalizer", "normalizers", reader_normalizer);
  if (code < 0) return code;
  code = reader_each(r, json_object_get(root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers", read_pre_tokenizer);
  if (code < 0) return code;
  code = reader_each(r, json_object_get(root, "decoder"), "decoder", "decoders", read_decoder);
  if (code < 0) return code;
  r->t->decoder.joins = !r->t->bpe.byte_level && !json_is_object(json_object_get(root, "decoder"));
  if ((code = reader_normalize_added(r)) < 0) return code;
  return reader_each(r, json_object_get(root, "post_processor"), "post_processor", "processors", read_post_processor);
}

// ---- cuts ----------------------------------------------------------------------------------------------------------

static int ends_with(const char *text, int bytes, const char *end, int n) {
  return bytes >= n && !memcmp(text + bytes - n, end, (size_t)n);
}

// The character that spaces become, if no merge joins it to something else before it: then words may be cut before it.
static void find_marker(Tokenizer *t) {
  const Bpe *bpe = &t->bpe;
  const char *marker = NULL;
  for (int i = 0; i < t->normalizer_count; i++)
    if (!marker && t->normalizer[i].kind == NORMALIZE_REPLACE && is(t->normalizer[i].from, " "))
      marker = t->normalizer[i].to;
  for (int i = 0; i < t->split_count; i++) {
    if (t->split[i].kind != SPLIT_METASPACE) continue;
    if (marker && !is(marker, t->split[i].string)) return;
    marker = t->split[i].string;
  }
  uint32_t code;
  int n = marker ? (int)strlen(marker) : 0;
  if (!n || utf8_get(marker, (size_t)n, &code) != n || bpe->byte_level || bpe->ignore_merges) return;
  if (bpe_find(bpe, marker, (size_t)n) < 0) return; // unknown characters may fuse across it
  for (uint32_t i = 0; i <= bpe->merge_mask; i++) {
    const BpeMerge *m = &bpe->merges[i];
    if (m->left < 0 || bpe->bytes[m->right] < n || memcmp(bpe->text[m->right], marker, (size_t)n)) continue;
    if (!ends_with(bpe->text[m->left], bpe->bytes[m->left], marker, n)) return;
  }
  memcpy(t->marker, marker, (size_t)n);
}

static int letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Whether a match of the token could cover a cut, or consume the space after it.
static int token_spans_cut(const AddedToken *token, const char *marker) {
  int n = token->bytes, m = (int)strlen(marker);
  if (!n) return 0;
  for (int i = 0; i < n; i++) {
    int space = token->text[i] == ' ' || (m && m <= n - i && !memcmp(token->text + i, marker, (size_t)m));
    int width = token->text[i] == ' ' ? 1 : m;
    if (space && (i == 0 || letter(token->text[i - 1])) && (i + width >= n || letter(token->text[i + width]))) return 1;
  }
  return (token->lstrip && letter(token->text[0])) || (token->rstrip && letter(token->text[n - 1]));
}

void reader_finish_cuts(const TokenizerReader *r) {
  Tokenizer *t = r->t;
  int cuts = 0, lines = 0, keeps_lines = 1;
  find_marker(t);
  for (int i = 0; i < t->normalizer_count; i++) {
    const NormalizerStep *step = &t->normalizer[i];
    if (step->kind == NORMALIZE_EXPRESSION || step->kind == NORMALIZE_STRIP) return;
    if (step->kind == NORMALIZE_REPLACE && (!is(step->from, " ") || !t->marker[0])) return;
    // Forms leave ASCII letters and the spaces between them, but they may make white space or take characters away.
    if (step->kind == NORMALIZE_FORM && step->form != UNICODE_NFC && step->form != UNICODE_NFD) keeps_lines = 0;
  }
  for (int i = 0; i < t->split_count; i++) {
    const SplitStep *step = &t->split[i];
    if (step->kind == SPLIT_METASPACE) cuts |= step->split || t->marker[0];
    else if (step->known && (step->behavior == SPLIT_ISOLATED || (step->behavior == SPLIT_REMOVED && step->invert)))
      cuts = 1, lines = CUT_LINES;
    else if (step->kind != SPLIT_NOTHING && !step->digits) return;
  }
  for (int i = 0; i < t->added_count; i++)
    if (token_spans_cut(&t->added[i], t->marker)) return;
  for (int i = 0; i < t->added_count; i++)
    if (t->added[i].lstrip || memchr(t->added[i].text, '\n', (size_t)t->added[i].bytes)) lines = 0;
  if (cuts || t->marker[0]) t->cuttable = CUT_SPACES | (keeps_lines ? lines : 0);
}
