// Pre-tokenization steps, applied depth first: every piece goes through all later steps before the next one.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer_split.h"
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

// Oniguruma's \s is Unicode's White_Space; PCRE2's has one character more (U+180E). Spells it out.
static void spell_out_spaces(const char *pattern, size_t bytes, ByteVector *out) {
  static const char spaces[] = "\\p{Z}\\x{9}-\\x{d}\\x{85}";
  int in_class = 0;
  for (size_t i = 0; i < bytes; i++) {
    char c = pattern[i], next = i + 1 < bytes ? pattern[i + 1] : 0;
    if (c == '\\' && (next == 's' || (next == 'S' && !in_class))) {
      if (!in_class) bytes_append(out, next == 's' ? "[" : "[^", next == 's' ? 1 : 2);
      bytes_append(out, spaces, sizeof spaces - 1);
      if (!in_class) bytes_append(out, "]", 1);
      i++;
    } else if (c == '\\' && i + 1 < bytes) {
      bytes_append(out, pattern + i++, 2);
    } else {
      if (c == '[') in_class = 1;
      if (c == ']') in_class = 0;
      vec_push(out, c);
    }
  }
}

int split_compile(SplitStep *step, const char *pattern, size_t bytes, Error *error) {
  int number;
  PCRE2_SIZE offset;
  ByteVector spelled = {0};
  if (bytes > 64 << 10) return error_set(error, PLAIT_BAD_INPUT, "the expression is longer than 65536 bytes");
  spell_out_spaces(pattern, bytes, &spelled);
  vec_reserve(&spelled, 1); // PCRE2 wants a pointer even for an empty expression
  pcre2_code *code = pcre2_compile((PCRE2_SPTR)spelled.data, (PCRE2_SIZE)spelled.count, PCRE2_UTF | PCRE2_UCP, &number,
                                   &offset, NULL);
  vec_free(&spelled);
  if (!code) {
    PCRE2_UCHAR reason[160];
    pcre2_get_error_message(number, reason, sizeof reason);
    return error_set(error, PLAIT_BAD_INPUT, "%s at byte %zu of the expression", (char *)reason, (size_t)offset);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); // where there is no JIT, matching interprets
  step->kind = SPLIT_REGEX;
  step->regex = code;
  for (size_t i = 0; i < sizeof known_expressions / sizeof *known_expressions; i++)
    if (strlen(known_expressions[i]) == bytes && !memcmp(known_expressions[i], pattern, bytes)) step->known = 1;
  return PLAIT_OK;
}

void split_free(SplitStep *step) {
  pcre2_code_free(step->regex);
  free(step->string);
  *step = (SplitStep){0};
}

int split_matches(const SplitStep *step, const char *text, size_t bytes) {
  pcre2_match_data *match = pcre2_match_data_create(1, NULL);
  CHECK(match, "out of memory");
  int found = pcre2_match(step->regex, (PCRE2_SPTR)text, bytes, 0, PCRE2_NO_UTF_CHECK, match, NULL);
  pcre2_match_data_free(match);
  return found >= 0;
}

void split_scratch_free(SplitScratch *scratch) {
  pcre2_match_data_free(scratch->match);
  pcre2_match_context_free(scratch->context);
  pcre2_jit_stack_free(scratch->stack);
  for (int i = 0; i < 16; i++) vec_free(&scratch->buffer[i]);
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

// Pieces of one text, joined as the step's behavior says before they go on.
typedef struct SplitPieces {
  const SplitRun *run;
  int step, flags;
  const char *text;
  size_t start, end; // the piece that waits, when start < end
  int waits_match;   // it is a match (PREVIOUS: the last part of it is)
} SplitPieces;

static int send_piece(SplitPieces *p, size_t start, size_t end) {
  return run_step(p->run, p->step + 1, p->text + start, end - start, start ? 0 : p->flags);
}

static int add_piece(SplitPieces *p, size_t start, size_t end, int match) {
  const SplitStep *step = &p->run->steps[p->step];
  if (start >= end) return PLAIT_OK;
  match ^= step->invert;
  if (step->behavior == SPLIT_ISOLATED) return send_piece(p, start, end);
  if (step->behavior == SPLIT_REMOVED) return match ? PLAIT_OK : send_piece(p, start, end);
  int waiting = p->start < p->end, joins = 0;
  if (step->behavior == SPLIT_CONTIGUOUS) joins = match == p->waits_match;
  if (step->behavior == SPLIT_PREVIOUS) joins = match && !p->waits_match;
  if (step->behavior == SPLIT_NEXT) joins = !match && p->waits_match;
  if (waiting && joins) {
    p->end = end;
    p->waits_match = match;
    return PLAIT_OK;
  }
  int code = waiting ? send_piece(p, p->start, p->end) : PLAIT_OK;
  p->start = start;
  p->end = end;
  p->waits_match = match;
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

static int split_by_regex(const SplitRun *run, SplitPieces *pieces, const char *text, size_t bytes) {
  SplitScratch *s = run->scratch;
  size_t done = 0, from = 0;
  prepare_matching(s);
  while (from < bytes) {
    int found = pcre2_match(run->steps[pieces->step].regex, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, s->match,
                            s->context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      PCRE2_UCHAR reason[160];
      pcre2_get_error_message(found, reason, sizeof reason);
      return error_set(run->error, PLAIT_BAD_INPUT, "the tokenizer's regular expression gave up on a text: %s",
                       (char *)reason);
    }
    size_t start = pcre2_get_ovector_pointer(s->match)[0], end = pcre2_get_ovector_pointer(s->match)[1];
    if (end <= start || start < done) { // an empty match: go on behind the next character
      uint32_t code;
      from = (end > from ? end : from);
      if (from >= bytes) break;
      from += (size_t)utf8_get(text + from, bytes - from, &code);
      continue;
    }
    int code = add_piece(pieces, done, start, 0);
    if (code >= 0) code = add_piece(pieces, start, end, 1);
    if (code < 0) return code;
    done = from = end;
  }
  return add_piece(pieces, done, bytes, 0);
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
  if (code >= 0 && pieces.start < pieces.end) code = send_piece(&pieces, pieces.start, pieces.end);
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
