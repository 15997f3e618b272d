// Methods of texts, and formats.
#include "chat/jinja_value.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <wctype.h>

static bool in_set(const JinjaString *set, const char *c, size_t n) {
  for (size_t i = 0; i + n <= set->bytes; i++)
    if (((unsigned char)set->text[i] & 0xC0) != 0x80 && !memcmp(set->text + i, c, n)) return true;
  return false;
}

static size_t bytes_of_char(const char *s, size_t bytes) {
  size_t n = 1;
  while (n < bytes && ((unsigned char)s[n] & 0xC0) == 0x80) n++;
  return n;
}

JinjaValue jinja_strip(Jinja *j, const JinjaString *s, JinjaValue characters, bool left, bool right) {
  const JinjaString *set = characters.kind == JINJA_STRING ? characters.string : NULL;
  size_t from = 0, to = s->bytes, n;
  if (!set && characters.kind != JINJA_ABSENT && characters.kind != JINJA_NONE)
    return jinja_fail(j, "characters to strip are a %s, not a text", jinja_type(characters));
  jinja_step(j, s->bytes);
  while (left && from < to) {
    n = set ? bytes_of_char(s->text + from, to - from) : jinja_space(s->text + from, to - from);
    if (!n || (set && !in_set(set, s->text + from, n))) break;
    from += n;
  }
  while (right && from < to) {
    if (set)
      for (n = 1; n < to - from && ((unsigned char)s->text[to - n] & 0xC0) == 0x80;) n++;
    else n = jinja_space_before(s->text + from, to - from);
    if (!n || (set && !in_set(set, s->text + to - n, n))) break;
    to -= n;
  }
  return from || to < s->bytes ? jinja_part(j, s, from, to) : (JinjaValue){.kind = JINJA_STRING, .string = s};
}

static const char *find(const JinjaString *s, size_t from, const JinjaString *what) {
  return from > s->bytes ? NULL : memmem(s->text + from, s->bytes - from, what->text, what->bytes);
}

JinjaValue jinja_replace(Jinja *j, JinjaValue s, JinjaValue from, JinjaValue to, JinjaValue count) {
  int64_t most = -1;
  if (count.kind != JINJA_ABSENT && count.kind != JINJA_NONE && !jinja_whole(count, &most))
    return jinja_fail(j, "the number of replacements is a %s", jinja_type(count));
  JinjaText t = {0};
  const JinjaString *of = s.string, *what = from.string;
  size_t at = 0;
  for (; most && !j->code; most--) {
    const char *p = find(of, at, what);
    if (!p) break;
    size_t start = (size_t)(p - of->text);
    jinja_put_part(j, &t, of, at, start);
    jinja_put_string(j, &t, to.string);
    at = start + what->bytes;
    if (what->bytes) continue;
    if (at >= of->bytes) break;
    size_t n = bytes_of_char(of->text + at, of->bytes - at);
    jinja_put_part(j, &t, of, at, at + n);
    at += n;
  }
  jinja_put_part(j, &t, of, at, of->bytes);
  return jinja_text_end(j, &t);
}

// ---- upper and lower case

static wint_t map_case(Jinja *j, wint_t c, bool upper) {
  if (c < 0x80) return (wint_t)(upper ? toupper((int)c) : tolower((int)c));
  if (!j->locale) j->locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", 0);
  if (!j->locale) return c;
  return upper ? towupper_l(c, j->locale) : towlower_l(c, j->locale);
}

static bool is_letter(Jinja *j, wint_t c) {
  if (c < 0x80) return isalpha((int)c);
  return map_case(j, c, true) != c || map_case(j, c, false) != c || (j->locale && iswalpha_l(c, j->locale));
}

static size_t put_char(char out[4], wint_t c) {
  if (c < 0x80) return out[0] = (char)c, 1;
  if (c < 0x800) return out[0] = (char)(0xC0 | c >> 6), out[1] = (char)(0x80 | (c & 63)), 2;
  if (c < 0x10000)
    return out[0] = (char)(0xE0 | c >> 12), out[1] = (char)(0x80 | (c >> 6 & 63)), out[2] = (char)(0x80 | (c & 63)), 3;
  out[0] = (char)(0xF0 | c >> 18), out[1] = (char)(0x80 | (c >> 12 & 63));
  out[2] = (char)(0x80 | (c >> 6 & 63)), out[3] = (char)(0x80 | (c & 63));
  return 4;
}

static wint_t get_char(const char *s, size_t n) {
  const unsigned char *u = (const unsigned char *)s;
  if (n == 1) return u[0];
  wint_t c = n == 2 ? u[0] & 31U : n == 3 ? u[0] & 15U : u[0] & 7U;
  for (size_t i = 1; i < n; i++) c = c << 6 | (u[i] & 63U);
  return c;
}

// `filter`: title splits words as jinja2's filter does; otherwise as Python's str.title does.
static JinjaValue change_case(Jinja *j, const JinjaString *s, const char *which, bool filter) {
  bool upper = !strcmp(which, "upper"), title = !strcmp(which, "title"), first = title || !strcmp(which, "capitalize");
  JinjaText t = {0};
  size_t n;
  for (size_t i = 0; i < s->bytes && !j->code; i += n) {
    n = bytes_of_char(s->text + i, s->bytes - i);
    wint_t c = get_char(s->text + i, n);
    char out[4];
    bool up = upper || first;
    if (up && c == 0xDF) jinja_put(j, &t, upper ? "SS" : "Ss", 2, jinja_origin(s, i));
    else jinja_put(j, &t, out, put_char(out, map_case(j, c, up)), jinja_origin(s, i));
    bool space = jinja_space(s->text + i, n);
    if (title && filter) first = space || strchr("-({[<", s->text[i]);
    else first = title && !is_letter(j, c);
  }
  return jinja_text_end(j, &t);
}

JinjaValue jinja_case(Jinja *j, const JinjaString *s, const char *which) { return change_case(j, s, which, true); }

// ---- parts

static void push(Jinja *j, JinjaValue list, JinjaValue v) {
  if (jinja_step(j, 0)) jinja_push(j, list.list, v);
}

static JinjaValue split_spaces(Jinja *j, const JinjaString *s, int64_t most) {
  JinjaValue r = jinja_list(j, 0, JINJA_LIST);
  size_t at = 0, n;
  while (!j->code) {
    while (at < s->bytes && (n = jinja_space(s->text + at, s->bytes - at))) at += n;
    if (at >= s->bytes) break;
    size_t end = at;
    if (most-- == 0) {
      for (end = s->bytes; (n = jinja_space_before(s->text + at, end - at));) end -= n;
      push(j, r, jinja_part(j, s, at, end));
      break;
    }
    while (end < s->bytes && !jinja_space(s->text + end, s->bytes - end)) end++;
    push(j, r, jinja_part(j, s, at, end));
    at = end;
  }
  return r;
}

static JinjaValue split(Jinja *j, const JinjaString *s, JinjaValue by, JinjaValue count) {
  int64_t most = -1;
  if (count.kind != JINJA_ABSENT && !jinja_whole(count, &most))
    return jinja_fail(j, "the number of splits is a %s", jinja_type(count));
  if (by.kind == JINJA_ABSENT || by.kind == JINJA_NONE) return split_spaces(j, s, most);
  if (by.kind != JINJA_STRING || !by.string->bytes)
    return jinja_fail(j, "a text is split by a %s; it must be a text that is not empty", jinja_type(by));
  JinjaValue r = jinja_list(j, 0, JINJA_LIST);
  size_t at = 0;
  const char *p;
  while (!j->code && most-- != 0 && (p = find(s, at, by.string))) {
    push(j, r, jinja_part(j, s, at, (size_t)(p - s->text)));
    at = (size_t)(p - s->text) + by.string->bytes;
  }
  push(j, r, jinja_part(j, s, at, s->bytes));
  return r;
}

static const char *find_last(const JinjaString *s, size_t end, const JinjaString *what) {
  for (size_t i = what->bytes > end ? 0 : end - what->bytes + 1; i-- > 0;)
    if (!memcmp(s->text + i, what->text, what->bytes)) return s->text + i;
  return NULL;
}

static JinjaValue rsplit(Jinja *j, const JinjaString *s, JinjaValue by, JinjaValue count) {
  int64_t most = -1;
  if (count.kind != JINJA_ABSENT && !jinja_whole(count, &most))
    return jinja_fail(j, "the number of splits is a %s", jinja_type(count));
  if (most < 0) return split(j, s, by, (JinjaValue){0});
  if (by.kind != JINJA_STRING || !by.string->bytes) return jinja_fail(j, "rsplit without a text is not built");
  JinjaValue back = jinja_list(j, 0, JINJA_LIST);
  size_t end = s->bytes;
  const char *p;
  while (!j->code && most-- > 0 && (p = find_last(s, end, by.string))) {
    push(j, back, jinja_part(j, s, (size_t)(p - s->text) + by.string->bytes, end));
    end = (size_t)(p - s->text);
  }
  push(j, back, jinja_part(j, s, 0, end));
  JinjaValue r = jinja_list(j, back.list->count, JINJA_LIST);
  for (int i = 0; i < r.list->count; i++) r.list->items[i] = back.list->items[r.list->count - 1 - i];
  return r;
}

static size_t line_break(const char *s, size_t bytes) { // as str.splitlines has them
  unsigned char c = (unsigned char)s[0];
  if (c == '\r') return bytes > 1 && s[1] == '\n' ? 2 : 1;
  if ((c >= 10 && c <= 12) || (c >= 0x1C && c <= 0x1E)) return 1;
  if (bytes > 1 && c == 0xC2 && (unsigned char)s[1] == 0x85) return 2;
  return bytes > 2 && c == 0xE2 && (unsigned char)s[1] == 0x80 && ((unsigned char)s[2] & 0xFE) == 0xA8 ? 3 : 0;
}

static JinjaValue split_lines(Jinja *j, const JinjaString *s, bool keeps) {
  JinjaValue r = jinja_list(j, 0, JINJA_LIST);
  size_t at = 0, n;
  for (size_t i = 0; i < s->bytes && !j->code;) {
    if (!(n = line_break(s->text + i, s->bytes - i))) {
      i++;
      continue;
    }
    push(j, r, jinja_part(j, s, at, keeps ? i + n : i));
    at = i += n;
  }
  if (at < s->bytes) push(j, r, jinja_part(j, s, at, s->bytes));
  return r;
}

static bool has_end(Jinja *j, const JinjaString *s, JinjaValue what, bool start) {
  if (what.kind == JINJA_TUPLE) {
    for (int i = 0; i < what.list->count && !j->code; i++)
      if (what.list->items[i].kind != JINJA_TUPLE && has_end(j, s, what.list->items[i], start)) return true;
    return false;
  }
  if (what.kind != JINJA_STRING)
    return jinja_fail(j, "startswith and endswith take a text, not a %s", jinja_type(what)), false;
  size_t n = what.string->bytes;
  return n <= s->bytes && !memcmp(start ? s->text : s->text + s->bytes - n, what.string->text, n);
}

static JinjaValue join(Jinja *j, const JinjaString *s, JinjaValue items) {
  const JinjaList *l = jinja_iterate(j, items);
  JinjaText t = {0};
  for (int i = 0; i < l->count && !j->code; i++) {
    if (i) jinja_put_string(j, &t, s);
    if (l->items[i].kind == JINJA_STRING) jinja_put_string(j, &t, l->items[i].string);
    else jinja_fail(j, "join is given a %s beside texts", jinja_type(l->items[i]));
  }
  return jinja_text_end(j, &t);
}

static bool all_are(Jinja *j, const JinjaString *s, const char *name) {
  bool cased = false;
  size_t n;
  for (size_t i = 0; i < s->bytes; i += n) {
    n = bytes_of_char(s->text + i, s->bytes - i);
    wint_t c = get_char(s->text + i, n);
    bool digit = c >= '0' && c <= '9', letter = is_letter(j, c);
    bool upper = map_case(j, c, false) != c, lower = map_case(j, c, true) != c;
    cased |= upper || lower;
    if (!strcmp(name, "isdigit") ? !digit : !strcmp(name, "isalpha") ? !letter : !strcmp(name, "isalnum")
        ? !letter && !digit : !strcmp(name, "isspace") ? !jinja_space(s->text + i, n)
        : !strcmp(name, "isupper") ? lower && !upper : upper) return false;
  }
  return s->bytes && (cased || (strcmp(name, "isupper") && strcmp(name, "islower")));
}

// ---- formats

// Writes a value by a format such as %-5.2f: flags, width and precision are those of C.
static void put_formatted(Jinja *j, JinjaText *t, const char *flags, int width, int precision, char letter,
                          JinjaValue v) {
  char spec[32], text[512];
  double real;
  int64_t whole;
  if (strchr("diouxX", letter) && (jinja_whole(v, &whole) || v.kind == JINJA_REAL)) {
    if (v.kind == JINJA_REAL) whole = v.real > -9e18 && v.real < 9e18 ? (int64_t)v.real : 0;
    snprintf(spec, sizeof spec, "%%%s*ll%c", flags, letter == 'u' ? 'd' : letter);
    snprintf(text, sizeof text, spec, width, (long long)whole);
    jinja_put_word(j, t, text);
  } else if (strchr("feEgGF", letter) && jinja_number(v, &real)) {
    snprintf(spec, sizeof spec, "%%%s*.*%c", flags, letter);
    snprintf(text, sizeof text, spec, width, precision < 0 ? 6 : precision, real);
    jinja_put_word(j, t, text);
  } else if (letter == 's' || letter == 'r') {
    JinjaText part = {0};
    if (letter == 's') jinja_put_value(j, &part, v);
    else jinja_put_repr(j, &part, v);
    JinjaValue s = jinja_text_end(j, &part);
    if (precision >= 0) s = jinja_part(j, s.string, 0, jinja_char_at(s.string, precision));
    bool left = strchr(flags, '-');
    int64_t pad = width - jinja_chars(s.string);
    if (left) jinja_put_string(j, t, s.string);
    for (; pad > 0; pad--) jinja_put_word(j, t, " ");
    if (!left) jinja_put_string(j, t, s.string);
  } else jinja_fail(j, "a format with %%%c is given a %s", letter, jinja_type(v));
}

static int read_width(const JinjaString *s, size_t *i) { // -1: none
  int width = -1;
  for (; *i < s->bytes && isdigit((unsigned char)s->text[*i]); ++*i)
    width = (width < 0 ? 0 : width > 99 ? 99 : width) * 10 + s->text[*i] - '0';
  return width > 200 ? 200 : width;
}

JinjaValue jinja_format(Jinja *j, const JinjaString *s, const JinjaValue *items, int count) {
  JinjaText t = {0};
  int used = 0;
  for (size_t i = 0, n; i < s->bytes && !j->code; i += n) {
    const char *p = memchr(s->text + i, '%', s->bytes - i);
    n = p ? (size_t)(p - s->text) - i : s->bytes - i;
    jinja_put_part(j, &t, s, i, i + n);
    if (!p) break;
    size_t at = i + n + 1;
    char flags[6] = "";
    for (size_t f = 0; at < s->bytes && s->text[at] && strchr("-+ #0", s->text[at]) && f < 5;)
      flags[f++] = s->text[at++], flags[f] = 0;
    int width = read_width(s, &at), precision = -1;
    if (at < s->bytes && s->text[at] == '.') at++, precision = read_width(s, &at), precision += precision < 0;
    char letter = at < s->bytes ? s->text[at] : 0;
    if (letter == '%') jinja_put_word(j, &t, "%");
    else if (!letter || !strchr("srdiuxXofFeEgG", letter)) jinja_fail(j, "a format with this after %% is not built");
    else if (used >= count) jinja_fail(j, "a format has more places than values");
    else put_formatted(j, &t, flags, width < 0 ? 0 : width, precision, letter, items[used++]);
    n = at + 1 - i;
  }
  if (used < count && !j->code) jinja_fail(j, "a format has fewer places than values");
  return jinja_text_end(j, &t);
}

// The value of a place {}, {0} or {name} of str.format.
static JinjaValue place(Jinja *j, const char *name, size_t bytes, const JinjaArguments *a, int *next) {
  int64_t index = *next;
  if (bytes && !isdigit((unsigned char)name[0])) {
    for (int i = 0; i < a->named_count; i++)
      if (strlen(a->names[i]) == bytes && !memcmp(a->names[i], name, bytes)) return a->named[i];
    return jinja_fail(j, "the place {%.*s} of a format is not given, or not built", (int)(bytes < 40 ? bytes : 40),
                      name);
  }
  if (bytes) index = strtol(name, NULL, 10);
  else ++*next;
  return index >= 0 && index < a->count ? a->items[index] : jinja_fail(j, "a format has more places than values");
}

static void put_place(Jinja *j, JinjaText *t, JinjaValue v, const JinjaString *s, size_t at, size_t end) {
  char flags[3] = "";
  if (at >= end) {
    jinja_put_value(j, t, v);
    return;
  }
  at++; // the colon
  bool left = at < end && s->text[at] == '<', right = at < end && s->text[at] == '>';
  at += left || right;
  if (at < end && s->text[at] == '0') strcat(flags, "0"), at++;
  if (left || (v.kind == JINJA_STRING && !right)) strcpy(flags, "-");
  int width = read_width(s, &at), precision = -1;
  if (at < end && s->text[at] == '.') at++, precision = read_width(s, &at);
  char letter = at < end                                 ? s->text[at++]
                : v.kind == JINJA_INTEGER                ? 'd'
                : v.kind == JINJA_REAL && precision >= 0 ? 'g'
                                                         : 's';
  if (at != end || !strchr("sdxXofeg", letter)) jinja_fail(j, "this format of a place is not built");
  else put_formatted(j, t, flags, width < 0 ? 0 : width, precision, letter, v);
}

static JinjaValue format_places(Jinja *j, const JinjaString *s, const JinjaArguments *a) {
  JinjaText t = {0};
  int next = 0;
  for (size_t i = 0; i < s->bytes && !j->code; i++) {
    char c = s->text[i];
    if (c != '{' && c != '}') jinja_put_part(j, &t, s, i, i + 1);
    else if (i + 1 < s->bytes && s->text[i + 1] == c) jinja_put_part(j, &t, s, i, i + 1), i++;
    else {
      const char *close = c == '{' ? memchr(s->text + i, '}', s->bytes - i) : NULL;
      if (!close) return jinja_fail(j, "a format has a single %c", c), jinja_text_end(j, &t);
      size_t end = (size_t)(close - s->text), name = i + 1;
      while (name < end && s->text[name] != ':') name++;
      JinjaValue v = place(j, s->text + i + 1, name - i - 1, a, &next);
      if (!j->code) put_place(j, &t, v, s, name, end);
      i = end;
    }
  }
  return jinja_text_end(j, &t);
}

// ---- dispatch

static const char *const methods[] = {
    "strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "startswith", "endswith", "replace", "upper", "lower",
    "title", "capitalize", "find", "rfind", "index", "count", "join", "format", "isdigit", "isnumeric", "isdecimal",
    "isalpha", "isalnum", "isspace", "isupper", "islower", "removeprefix", "removesuffix", "zfill", "partition",
    "rpartition"};

bool jinja_has_string_method(const char *name) {
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
    if (!strcmp(name, methods[i])) return true;
  return false;
}

static JinjaValue search(Jinja *j, const JinjaString *s, const char *name, JinjaValue what) {
  if (what.kind != JINJA_STRING) return jinja_fail(j, "%s takes a text, not a %s", name, jinja_type(what));
  jinja_step(j, s->bytes);
  if (!strcmp(name, "count")) {
    int64_t n = 0;
    const char *p;
    if (!what.string->bytes) return jinja_integer(jinja_chars(s) + 1);
    for (size_t at = 0; (p = find(s, at, what.string)); n++) at = (size_t)(p - s->text) + what.string->bytes;
    return jinja_integer(n);
  }
  const char *p = !strcmp(name, "rfind") ? find_last(s, s->bytes, what.string) : find(s, 0, what.string);
  if (!p) return strcmp(name, "index") ? jinja_integer(-1) : jinja_fail(j, "index finds nothing");
  JinjaString before = {.text = s->text, .bytes = (size_t)(p - s->text)};
  return jinja_integer(jinja_chars(&before));
}

static JinjaValue remove_end(Jinja *j, const JinjaString *s, JinjaValue what, bool start) {
  bool has = has_end(j, s, what, start);
  if (!has || j->code) return (JinjaValue){.kind = JINJA_STRING, .string = s};
  return start ? jinja_part(j, s, what.string->bytes, s->bytes) : jinja_part(j, s, 0, s->bytes - what.string->bytes);
}

static JinjaValue partition(Jinja *j, const JinjaString *s, JinjaValue by, bool last) {
  if (by.kind != JINJA_STRING || !by.string->bytes) return jinja_fail(j, "partition takes a text that is not empty");
  const char *p = last ? find_last(s, s->bytes, by.string) : find(s, 0, by.string);
  size_t n = by.string->bytes, at = p ? (size_t)(p - s->text) : last ? 0 : s->bytes, to = p ? at + n : at;
  JinjaValue r = jinja_list(j, 3, JINJA_TUPLE);
  r.list->items[0] = jinja_part(j, s, 0, at);
  r.list->items[1] = jinja_part(j, s, at, to);
  r.list->items[2] = jinja_part(j, s, to, s->bytes);
  return r;
}

static JinjaValue zfill(Jinja *j, const JinjaString *s, JinjaValue width) {
  int64_t n, chars = jinja_chars(s);
  if (!jinja_whole(width, &n)) return jinja_fail(j, "zfill takes a whole number");
  JinjaText t = {0};
  size_t sign = s->bytes && strchr("+-", s->text[0]) != NULL;
  jinja_put_part(j, &t, s, 0, sign);
  for (; chars < n && !j->code; chars++) jinja_put_word(j, &t, "0");
  jinja_put_part(j, &t, s, sign, s->bytes);
  return jinja_text_end(j, &t);
}

JinjaValue jinja_string_method(Jinja *j, const JinjaString *s, const char *name, const JinjaArguments *arguments) {
  static const char *const none[] = {""}, *const splits[] = {"sep", "maxsplit"},
                           *const three[] = {"old", "new", "count"};
  JinjaValue a[3], self = {.kind = JINJA_STRING, .string = s};
  bool is_strip = strstr(name, "strip"), is_split = !strcmp(name, "split") || !strcmp(name, "rsplit");
  if (!strcmp(name, "format")) return format_places(j, s, arguments);
  if (is_split) {
    if (!jinja_arguments(j, name, arguments, splits, a, 2, 0)) return self;
    return name[0] == 's' ? split(j, s, a[0], a[1]) : rsplit(j, s, a[0], a[1]);
  }
  if (!strcmp(name, "replace")) {
    if (!jinja_arguments(j, name, arguments, three, a, 3, 2)) return self;
    if (a[0].kind != JINJA_STRING || a[1].kind != JINJA_STRING) return jinja_fail(j, "replace takes two texts");
    return jinja_replace(j, self, a[0], a[1], a[2]);
  }
  bool takes = is_strip || !strcmp(name, "splitlines"), zero = !strncmp(name, "is", 2) || !strcmp(name, "upper") ||
               !strcmp(name, "lower") || !strcmp(name, "title") || !strcmp(name, "capitalize");
  if (!jinja_arguments(j, name, arguments, none, a, !zero, !zero && !takes)) return self;
  if (is_strip) return jinja_strip(j, s, a[0], name[0] != 'r', name[0] != 'l');
  if (!strcmp(name, "splitlines")) return split_lines(j, s, a[0].kind != JINJA_ABSENT && jinja_truth(a[0]));
  if (!strcmp(name, "startswith")) return jinja_bool(has_end(j, s, a[0], true));
  if (!strcmp(name, "endswith")) return jinja_bool(has_end(j, s, a[0], false));
  if (!strncmp(name, "remove", 6)) return remove_end(j, s, a[0], !strcmp(name, "removeprefix"));
  if (!strcmp(name, "join")) return join(j, s, a[0]);
  if (strstr(name, "partition")) return partition(j, s, a[0], name[0] == 'r');
  if (!strcmp(name, "zfill")) return zfill(j, s, a[0]);
  if (!strcmp(name, "isnumeric") || !strcmp(name, "isdecimal")) name = "isdigit";
  if (!strncmp(name, "is", 2)) return jinja_bool(all_are(j, s, name));
  if (zero) return change_case(j, s, name, false);
  return search(j, s, name, a[0]);
}
