// Pre-tokenization steps, applied depth first: every piece goes through all later steps before the next one.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/tokenizer_split.h"
#include "base/fault.h"
#include "tokenizer/tokenizer_pattern.h"
#include <pcre2.h>
#include <string.h>

const char SPLIT_GPT2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// Expressions in wide use for which it is known that a match starts at every split_cut: none looks back, and what ends
// there ends whether or not more follows.
#define TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define OTHER "[^\\r\\n\\p{L}\\p{N}]?"
static const char *const known_expressions[] = {
    SPLIT_GPT2,
    SUFFIX "|" OTHER "\\p{L}+|\\p{N}{1,3}" TAIL,
    SUFFIX "|" OTHER "\\p{L}+|\\p{N}" TAIL,
    OTHER UPPER "*" LOWER "+" SUFFIX "?|" OTHER UPPER "+" LOWER "*" SUFFIX
                "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};

int split_compile(SplitStep *step, const char *pattern, size_t bytes, Error *error) {
  int number;
  PCRE2_SIZE offset;
  ByteVector translated = {0};
  UnicodeMap letters = {0};
  if (bytes > 64 << 10) return error_set(error, PLAIT_BAD_INPUT, "the expression is longer than 65536 bytes");
  int result = pattern_translate(pattern, bytes, &translated, &letters, error);
  if (result < 0) {
    vec_free(&translated);
    unicode_map_free(&letters);
    return result;
  }
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  CHECK(context, "out of memory");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  vec_reserve(&translated, 1); // PCRE2 wants a pointer even for an empty expression
  pcre2_code *code = pcre2_compile((PCRE2_SPTR)translated.data, (PCRE2_SIZE)translated.count, PCRE2_MULTILINE, &number,
                                   &offset, context);
  pcre2_compile_context_free(context);
  vec_free(&translated);
  if (!code) {
    PCRE2_UCHAR reason[160];
    pcre2_get_error_message(number, reason, sizeof reason);
    unicode_map_free(&letters);
    return error_set(error, PLAIT_BAD_INPUT, "%s", (char *)reason);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); // where there is no JIT, matching interprets
  step->kind = SPLIT_REGEX;
  step->regex = code;
  step->letters = letters;
  for (size_t i = 0; i < sizeof known_expressions / sizeof *known_expressions; i++)
    if (strlen(known_expressions[i]) == bytes && !memcmp(known_expressions[i], pattern, bytes)) step->known = 1;
  return PLAIT_OK;
}

// Rust's idea of such characters is not the expressions', so an expression is compiled with one character outside ASCII
// for each set, and then the letter of that character is given to all of the set.
typedef struct ClassRow {
  const char *pattern;
  struct { const char *name; uint32_t stands_for_it; } sets[2]; // the first one that has a character
} ClassRow;

int split_compile_class(SplitStep *step, SplitClass which, Error *error) {
  enum { ELSE = 0x661 }; // in none of the sets
  static const ClassRow rows[] = {
      [SPLIT_DIGIT] = {"[0-9\\u0660]", {{"*numeric", 0x660}}},
      [SPLIT_DIGITS] = {"[0-9\\u0660]+", {{"*numeric", 0x660}}},
      [SPLIT_SPACE] = {"[\\t-\\r \\u3000]", {{"*space", 0x3000}}},
      [SPLIT_WORDS] = {"[0-9A-Za-z_\\u0660]+|[^0-9A-Za-z_\\u0660\\t-\\r \\u3000]+",
                       {{"*word", 0x660}, {"*space", 0x3000}}},
      [SPLIT_PUNCTUATION] = {"[!-/:-@\\[-`{-~\\u2010]", {{"*punct", 0x2010}}}};
  const ClassRow *row = &rows[which];
  int code = split_compile(step, row->pattern, strlen(row->pattern), error);
  if (code < 0) return code;
  uint8_t *values = xcalloc(UNICODE_END, 1);
  memset(values, unicode_map_get(&step->letters, ELSE), UNICODE_END);
  for (int c = 0; c < 128; c++) values[c] = (uint8_t)c;
  for (int k = 1; k >= 0; k--) {
    UnicodeSet set = {0};
    if (!row->sets[k].name) continue;
    uint8_t letter = unicode_map_get(&step->letters, row->sets[k].stands_for_it);
    unicode_set_named(&set, row->sets[k].name);
    for (int i = 0; i < set.count; i++)
      for (uint32_t c = set.data[i].first; c < set.data[i].end; c++)
        if (c >= FAULT(classes_are_of_ascii, 128u, (uint32_t)UNICODE_END)) values[c] = letter;
    vec_free(&set);
  }
  unicode_map_free(&step->letters);
  unicode_map_build(&step->letters, values);
  free(values);
  step->digits = which == SPLIT_DIGIT || which == SPLIT_DIGITS;
  return PLAIT_OK;
}

void split_free(SplitStep *step) {
  pcre2_code_free(step->regex);
  unicode_map_free(&step->letters);
  free(step->string);
  *step = (SplitStep){0};
}

void split_scratch_free(SplitScratch *scratch) {
  pcre2_match_data_free(scratch->match);
  pcre2_match_context_free(scratch->context);
  pcre2_jit_stack_free(scratch->stack);
  for (int i = 0; i < 16; i++) vec_free(&scratch->buffer[i]), vec_free(&scratch->letters[i]);
  memset(scratch, 0, sizeof *scratch);
}

typedef struct SplitRun {
  const SplitStep *steps;
  int count;
  SplitScratch *scratch;
  const SplitSink *sink;
  Error *error;
} SplitRun;

static int run_step(const SplitRun *run, int step, const char *text, size_t bytes, int flags);

// Pieces of one text, joined as the step's behavior says before the next step.
typedef struct SplitPieces {
  const SplitRun *run;
  int step, flags;
  const char *text;
  size_t start, end; // the piece that waits
  int waits, last_match; // whether one does; whether the last piece was a match
} SplitPieces;

static int send_piece(SplitPieces *p, size_t start, size_t end) {
  return run_step(p->run, p->step + 1, p->text + start, end - start, start ? 0 : p->flags);
}

// A match may be empty; it parts what is around it.
static int add_piece(SplitPieces *p, size_t start, size_t end, int match) {
  const SplitStep *step = &p->run->steps[p->step];
  if (start == end && !match) return PLAIT_OK;
  match ^= step->invert;
  if (step->behavior == SPLIT_ISOLATED) return send_piece(p, start, end);
  if (step->behavior == SPLIT_REMOVED) return match ? PLAIT_OK : send_piece(p, start, end);
  int joins = 0, code = PLAIT_OK;
  if (step->behavior == SPLIT_CONTIGUOUS) joins = match == p->last_match;
  if (step->behavior == SPLIT_PREVIOUS) joins = match && !p->last_match;
  if (step->behavior == SPLIT_NEXT) joins = !match && p->last_match;
  p->last_match = match;
  if (p->waits && !joins) code = send_piece(p, p->start, p->end);
  if (!p->waits || !joins) p->start = start;
  p->end = end;
  p->waits = 1;
  return code;
}

static void prepare_matching(SplitScratch *s) {
  if (s->match) return;
  s->match = pcre2_match_data_create(1, NULL);
  s->context = pcre2_match_context_create(NULL);
  s->stack = pcre2_jit_stack_create(32 << 10, 8 << 20, NULL);
  CHECK(s->match && s->context, "out of memory");
  if (s->stack) pcre2_jit_stack_assign(s->context, NULL, s->stack);
}

// ---- matches -------------------------------------------------------------------------------------------------------

static size_t ascii_prefix(const char *text, size_t bytes) {
  size_t i = 0;
  for (uint64_t v; bytes - i >= 8 && (memcpy(&v, text + i, 8), !(v & 0x8080808080808080u));) i += 8;
  while (i < bytes && !(text[i] & 0x80)) i++;
  return i;
}

// Bytes of the character that begins here, in valid UTF-8.
static inline size_t width_at(const char *text) {
  uint8_t c = (uint8_t)*text;
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

static inline uint32_t code_at(const char *text, size_t width) {
  const uint8_t *p = (const uint8_t *)text;
  if (width == 2) return (p[0] & 31u) << 6 | (p[1] & 63u);
  if (width == 3) return (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
  return (p[0] & 7u) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
}

void matches_begin(SplitMatches *m, const SplitStep *step, SplitScratch *scratch, int slot, const char *text,
                   size_t bytes) {
  size_t ascii = ascii_prefix(text, bytes);
  ByteVector *out = &scratch->letters[slot];
  *m = (SplitMatches){.step = step, .scratch = scratch, .text = text, .letters = text, .count = bytes,
                      .last = SIZE_MAX, .ascii = ascii == bytes};
  prepare_matching(scratch);
  if (m->ascii) return;
  vec_reserve(out, (int)bytes);
  uint8_t *p = (uint8_t *)out->data;
  for (size_t i = 0; i < bytes;) {
    if (ascii) {
      memcpy(p, text + i, ascii);
      p += ascii;
      i += ascii;
    }
    while (i < bytes && (text[i] & 0x80)) {
      size_t width = width_at(text + i);
      *p++ = unicode_map_get(&step->letters, code_at(text + i, width));
      i += width;
    }
    ascii = ascii_prefix(text + i, bytes - i);
  }
  m->letters = out->data;
  m->count = (size_t)(p - (uint8_t *)out->data);
}

static size_t byte_of(SplitMatches *m, size_t letter) {
  if (m->ascii) return letter;
  if (letter < m->letter) m->letter = m->byte = 0;
  for (; m->letter < letter; m->letter++) m->byte += width_at(m->text + m->byte);
  return m->byte;
}

int matches_next(SplitMatches *m, Error *error) {
  while (m->from < m->count || (m->from == m->count && m->last != m->count)) {
    int found = pcre2_match(m->step->regex, (PCRE2_SPTR)m->letters, m->count, m->from, 0, m->scratch->match,
                            m->scratch->context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      PCRE2_UCHAR reason[160];
      pcre2_get_error_message(found, reason, sizeof reason);
      return error_set(error, PLAIT_BAD_INPUT, "the tokenizer's regular expression gave up on a text: %s",
                       (char *)reason);
    }
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(m->scratch->match);
    size_t start = place[0], end = place[1];
    if (start == end && end == m->last) {
      m->from++;
      continue;
    }
    m->from = m->last = end;
    m->start = byte_of(m, start);
    m->end = byte_of(m, end);
    return 1;
  }
  return 0;
}

static int split_by_regex(const SplitRun *run, SplitPieces *pieces, const char *text, size_t bytes) {
  SplitMatches m;
  size_t done = 0;
  int code = PLAIT_OK;
  matches_begin(&m, &run->steps[pieces->step], run->scratch, pieces->step, text, bytes);
  while ((code = matches_next(&m, run->error)) > 0) {
    code = add_piece(pieces, done, m.start, 0);
    if (code >= 0) code = add_piece(pieces, m.start, m.end, 1);
    if (code < 0) return code;
    done = m.end;
  }
  return code < 0 ? code : add_piece(pieces, done, bytes, 0);
}

static int split_by_string(const SplitRun *run, SplitPieces *pieces, const char *text, size_t bytes) {
  const SplitStep *step = &run->steps[pieces->step];
  size_t done = 0, n = (size_t)step->string_bytes;
  for (const char *p; n && (p = memmem(text + done, bytes - done, step->string, n));) {
    size_t start = (size_t)(p - text);
    int code = add_piece(pieces, done, start, 0);
    if (code >= 0) code = add_piece(pieces, start, start + n, 1);
    if (code < 0) return code;
    done = start + n;
  }
  return add_piece(pieces, done, bytes, 0);
}

// Spaces become the step's character, which is also put in front where the scheme asks for it.
static void replace_spaces(const SplitStep *step, ByteVector *out, const char *text, size_t bytes, int flags) {
  size_t n = (size_t)step->string_bytes;
  int begins = text[0] == ' ' || (bytes >= n && !memcmp(text, step->string, n));
  out->count = 0;
  if (!begins && !(flags & SPLIT_CONTINUES) &&
      (step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && (flags & SPLIT_AT_START))))
    bytes_append(out, step->string, n);
  for (size_t i = 0; i < bytes; i++) {
    if (text[i] == ' ') bytes_append(out, step->string, n);
    else vec_push(out, text[i]);
  }
}

static int run_step(const SplitRun *run, int number, const char *text, size_t bytes, int flags) {
  if (!bytes) return PLAIT_OK;
  if (number == run->count) {
    run->sink->word(run->sink->argument, text, bytes);
    return PLAIT_OK;
  }
  const SplitStep *step = &run->steps[number];
  ByteVector *buffer = &run->scratch->buffer[number];
  if (step->kind == SPLIT_METASPACE) {
    replace_spaces(step, buffer, text, bytes, flags);
    text = buffer->data;
    bytes = (size_t)buffer->count;
  } else if (step->prefix_space && text[0] != ' ' && !(flags & SPLIT_CONTINUES)) {
    buffer->count = 0;
    vec_push(buffer, ' ');
    bytes_append(buffer, text, bytes);
    text = buffer->data;
    bytes = (size_t)buffer->count;
  }
  SplitPieces pieces = {.run = run, .step = number, .flags = flags, .text = text};
  int code;
  if (step->kind == SPLIT_REGEX) code = split_by_regex(run, &pieces, text, bytes);
  else if (step->kind == SPLIT_NOTHING || !step->string_bytes || (step->kind == SPLIT_METASPACE && !step->split))
    return run_step(run, number + 1, text, bytes, flags);
  else code = split_by_string(run, &pieces, text, bytes);
  if (code >= 0 && pieces.waits) code = send_piece(&pieces, pieces.start, pieces.end);
  return code;
}

int split_text(const SplitStep *steps, int count, SplitScratch *scratch, const char *text, size_t bytes, int flags,
               const SplitSink *sink, Error *error) {
  SplitRun run = {steps, count, scratch, sink, error};
  return run_step(&run, 0, text, bytes, flags);
}

int utf8_space(const char *text, size_t bytes) {
  uint32_t c;
  int n = utf8_get(text, bytes, &c);
  if (!n) return 0;
  return c == ' ' || (c >= 9 && c <= 13) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
                 c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000
             ? n
             : 0;
}

int utf8_space_before(const char *text, size_t bytes) {
  for (size_t n = 1; n <= 3 && n <= bytes; n++)
    if ((text[bytes - n] & 0xC0) != 0x80) return utf8_space(text + bytes - n, n) == (int)n ? (int)n : 0;
  return 0;
}

static int is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static int is_cut(const char *text, size_t bytes, size_t i, int cuts) {
  if (text[i] == ' ') return (cuts & CUT_SPACES) && is_letter(text[i - 1]) && is_letter(text[i + 1]);
  if (text[i - 1] != '\n' || !(cuts & CUT_LINES) || i < 2 || text[i] == '/') return 0;
  uint32_t code;
  char before = text[i - 2];
  if (!utf8_get(text + i, bytes - i, &code) || utf8_space(text + i, bytes - i)) return 0;
  if ((before & 0x80) == 0) return before > ' ' && before != 0x7F;
  for (size_t n = 2; n <= 4 && n < i; n++)
    if ((text[i - 1 - n] & 0xC0) != 0x80)
      return utf8_get(text + i - 1 - n, n, &code) == (int)n && !utf8_space(text + i - 1 - n, n);
  return 0;
}

size_t split_cut(const char *text, size_t bytes, size_t from, int cuts) {
  if (cuts)
    for (size_t i = from ? from : 1; i + 1 < bytes; i++)
      if ((text[i] == ' ' || text[i - 1] == '\n') && is_cut(text, bytes, i, cuts)) return i;
  return bytes;
}
