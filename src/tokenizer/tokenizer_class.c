// Escapes, properties and classes of Oniguruma's Ruby syntax as sets of characters.
#include "tokenizer/tokenizer_class.h"
#include "tokenizer/bpe.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int pattern_refuse(const PatternText *text, const char *format, ...) {
  char reason[300];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  return error_set(text->error, PLAIT_BAD_INPUT, "%s", reason);
}

int pattern_character(PatternText *text, uint32_t *code) {
  int n = utf8_get(text->at, (size_t)(text->end - text->at), code);
  if (!n) return pattern_refuse(text, text->at < text->end ? "it is not UTF-8" : "it ends too early");
  text->at += n;
  return PLAIT_OK;
}

// ---- escapes -------------------------------------------------------------------------------------------------------

static int hex_digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

static uint32_t take_digits(PatternText *text, int base, int most, int *count) {
  uint32_t n = 0;
  *count = 0;
  for (; *count < most && text->at < text->end; text->at++, ++*count) {
    int digit = hex_digit(*text->at);
    if (digit < 0 || digit >= base) break;
    n = n * (uint32_t)base + (uint32_t)digit;
  }
  return n;
}

// \x7F, \x{1F600}, \u00E9
static int number_escape(PatternText *text, char letter, uint32_t *code) {
  int count, braces = letter == 'x' && text->at < text->end && *text->at == '{';
  text->at += braces;
  *code = take_digits(text, 16, letter == 'u' ? 4 : braces ? 8 : 2, &count);
  if (braces && (text->at == text->end || *text->at++ != '}')) return pattern_refuse(text, "a \\x{ has no end");
  if (!count || (letter == 'u' && count < 4)) return pattern_refuse(text, "a \\%c has too few digits", letter);
  if (letter == 'x' && !braces && *code > 127)
    return pattern_refuse(text, "it uses \\x%02X, a single byte outside ASCII, which is not supported; \\x{…} is",
                          (unsigned)*code);
  if (*code >= UNICODE_END || (*code >= 0xD800 && *code < 0xE000))
    return pattern_refuse(text, "\\%c%X is not a character", letter, (unsigned)*code);
  return ESCAPE_CODE;
}

static int join_named(const PatternText *text, const char *name, const char *shown, int invert, UnicodeSet *set) {
  UnicodeSet named = {0};
  if (!unicode_set_named(&named, name)) return pattern_refuse(text, "the property %s is not supported", shown);
  if (invert) unicode_set_invert(&named);
  unicode_set_join(set, &named);
  vec_free(&named);
  return ESCAPE_SET;
}

// {Name}, {^Name}: without regard to case, spaces, - and _.
static int property(PatternText *text, int invert, UnicodeSet *set) {
  char name[64], shown[80];
  size_t n = 0;
  const char *end =
      text->at < text->end && *text->at == '{' ? memchr(text->at, '}', (size_t)(text->end - text->at)) : NULL;
  if (!end) return pattern_refuse(text, "a \\p without a name in braces is not supported");
  const char *p = text->at + 1;
  snprintf(shown, sizeof shown, "\\p%.*s", end - text->at > 60 ? 60 : (int)(end + 1 - text->at), text->at);
  if (*p == '^') p++, invert = !invert;
  for (; p < end && n + 1 < sizeof name; p++)
    if (*p != ' ' && *p != '-' && *p != '_') name[n++] = (char)(*p >= 'A' && *p <= 'Z' ? *p - 'A' + 'a' : *p);
  name[n] = 0;
  text->at = end + 1;
  if (!n || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") != n)
    return pattern_refuse(text, "the property %s is not supported", shown);
  return join_named(text, name, shown, invert, set);
}

static int simple_escape(char c) {
  static const char letters[] = "tnrfvae", codes[] = "\t\n\r\f\v\a\x1b";
  const char *found = c ? strchr(letters, c) : NULL;
  return found ? codes[found - letters] : -1;
}

int pattern_escape(PatternText *text, int in_class, uint32_t *code, UnicodeSet *set) {
  int count;
  char c;
  if (text->at == text->end) return pattern_refuse(text, "it ends with a backslash");
  c = *text->at;
  if (c & 0x80) return pattern_character(text, code) < 0 ? PLAIT_BAD_INPUT : ESCAPE_CODE;
  text->at++;
  if (simple_escape(c) >= 0) {
    *code = (uint32_t)simple_escape(c);
    return ESCAPE_CODE;
  }
  if (c == 'x' || c == 'u') return number_escape(text, c, code);
  if (c == 'p' || c == 'P') return property(text, c == 'P', set);
  if (c == '0') {
    *code = take_digits(text, 8, 2, &count);
    return ESCAPE_CODE;
  }
  if (strchr("wdshWDSH", c)) {
    char alone[] = {'\\', (char)(c | 0x20), 0}, inside[] = {'[', '\\', (char)(c | 0x20), ']', 0};
    return join_named(text, in_class ? inside : alone, alone, c < 'a', set);
  }
  if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
    return pattern_refuse(text, "it uses \\%c, which is not supported", c);
  *code = (uint8_t)c;
  return ESCAPE_CODE;
}

// ---- cases ---------------------------------------------------------------------------------------------------------

// Letters outside ASCII that have cases, roughly: no set may hold some of them only.
static void cased(UnicodeSet *set) {
  static const char *const names[] = {"lu", "ll", "lt", "nl"};
  UnicodeSet beyond = {0};
  for (int i = 0; i < 4; i++) unicode_set_named(set, names[i]);
  unicode_set_add(set, 0x24B6, 0x24EA);
  unicode_set_add(set, 0x345, 0x346);
  unicode_set_tidy(set);
  unicode_set_add(&beyond, 0x80, UNICODE_END);
  unicode_set_meet(set, &beyond);
  vec_free(&beyond);
}

int pattern_fold(const PatternText *text, UnicodeSet *set) {
  UnicodeSet others = {0}, some = {0};
  cased(&others);
  unicode_set_join(&some, &others);
  unicode_set_meet(&some, set);
  int whole = some.count == others.count &&
              (!some.count || !memcmp(some.data, others.data, (size_t)some.count * sizeof *some.data));
  int partly = some.count && !whole;
  vec_free(&some);
  vec_free(&others);
  if (partly) return pattern_refuse(text, "it uses (?i) with letters outside ASCII, which is not supported");
  for (uint32_t c = 'a'; c <= 'z'; c++) {
    if (!unicode_set_has(set, c) && !unicode_set_has(set, c - 32)) continue;
    unicode_set_add(set, c, c + 1);
    unicode_set_add(set, c - 32, c - 31);
    if (c == 'k') unicode_set_add(set, 0x212A, 0x212B); // the Kelvin sign
    if (c == 's') unicode_set_add(set, 0x17F, 0x180);   // the long s
    unicode_set_tidy(set);
  }
  return PLAIT_OK;
}

// ---- brackets ------------------------------------------------------------------------------------------------------

// [:name:] or [:^name:], at its "[:"; 0: it is not one.
static int posix_bracket(PatternText *text, UnicodeSet *set) {
  const char *p = text->at + 2, *end = p < text->end ? memmem(p, (size_t)(text->end - p), ":]", 2) : NULL;
  char name[24] = "[", shown[40];
  int invert = p < text->end && *p == '^';
  p += invert;
  if (!end || end - p > 12 || end <= p || strspn(p, "abcdefghijklmnopqrstuvwxyz") < (size_t)(end - p)) return 0;
  snprintf(name, sizeof name, "[%.*s]", (int)(end - p), p);
  snprintf(shown, sizeof shown, "[:%.*s:]", (int)(end - p), p);
  text->at = end + 2;
  return join_named(text, name, shown, invert, set) < 0 ? PLAIT_BAD_INPUT : 1;
}

static int begins(const PatternText *text, const char *what) {
  size_t n = strlen(what);
  return (size_t)(text->end - text->at) >= n && !memcmp(text->at, what, n);
}

static int class_inside(PatternText *text, int fold, int depth, UnicodeSet *set);

// One member: a character (ESCAPE_CODE), or a set that is joined.
static int class_member(PatternText *text, int depth, uint32_t *code, UnicodeSet *set) {
  if (begins(text, "[:")) {
    int found = posix_bracket(text, set);
    if (found) return found < 0 ? found : ESCAPE_SET;
  }
  if (*text->at == '[') {
    text->at++;
    int result = class_inside(text, 0, depth + 1, set);
    return result < 0 ? result : ESCAPE_SET;
  }
  if (*text->at == '\\') {
    if (begins(text, "\\b")) {
      text->at += 2;
      *code = 8;
      return ESCAPE_CODE;
    }
    text->at++;
    return pattern_escape(text, 1, code, set);
  }
  return pattern_character(text, code) < 0 ? PLAIT_BAD_INPUT : ESCAPE_CODE;
}

// A character, or from it to another one.
static int class_range(PatternText *text, int depth, uint32_t first, UnicodeSet *set) {
  uint32_t last = first;
  if (text->at + 1 < text->end && *text->at == '-' && text->at[1] != ']' && !begins(text, "-&&")) {
    text->at++;
    int kind = class_member(text, depth, &last, set);
    if (kind < 0) return kind;
    if (kind == ESCAPE_SET) return pattern_refuse(text, "a class has a range that ends with another class");
    if (last < first) return pattern_refuse(text, "a class has a range whose end is before its start");
  }
  unicode_set_add(set, first, last + 1);
  unicode_set_tidy(set);
  return PLAIT_OK;
}

static int class_members(PatternText *text, int depth, UnicodeSet *set) {
  UnicodeSet left = {0};
  int code = PLAIT_OK, meets = 0;
  const char *first = text->at;
  for (; code >= 0; ) {
    uint32_t c;
    if (text->at == text->end) {
      code = pattern_refuse(text, "a class has no ]");
      break;
    }
    if (*text->at == ']' && text->at > first) break;
    if (begins(text, "&&")) {
      text->at += 2;
      if (meets) unicode_set_meet(&left, set);
      else unicode_set_join(&left, set);
      set->count = 0;
      meets = 1;
      continue;
    }
    code = class_member(text, depth, &c, set);
    if (code == ESCAPE_CODE) code = class_range(text, depth, c, set);
  }
  if (code >= 0 && meets) unicode_set_meet(set, &left);
  vec_free(&left);
  text->at += code >= 0;
  return code < 0 ? code : PLAIT_OK;
}

static int class_inside(PatternText *text, int fold, int depth, UnicodeSet *set) {
  UnicodeSet members = {0};
  int invert = text->at < text->end && *text->at == '^';
  if (depth > 8) return pattern_refuse(text, "classes nest more than 8 deep");
  text->at += invert;
  int code = class_members(text, depth, &members);
  if (code >= 0 && fold) code = pattern_fold(text, &members);
  if (code >= 0 && invert) unicode_set_invert(&members);
  if (code >= 0) unicode_set_join(set, &members);
  vec_free(&members);
  return code;
}

int pattern_class(PatternText *text, int fold, UnicodeSet *set) { return class_inside(text, fold, 0, set); }
