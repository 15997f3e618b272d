// Translates a regular expression: classes become sets of letters, what Oniguruma means otherwise is spelled out.
#include "tokenizer/tokenizer_pattern.h"
#include "tokenizer/tokenizer_class.h"
#include <stdio.h>
#include <string.h>

enum { DEPTH = 100, CODE_SETS = 64, LETTERS = 128 };

// A part of the translation: a set, or text that PCRE2 takes as it is.
typedef struct Part { int set; char text[64]; } Part; // set -1: text

typedef struct Translation {
  PatternText text;
  Vec(UnicodeSet) sets;
  Vec(Part) parts;
  int depth;
  uint32_t before; // the ASCII letter with (?i) that was just read, in small; 0: none
} Translation;

typedef struct Options { int fold, dot_all, spaced; } Options; // i, m and x of Ruby

static int parse_branches(Translation *t, Options options);

static void put(Translation *t, const char *text) {
  Part part = {.set = -1};
  snprintf(part.text, sizeof part.text, "%s", text);
  vec_push(&t->parts, part);
}

static void put_set(Translation *t, UnicodeSet *set) { // takes the set
  for (int i = 0; i < t->sets.count; i++) {
    UnicodeSet *other = &t->sets.data[i];
    if (other->count != set->count ||
        (set->count && memcmp(other->data, set->data, (size_t)set->count * sizeof *set->data)))
      continue;
    vec_push(&t->parts, (Part){.set = i});
    vec_free(set);
    return;
  }
  vec_push(&t->sets, *set);
  vec_push(&t->parts, (Part){.set = t->sets.count - 1});
}

static void put_named(Translation *t, const char *name) {
  UnicodeSet set = {0};
  CHECK(unicode_set_named(&set, name), "a class without a table");
  put_set(t, &set);
}

static int is_next(const Translation *t, const char *what) {
  size_t n = strlen(what);
  return (size_t)(t->text.end - t->text.at) >= n && !memcmp(t->text.at, what, n);
}

static int take_next(Translation *t, const char *what) {
  if (!is_next(t, what)) return 0;
  t->text.at += strlen(what);
  return 1;
}

// ---- one character -------------------------------------------------------------------------------------------------

// Oniguruma lets some pairs of letters fold to one character, as ss to ß.
static int check_pair(Translation *t, uint32_t code) {
  static const char *const pairs[] = {"ss", "st", "ff", "fi", "fl"};
  uint32_t small = code >= 'A' && code <= 'Z' ? code + 32 : code;
  for (int i = 0; i < 5; i++)
    if (t->before == (uint8_t)pairs[i][0] && small == (uint8_t)pairs[i][1])
      return pattern_refuse(
          &t->text, "it uses (?i) with \"%s\", which also means a single character and is not supported", pairs[i]);
  t->before = small;
  return PLAIT_OK;
}

static int put_code(Translation *t, uint32_t code, Options options) {
  UnicodeSet set = {0};
  int result = PLAIT_OK;
  unicode_set_add(&set, code, code + 1);
  if (options.fold) result = pattern_fold(&t->text, &set);
  if (result >= 0 && options.fold) result = check_pair(t, code);
  if (result < 0) vec_free(&set);
  else put_set(t, &set);
  return result;
}

static void put_word_boundary(Translation *t, int inside) {
  static const char *const at[] = {"(?:(?<=", ")(?!", ")|(?<!", ")(?=", "))"};
  static const char *const in[] = {"(?:(?<=", ")(?=", ")|(?<!", ")(?!", "))"};
  const char *const *texts = inside ? in : at;
  for (int i = 0; i < 5; i++) {
    put(t, texts[i]);
    if (i < 4) put_named(t, "\\w");
  }
}

// \R: one line end, taken whole.
static void put_line_end(Translation *t) {
  UnicodeSet ends = {0};
  unicode_set_add(&ends, 10, 14);
  unicode_set_add(&ends, 0x85, 0x86);
  unicode_set_add(&ends, 0x2028, 0x202A);
  put(t, "(?>\\x0d\\x0a|");
  put_set(t, &ends);
  put(t, ")");
}

// After a backslash. 1: it matches no character (an anchor).
static int parse_escape(Translation *t, Options options) {
  UnicodeSet set = {0};
  uint32_t code;
  char name = t->text.at < t->text.end ? *t->text.at : 0;
  const uint32_t before = t->before;
  t->before = 0; // but for an escape that is one character
  if (name == 'b' || name == 'B') return t->text.at++, put_word_boundary(t, name == 'B'), 1;
  if (name == 'A' || name == 'Z' || name == 'z') {
    t->text.at++;
    put(t, name == 'A' ? "\\A" : name == 'Z' ? "\\Z" : "\\z");
    return 1;
  }
  if (name == 'R') return t->text.at++, put_line_end(t), PLAIT_OK;
  if (name >= '1' && name <= '9')
    return pattern_refuse(&t->text, "it refers back to a group with \\%c, which is not supported", name);
  int kind = pattern_escape(&t->text, 0, &code, &set);
  if (kind == ESCAPE_SET && options.fold && (name == 'p' || name == 'P') && pattern_fold(&t->text, &set) < 0)
    kind = PLAIT_BAD_INPUT;
  if (kind == ESCAPE_SET) {
    put_set(t, &set);
    return PLAIT_OK;
  }
  vec_free(&set);
  t->before = before;
  return kind < 0 ? kind : put_code(t, code, options);
}

static int parse_class(Translation *t, Options options) {
  UnicodeSet set = {0};
  int code = pattern_class(&t->text, options.fold, &set);
  if (code < 0) vec_free(&set);
  else put_set(t, &set);
  return code;
}

static void put_any(Translation *t, Options options) {
  UnicodeSet set = {0};
  unicode_set_add(&set, 0, options.dot_all ? UNICODE_END : '\n');
  if (!options.dot_all) unicode_set_add(&set, '\n' + 1, UNICODE_END);
  put_set(t, &set);
}

// ---- groups --------------------------------------------------------------------------------------------------------

static int finish_group(Translation *t, Options options) {
  int code = parse_branches(t, options);
  if (code < 0) return code;
  if (!take_next(t, ")")) return pattern_refuse(&t->text, "a ( has no )");
  put(t, ")");
  return PLAIT_OK;
}

// After "(?", at letters: options for a separate group, or for the rest of the group around them.
static int parse_options(Translation *t, Options options) {
  int on = 1;
  for (; t->text.at < t->text.end; t->text.at++) {
    char c = *t->text.at;
    if (c == '-') on = 0;
    else if (c == 'i') options.fold = on;
    else if (c == 'm') options.dot_all = on;
    else if (c == 'x') options.spaced = on;
    else break;
  }
  put(t, "(?:");
  if (take_next(t, ":")) return finish_group(t, options);
  if (!take_next(t, ")"))
    return pattern_refuse(&t->text, "a group that begins with (? is of a kind that is not supported");
  int code = parse_branches(t, options);
  put(t, ")");
  return code;
}

// After "(". 1: it matches no character (a lookaround).
static int parse_group(Translation *t, Options options) {
  static const char *const looks[] = {"?=", "?!", "?<=", "?<!"}, *const opens[] = {"(?=", "(?!", "(?<=", "(?<!"};
  if (++t->depth > DEPTH) return pattern_refuse(&t->text, "groups nest more than %d deep", DEPTH);
  int zero_width = 0, code;
  for (int i = 0; i < 4 && !zero_width; i++)
    if (take_next(t, looks[i])) put(t, opens[i]), zero_width = 1;
  if (zero_width) code = finish_group(t, options);
  else if (take_next(t, "?:")) put(t, "(?:"), code = finish_group(t, options);
  else if (take_next(t, "?>")) put(t, "(?>"), code = finish_group(t, options);
  else if (is_next(t, "?<") || is_next(t, "?'")) {
    const char *end = memchr(t->text.at, t->text.at[1] == '<' ? '>' : '\'', (size_t)(t->text.end - t->text.at));
    if (t->text.at[1] == '\'') end = memchr(t->text.at + 2, '\'', (size_t)(t->text.end - t->text.at - 2));
    if (!end) return pattern_refuse(&t->text, "the name of a group has no end");
    t->text.at = end + 1;
    put(t, "(?:");
    code = finish_group(t, options);
  } else if (take_next(t, "?")) code = parse_options(t, options);
  else put(t, "(?:"), code = finish_group(t, options);
  t->depth--;
  t->before = 0;
  return code < 0 ? code : zero_width;
}

// ---- repetition ----------------------------------------------------------------------------------------------------

// {n}, {n,}, {,m} or {n,m} at the text: its end, else NULL.
static const char *read_interval(const Translation *t, long *least, long *most) {
  const char *p = t->text.at, *end = t->text.end;
  long n[2] = {-1, -1};
  int which = 0;
  if (p == end || *p != '{') return NULL;
  for (p++; p < end && *p != '}'; p++) {
    if (*p == ',' && !which) which = 1;
    else if (*p >= '0' && *p <= '9') n[which] = (n[which] < 0 ? 0 : n[which]) * 10 + (*p - '0');
    else return NULL;
    if (n[which] > 1 << 20) n[which] = 1 << 20;
  }
  if (p == end || (n[0] < 0 && n[1] < 0)) return NULL;
  *least = n[0] < 0 ? 0 : n[0];
  *most = which ? n[1] : n[0]; // -1: no end
  return p + 1;
}

static void wrap(Translation *t, int start) {
  Part open = {.set = -1, .text = "(?:"};
  vec_push(&t->parts, open);
  memmove(t->parts.data + start + 1, t->parts.data + start,
          (size_t)(t->parts.count - 1 - start) * sizeof *t->parts.data);
  t->parts.data[start] = open;
  put(t, ")");
}

static int put_interval(Translation *t, long least, long most) {
  char text[64];
  int fixed = least == most;
  if (least > 65535 || most > 65535) return pattern_refuse(&t->text, "a repetition is over 65535");
  if (most >= 0 && most < least)
    return pattern_refuse(&t->text, "a repetition {%ld,%ld} has its limits exchanged", least, most);
  if (most < 0) snprintf(text, sizeof text, "{%ld,}", least);
  else snprintf(text, sizeof text, "{%ld,%ld}", least, most);
  put(t, text);
  if (fixed && is_next(t, "?")) return PLAIT_OK; // Ruby: {n}? is an optional {n}
  if (!fixed && take_next(t, "?")) put(t, "?");
  return PLAIT_OK;
}

// Parses the repetitions after one item, from parts[start] on. In Ruby's syntax a + after {…} repeats once more and is
// not possessive.
static int parse_repetitions(Translation *t, int start, int zero_width) {
  for (int count = 0;; count++) {
    long least, most;
    const char *end = read_interval(t, &least, &most);
    char c = t->text.at < t->text.end ? *t->text.at : 0;
    if (!end && c != '*' && c != '+' && c != '?') return PLAIT_OK;
    if (zero_width)
      return pattern_refuse(&t->text, "it repeats what matches no character (an anchor or a lookaround)");
    t->before = 0;
    if (count) wrap(t, start);
    if (end) {
      t->text.at = end;
      int code = put_interval(t, least, most);
      if (code < 0) return code;
      continue;
    }
    char text[3] = {c, 0, 0};
    t->text.at++;
    if (is_next(t, "?") || is_next(t, "+")) text[1] = *t->text.at++;
    put(t, text);
  }
}

// ---- all together --------------------------------------------------------------------------------------------------

static void skip_space(Translation *t) {
  while (t->text.at < t->text.end) {
    char c = *t->text.at;
    if (c == '#')
      while (t->text.at < t->text.end && *t->text.at != '\n') t->text.at++;
    else if (c == ' ' || (c >= 9 && c <= 13)) t->text.at++;
    else return;
  }
}

// 1: it matches no character.
static int parse_item(Translation *t, Options options) {
  uint32_t code;
  char c = *t->text.at;
  if (c == '[') return t->text.at++, t->before = 0, parse_class(t, options);
  if (c == '.') return t->text.at++, t->before = 0, put_any(t, options), PLAIT_OK;
  if (c == '^' || c == '$') return t->text.at++, t->before = 0, put(t, c == '^' ? "^" : "$"), 1;
  if (c == '(') return t->text.at++, t->before = 0, parse_group(t, options);
  if (c == '\\') return t->text.at++, parse_escape(t, options);
  int result = pattern_character(&t->text, &code);
  return result < 0 ? result : put_code(t, code, options);
}

static int parse_branches(Translation *t, Options options) {
  t->before = 0;
  for (;;) {
    long least, most;
    if (options.spaced) skip_space(t);
    if (t->text.at == t->text.end || *t->text.at == ')') return PLAIT_OK;
    if (take_next(t, "|")) {
      put(t, "|");
      t->before = 0;
      continue;
    }
    if (is_next(t, "(?#")) {
      while (t->text.at < t->text.end && *t->text.at != ')') t->text.at++;
      if (!take_next(t, ")")) return pattern_refuse(&t->text, "a comment has no end");
      continue;
    }
    if (strchr("*+?", *t->text.at) || read_interval(t, &least, &most))
      return pattern_refuse(&t->text, "there is nothing that a %c could repeat", *t->text.at);
    int start = t->parts.count, zero_width = parse_item(t, options);
    if (zero_width < 0) return zero_width;
    if (options.spaced) skip_space(t);
    int code = parse_repetitions(t, start, zero_width);
    if (code < 0) return code;
  }
}

// ---- letters -------------------------------------------------------------------------------------------------------

static int compare_codes(const void *left, const void *right) {
  uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
  return a < b ? -1 : a > b;
}

// Gives letters to the kinds of characters outside ASCII; kinds[letter - 128] has bit k if the set `coded[k]` has them.
static int assign_letters(Translation *t, const int *coded, int count, uint64_t *kinds, uint8_t *values) {
  Vec(uint32_t) bounds = {0};
  int letters = 0, code = PLAIT_OK;
  vec_push(&bounds, 0x80);
  vec_push(&bounds, UNICODE_END);
  for (int k = 0; k < count; k++)
    for (int i = 0; i < t->sets.data[coded[k]].count; i++) {
      UnicodeRange r = t->sets.data[coded[k]].data[i];
      if (r.first > 0x80) vec_push(&bounds, r.first);
      if (r.end > 0x80) vec_push(&bounds, r.end);
    }
  qsort(bounds.data, (size_t)bounds.count, sizeof *bounds.data, compare_codes);
  for (uint32_t c = 0; c < 0x80; c++) values[c] = (uint8_t)c;
  for (int i = 0; i + 1 < bounds.count && code >= 0; i++) {
    uint32_t first = bounds.data[i];
    uint64_t kind = 0;
    int letter = 0;
    if (first == bounds.data[i + 1]) continue;
    for (int k = 0; k < count; k++)
      kind |= (uint64_t)(unicode_set_has(&t->sets.data[coded[k]], first) != 0) << k;
    while (letter < letters && kinds[letter] != kind) letter++;
    if (letter == letters && letters == LETTERS)
      code = pattern_refuse(&t->text, "it tells more than %d kinds of characters apart", LETTERS);
    else if (letter == letters) kinds[letters++] = kind;
    memset(values + first, 128 + letter, bounds.data[i + 1] - first);
  }
  vec_free(&bounds);
  return code;
}

static void put_letters(const UnicodeSet *set, int bit, const uint64_t *kinds, ByteVector *out) {
  char text[24];
  int has[257] = {0}, total = 0;
  for (int c = 0; c < 128; c++) has[c] = unicode_set_has(set, (uint32_t)c);
  for (int c = 0; c < 128 && bit >= 0; c++) has[128 + c] = kinds[c] >> bit & 1;
  for (int c = 0; c < 256; c++) total += has[c];
  if (!total) {
    bytes_append(out, "(?!)", 4);
    return;
  }
  if (total > 1) vec_push(out, '[');
  for (int c = 0; c < 256; c++) {
    int first = c;
    if (!has[c]) continue;
    while (has[c + 1]) c++;
    int n = first == c ? snprintf(text, sizeof text, "\\x%02x", first)
                       : snprintf(text, sizeof text, "\\x%02x-\\x%02x", first, c);
    bytes_append(out, text, (size_t)n);
  }
  if (total > 1) vec_push(out, ']');
}

static int finish(Translation *t, ByteVector *out, UnicodeMap *letters) {
  uint64_t kinds[LETTERS] = {0};
  int coded[CODE_SETS], count = 0, *bits = xcalloc((size_t)t->sets.count + 1, sizeof *bits), code = PLAIT_OK;
  for (int i = 0; i < t->sets.count && code >= 0; i++) {
    const UnicodeSet *set = &t->sets.data[i];
    bits[i] = -1;
    if (!set->count || set->data[set->count - 1].end <= 0x80) continue;
    if (count == CODE_SETS) code = pattern_refuse(&t->text, "it has more than %d classes beyond ASCII", CODE_SETS);
    else bits[i] = count, coded[count++] = i;
  }
  if (code >= 0) {
    uint8_t *values = xcalloc(UNICODE_END, 1);
    code = assign_letters(t, coded, count, kinds, values);
    if (code >= 0) unicode_map_build(letters, values);
    free(values);
  }
  for (int i = 0; i < t->parts.count && code >= 0; i++) {
    const Part *part = &t->parts.data[i];
    if (part->set < 0) bytes_append(out, part->text, strlen(part->text));
    else put_letters(&t->sets.data[part->set], bits[part->set], kinds, out);
  }
  free(bits);
  return code;
}

int pattern_translate(const char *pattern, size_t bytes, ByteVector *out, UnicodeMap *letters, Error *error) {
  Translation t = {.text = {pattern, pattern + bytes, error}};
  int code = parse_branches(&t, (Options){0});
  if (code >= 0 && t.text.at < t.text.end) code = pattern_refuse(&t.text, "a ) has no (");
  if (code >= 0) code = finish(&t, out, letters);
  for (int i = 0; i < t.sets.count; i++) vec_free(&t.sets.data[i]);
  vec_free(&t.sets);
  vec_free(&t.parts);
  return code;
}
