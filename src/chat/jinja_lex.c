// Templates to tokens: texts between tags, white space around tags (trim_blocks and lstrip_blocks are on), and what is
// within them.
#include "base/fault.h"
#include "chat/jinja_node.h"
#include <ctype.h>
#include <stdlib.h>

typedef struct Lexer {
  JinjaTemplate *t;
  const char *s;
  size_t bytes, at;
  int line;
  bool line_starts; // what was matched last has ended with a line's end
  char open[256];   // brackets that are open in the tag
  int depth;
  JinjaTokenVector *tokens;
  Error *error;
} Lexer;

static int fail(Lexer *l, const char *what) {
  return error_set(l->error, PLAIT_BAD_INPUT, "%s: line %d: %s", l->t->name, l->line, what);
}

static void push(Lexer *l, JinjaTokenKind kind, const char *text, size_t bytes) {
  vec_push(l->tokens, (JinjaToken){kind, l->line, text, bytes});
}

static bool sees(const Lexer *l, size_t at, const char *word) {
  size_t n = strlen(word);
  return at + n <= l->bytes && !memcmp(l->s + at, word, n);
}

static void advance(Lexer *l, size_t to) {
  for (; l->at < to; l->at++) l->line += l->s[l->at] == '\n';
  l->line_starts = l->at && l->s[l->at - 1] == '\n';
}

static size_t pass_space(const Lexer *l, size_t at) {
  for (size_t n; at < l->bytes && (n = jinja_space(l->s + at, l->bytes - at));) at += n;
  return at;
}

// After the end of a tag whose mark begins at `mark` (before it - or +): white space that goes with it.
static size_t after_tag(const Lexer *l, size_t end, char sign, bool trims) {
  if (sign == '-') return pass_space(l, end);
  return trims && sign != '+' && end < l->bytes && l->s[end] == '\n' ? end + 1 : end;
}

// The text from l->at to the tag at `tag`, without the white space that the tag takes from its end.
static void push_data(Lexer *l, size_t tag, char sign, bool strips) {
  size_t end = tag, line = tag;
  if (sign == '-') {
    for (size_t n; end > l->at && (n = jinja_space_before(l->s + l->at, end - l->at));) end -= n;
  } else if (strips && sign != '+') {
    while (line > l->at && l->s[line - 1] != '\n') line--;
    if ((line > l->at || l->line_starts) && pass_space(l, line) >= tag) end = line;
  }
  if (end > l->at) push(l, TOKEN_DATA, l->s + l->at, end - l->at);
}

static char sign_at(const Lexer *l, size_t at) { return at < l->bytes && strchr("-+", l->s[at]) ? l->s[at] : 0; }

static int lex_comment(Lexer *l, size_t tag) {
  for (size_t end = tag + 2; end + 1 < l->bytes; end++)
    if (sees(l, end, "#}")) {
      char sign = end > tag + 2 ? sign_at(l, end - 1) : 0;
      advance(l, after_tag(l, end + 2, sign, true));
      return PLAIT_OK;
    }
  return fail(l, "a comment {# has no #}");
}

// {% raw %} … {% endraw %}: 1 and all of it is read, 0: it is another tag.
static int lex_raw(Lexer *l, size_t tag) {
  size_t at = tag + 2 + (sign_at(l, tag + 2) != 0);
  at = pass_space(l, at);
  if (!sees(l, at, "raw")) return 0;
  at = pass_space(l, at + 3);
  char sign = sign_at(l, at);
  if (!sees(l, at + (sign != 0), "%}")) return 0;
  advance(l, after_tag(l, at + (sign != 0) + 2, sign, false));
  for (size_t end = l->at; end + 1 < l->bytes; end++) {
    if (!sees(l, end, "{%")) continue;
    char left = sign_at(l, end + 2);
    size_t name = pass_space(l, end + 2 + (left != 0));
    if (!sees(l, name, "endraw")) continue;
    name = pass_space(l, name + 6);
    char right = sign_at(l, name);
    if (!sees(l, name + (right != 0), "%}")) continue;
    push_data(l, end, left, true);
    advance(l, after_tag(l, name + (right != 0) + 2, right, true));
    return 1;
  }
  return fail(l, "{% raw %} has no {% endraw %}");
}

// ---- within tags

static void put_code(ByteVector *v, uint32_t code) {
  char c[4];
  if (code < 0x80) bytes_append(v, (c[0] = (char)code, c), 1);
  else if (code < 0x800) {
    c[0] = (char)(0xC0 | code >> 6), c[1] = (char)(0x80 | (code & 63));
    bytes_append(v, c, 2);
  } else if (code < 0x10000) {
    c[0] = (char)(0xE0 | code >> 12), c[1] = (char)(0x80 | (code >> 6 & 63)), c[2] = (char)(0x80 | (code & 63));
    bytes_append(v, code >= 0xD800 && code < 0xE000 ? "\xEF\xBF\xBD" : c, 3);
  } else {
    c[0] = (char)(0xF0 | code >> 18), c[1] = (char)(0x80 | (code >> 12 & 63)), c[2] = (char)(0x80 | (code >> 6 & 63));
    c[3] = (char)(0x80 | (code & 63));
    bytes_append(v, code > 0x10FFFF ? "\xEF\xBF\xBD" : c, code > 0x10FFFF ? 3 : 4);
  }
}

static size_t number_in(const char *s, size_t bytes, int base, size_t most, uint32_t *code) {
  size_t n = 0;
  for (*code = 0; n < most && n < bytes && isxdigit((unsigned char)s[n]); n++) {
    int digit = isdigit((unsigned char)s[n]) ? s[n] - '0' : tolower((unsigned char)s[n]) - 'a' + 10;
    if (digit >= base) break;
    *code = *code * (uint32_t)base + (uint32_t)digit;
  }
  return n;
}

// An escape s[0] == '\\' of a string of Python; returns its bytes, 0: it is none.
static size_t put_escape(ByteVector *v, const char *s, size_t bytes) {
  static const char letters[] = "\\'\"abfnrtv", means[] = "\\'\"\a\b\f\n\r\t\v";
  uint32_t code;
  const char *p = s[1] ? strchr(letters, s[1]) : NULL;
  size_t digits = s[1] == 'x' ? 2 : s[1] == 'u' ? 4 : s[1] == 'U' ? 8 : 0;
  if (p) return bytes_append(v, &means[p - letters], 1), 2;
  if (s[1] == '\n') return 2;
  if (digits) {
    if (number_in(s + 2, bytes - 2, 16, digits, &code) != digits) return 0;
    put_code(v, code);
    return 2 + digits;
  }
  if ((digits = number_in(s + 1, bytes - 1, 8, 3, &code))) return put_code(v, code), 1 + digits;
  return bytes_append(v, s, 2), 2;
}

static int lex_string(Lexer *l) {
  char quote = l->s[l->at];
  size_t end = l->at + 1, n;
  ByteVector v = {0};
  while (end < l->bytes && l->s[end] != quote) {
    if (l->s[end] != '\\') bytes_append(&v, l->s + end++, 1);
    else if (end + 1 < l->bytes && (n = put_escape(&v, l->s + end, l->bytes - end))) end += n;
    else break;
  }
  bool closed = end < l->bytes && l->s[end] == quote;
  char *copy = closed ? arena_alloc(&l->t->arena, (size_t)v.count + 1) : NULL;
  if (closed && v.count) memcpy(copy, v.data, (size_t)v.count);
  if (closed) push(l, TOKEN_STRING, copy, (size_t)v.count);
  vec_free(&v);
  if (!closed) return fail(l, "a string has no end, or an escape that is none");
  advance(l, end + 1);
  return PLAIT_OK;
}

static size_t digits_at(const Lexer *l, size_t at) { // with _ between digits
  size_t end = at;
  while (end < l->bytes && (isdigit((unsigned char)l->s[end]) ||
                            (l->s[end] == '_' && end > at && end + 1 < l->bytes &&
                             isdigit((unsigned char)l->s[end + 1]) && l->s[end - 1] != '_')))
    end++;
  return end;
}

static void lex_number(Lexer *l) {
  size_t end = digits_at(l, l->at), more;
  bool real = false, after_dot = l->tokens->count && l->tokens->data[l->tokens->count - 1].bytes == 1 &&
                                 l->tokens->data[l->tokens->count - 1].text[0] == '.';
  if (l->s[l->at] == '0' && l->at + 2 < l->bytes && strchr("xXoObB", l->s[l->at + 1]) &&
      isxdigit((unsigned char)l->s[l->at + 2])) {
    end = l->at + 2;
    while (end < l->bytes && (isxdigit((unsigned char)l->s[end]) || l->s[end] == '_')) end++;
  } else if (!after_dot) {
    if (end < l->bytes && l->s[end] == '.' && (more = digits_at(l, end + 1)) > end + 1) end = more, real = true;
    if (end < l->bytes && (l->s[end] == 'e' || l->s[end] == 'E')) {
      size_t exponent = end + 1 + (end + 1 < l->bytes && strchr("+-", l->s[end + 1]));
      if ((more = digits_at(l, exponent)) > exponent) end = more, real = true;
    }
  }
  push(l, real ? TOKEN_REAL : TOKEN_INTEGER, l->s + l->at, end - l->at);
  advance(l, end);
}

static bool is_name(unsigned char c, bool first) {
  return c == '_' || isalpha(c) || c >= 0x80 || (!first && isdigit(c));
}

static int lex_operator(Lexer *l) {
  static const char *const twos[] = {"==", "!=", "<=", ">=", "//", "**"};
  size_t n = 1;
  char c = l->s[l->at];
  for (size_t i = 0; i < sizeof twos / sizeof *twos; i++)
    if (sees(l, l->at, twos[i])) n = 2;
  if (n == 1 && !strchr("+-/*%~[](){}<>=.:|,;", c)) {
    char what[60];
    snprintf(what, sizeof what, "\"%c\" does not belong into an expression", isprint((unsigned char)c) ? c : '?');
    return fail(l, what);
  }
  if (strchr("([{", c) && l->depth == (int)sizeof l->open) return fail(l, "brackets are nested too deep");
  if (strchr("([{", c)) l->open[l->depth++] = c == '(' ? ')' : c == '[' ? ']' : '}';
  if (strchr(")]}", c) && (!l->depth || l->open[--l->depth] != c)) return fail(l, "a bracket closes what is not open");
  push(l, TOKEN_OPERATOR, l->s + l->at, n);
  advance(l, l->at + n);
  return PLAIT_OK;
}

// The inside of a tag that ends with `close`.
static int lex_tag(Lexer *l, const char *close, JinjaTokenKind end_kind, bool trims) {
  int code = PLAIT_OK;
  l->depth = 0;
  while (!code) {
    advance(l, pass_space(l, l->at));
    if (l->at >= l->bytes) return fail(l, end_kind == TOKEN_BLOCK_END ? "a tag {% has no %}" : "{{ has no }}");
    char sign = sign_at(l, l->at), c = l->s[l->at];
    if (sign == '+' && !trims) sign = 0;
    if (!l->depth && sees(l, l->at + (sign != 0), close)) {
      size_t end = l->at + (sign != 0) + 2;
      push(l, end_kind, l->s + l->at, 2);
      advance(l, after_tag(l, end, sign, trims));
      return PLAIT_OK;
    }
    if (c == '"' || c == '\'') code = lex_string(l);
    else if (isdigit((unsigned char)c)) lex_number(l);
    else if (is_name((unsigned char)c, true)) {
      size_t end = l->at;
      while (end < l->bytes && is_name((unsigned char)l->s[end], false)) end++;
      push(l, TOKEN_NAME, l->s + l->at, end - l->at);
      advance(l, end);
    } else code = lex_operator(l);
  }
  return code;
}

// Everything up to the tag at `tag`, and the tag.
static int lex_to(Lexer *l, size_t tag) {
  char kind = l->s[tag + 1], sign = sign_at(l, tag + 2);
  push_data(l, tag, sign, FAULT(tags_keep_their_indent, kind != '{', false));
  advance(l, tag);
  if (kind == '#') return lex_comment(l, tag);
  if (kind == '%') {
    int raw = lex_raw(l, tag);
    if (raw) return raw < 0 ? raw : PLAIT_OK;
  }
  push(l, kind == '{' ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN, l->s + tag, 2);
  advance(l, tag + 2 + (sign != 0));
  return kind == '{' ? lex_tag(l, "}}", TOKEN_VARIABLE_END, false) : lex_tag(l, "%}", TOKEN_BLOCK_END, true);
}

int jinja_lex(JinjaTemplate *t, JinjaTokenVector *tokens, Error *error) {
  Lexer l = {.t = t, .s = t->source, .bytes = strlen(t->source), .line = 1, .line_starts = true, .tokens = tokens,
             .error = error};
  int code = PLAIT_OK;
  for (size_t i = 0; i < l.bytes && !code;) {
    if (l.s[i] == '{' && i + 1 < l.bytes && strchr("{%#", l.s[i + 1])) code = lex_to(&l, i), i = l.at;
    else i++;
  }
  if (!code && l.at < l.bytes) push(&l, TOKEN_DATA, l.s + l.at, l.bytes - l.at);
  advance(&l, l.bytes);
  push(&l, TOKEN_END, "", 0);
  return code;
}
