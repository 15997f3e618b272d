// Texts that know where their bytes come from, and what values look like as texts.
#include "chat/jinja_value.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void add_part(JinjaPartVector *parts, size_t end, int origin) {
  if (parts->count && parts->data[parts->count - 1].origin == origin) parts->data[parts->count - 1].end = end;
  else vec_push(parts, (JinjaPart){end, origin});
}

void jinja_put(Jinja *j, JinjaText *t, const char *text, size_t bytes, int origin) {
  if (!bytes || !jinja_step(j, bytes)) return;
  if ((size_t)t->bytes.count + bytes > j->limits.output) {
    jinja_fail(j, "a text becomes longer than %zu MiB", j->limits.output >> 20);
    return;
  }
  bytes_append(&t->bytes, text, bytes);
  add_part(&t->parts, (size_t)t->bytes.count, origin);
}

// The part that a byte lies in.
static int part_at(const JinjaString *s, size_t at) {
  int low = 0, high = s->part_count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (s->parts[middle].end > at) high = middle;
    else low = middle + 1;
  }
  return low;
}

int jinja_origin(const JinjaString *s, size_t at) {
  if (!s->part_count || at >= s->bytes) return s->origin;
  return s->parts[part_at(s, at)].origin;
}

void jinja_put_part(Jinja *j, JinjaText *t, const JinjaString *s, size_t from, size_t to) {
  if (!s->part_count) {
    jinja_put(j, t, s->text + from, to - from, s->origin);
    return;
  }
  for (int i = part_at(s, from); from < to && !j->code; i++) {
    size_t end = s->parts[i].end < to ? s->parts[i].end : to;
    jinja_put(j, t, s->text + from, end - from, s->parts[i].origin);
    from = end;
  }
}

void jinja_put_string(Jinja *j, JinjaText *t, const JinjaString *s) { jinja_put_part(j, t, s, 0, s->bytes); }

void jinja_put_word(Jinja *j, JinjaText *t, const char *word) { jinja_put(j, t, word, strlen(word), JINJA_TEMPLATE); }

JinjaValue jinja_text_end(Jinja *j, JinjaText *t) {
  size_t bytes = (size_t)t->bytes.count;
  char *copy = jinja_alloc(j, bytes + 1, 1);
  if (bytes) memcpy(copy, t->bytes.data, bytes);
  JinjaString *s = jinja_alloc(j, 1, sizeof *s);
  *s = (JinjaString){.text = copy, .bytes = bytes, .origin = t->parts.count ? t->parts.data[0].origin : JINJA_TEMPLATE};
  if (t->parts.count > 1) {
    JinjaPart *parts = jinja_alloc(j, (size_t)t->parts.count, sizeof *parts);
    memcpy(parts, t->parts.data, sizeof *parts * (size_t)t->parts.count);
    s->parts = parts;
    s->part_count = t->parts.count;
  }
  vec_free(&t->bytes);
  vec_free(&t->parts);
  return (JinjaValue){.kind = JINJA_STRING, .string = s};
}

JinjaValue jinja_part(Jinja *j, const JinjaString *s, size_t from, size_t to) {
  if (to > s->bytes) to = s->bytes;
  if (from >= to) return jinja_string(j, "", 0, JINJA_TEMPLATE);
  int first = s->part_count ? part_at(s, from) : 0, last = s->part_count ? part_at(s, to - 1) : 0;
  JinjaString *part = jinja_alloc(j, 1, sizeof *part);
  *part = (JinjaString){.text = s->text + from, .bytes = to - from, .origin = jinja_origin(s, from), .safe = s->safe};
  if (last > first) {
    JinjaPart *parts = jinja_alloc(j, (size_t)(last - first + 1), sizeof *parts);
    for (int i = first; i <= last; i++)
      parts[i - first] = (JinjaPart){(s->parts[i].end < to ? s->parts[i].end : to) - from, s->parts[i].origin};
    part->parts = parts;
    part->part_count = last - first + 1;
  }
  return (JinjaValue){.kind = JINJA_STRING, .string = part};
}

// ---- characters

int64_t jinja_chars(const JinjaString *s) {
  int64_t n = 0;
  for (size_t i = 0; i < s->bytes; i++) n += ((unsigned char)s->text[i] & 0xC0) != 0x80;
  return n;
}

size_t jinja_char_at(const JinjaString *s, int64_t index) {
  size_t at = 0;
  for (; at < s->bytes; at++)
    if (((unsigned char)s->text[at] & 0xC0) != 0x80 && index-- == 0) break;
  return at;
}

static bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static uint32_t code_at(const unsigned char *s, size_t bytes, size_t *n) {
  *n = 1;
  if (s[0] < 0x80) return s[0];
  if (s[0] < 0xE0 && bytes > 1) return *n = 2, (uint32_t)(s[0] & 31) << 6 | (s[1] & 63);
  if (s[0] < 0xF0 && bytes > 2) return *n = 3, (uint32_t)(s[0] & 15) << 12 | (uint32_t)(s[1] & 63) << 6 | (s[2] & 63);
  if (bytes > 3)
    return *n = 4, (uint32_t)(s[0] & 7) << 18 | (uint32_t)(s[1] & 63) << 12 | (uint32_t)(s[2] & 63) << 6 | (s[3] & 63);
  return 0xFFFD;
}

size_t jinja_space(const char *text, size_t bytes) {
  size_t n;
  if (!bytes) return 0;
  return is_space(code_at((const unsigned char *)text, bytes, &n)) ? n : 0;
}

size_t jinja_space_before(const char *text, size_t bytes) {
  size_t n = 1, of;
  while (n < bytes && n < 4 && ((unsigned char)text[bytes - n] & 0xC0) == 0x80) n++;
  if (!bytes) return 0;
  return is_space(code_at((const unsigned char *)text + bytes - n, n, &of)) && of == n ? n : 0;
}

// ---- values as texts

char *jinja_real_text(double f, char text[JINJA_REAL_TEXT]) {
  if (isnan(f)) return strcpy(text, "nan");
  if (isinf(f)) return strcpy(text, f < 0 ? "-inf" : "inf");
  char digits[32];
  int exponent, n = 0;
  for (int precision = 0; precision < 18; precision++) {
    snprintf(digits, sizeof digits, "%.*e", precision, f);
    if (strtod(digits, NULL) == f) break;
  }
  char *e = strchr(digits, 'e'), *out = text, *end = text + JINJA_REAL_TEXT;
  exponent = atoi(e + 1);
  if (digits[0] == '-') *out++ = '-';
  char plain[24];
  for (char *c = digits; c < e; c++)
    if (*c >= '0' && *c <= '9') plain[n++] = *c;
  plain[n] = 0;
  if (exponent < -4 || exponent >= 16) {
    out += snprintf(out, (size_t)(end - out), n > 1 ? "%c.%s" : "%c%s", plain[0], plain + 1);
    snprintf(out, (size_t)(end - out), "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
  } else if (exponent < 0) snprintf(out, (size_t)(end - out), "0.%.*s%s", -exponent - 1, "0000", plain);
  else if (n <= exponent + 1)
    snprintf(out, (size_t)(end - out), "%s%.*s.0", plain, exponent + 1 - n, "0000000000000000");
  else snprintf(out, (size_t)(end - out), "%.*s.%s", exponent + 1, plain, plain + exponent + 1);
  return text;
}

static bool is_printable(uint32_t c) { // as Python's str.isprintable, for what texts have
  if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD || c == 0x1680) return false;
  if ((c >= 0x2000 && c <= 0x200F) || (c >= 0x2028 && c <= 0x202F) || (c >= 0x205F && c <= 0x206F)) return false;
  return c != 0x3000 && c != 0xFEFF && !(c >= 0xE000 && c <= 0xF8FF) && !(c >= 0xFFF0 && c <= 0xFFFB) &&
         !(c >= 0xE0000 && c <= 0xE0FFF) && c < 0xF0000 && c != 0x61C && c != 0x180E && (c & 0xFFFE) != 0xFFFE;
}

static void put_quoted(Jinja *j, JinjaText *t, const JinjaString *s) {
  bool single = memchr(s->text, '\'', s->bytes) && !memchr(s->text, '"', s->bytes);
  const char *quote = single ? "\"" : "'";
  jinja_put_word(j, t, quote);
  size_t n, kept = 0;
  for (size_t i = 0; i < s->bytes && !j->code; i += n) {
    uint32_t c = code_at((const unsigned char *)s->text + i, s->bytes - i, &n);
    char escape[12];
    if (c == '\\' || c == (uint32_t)*quote) snprintf(escape, sizeof escape, "\\%c", (int)c);
    else if (c == '\n' || c == '\r' || c == '\t') snprintf(escape, sizeof escape, "\\%c", "tn..r"[c - 9]);
    else if (is_printable(c)) continue;
    else snprintf(escape, sizeof escape, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    jinja_put_part(j, t, s, kept, i);
    jinja_put(j, t, escape, strlen(escape), jinja_origin(s, i));
    kept = i + n;
  }
  jinja_put_part(j, t, s, kept, s->bytes);
  jinja_put_word(j, t, quote);
}

static void put_list(Jinja *j, JinjaText *t, JinjaValue v) {
  jinja_put_word(j, t, v.kind == JINJA_LIST ? "[" : "(");
  for (int i = 0; i < v.list->count && !j->code; i++) {
    if (i) jinja_put_word(j, t, ", ");
    jinja_put_repr(j, t, v.list->items[i]);
  }
  jinja_put_word(j, t, v.kind == JINJA_LIST ? "]" : v.list->count == 1 ? ",)" : ")");
}

static void put_dict(Jinja *j, JinjaText *t, const JinjaDict *d) {
  jinja_put_word(j, t, "{");
  for (int i = 0; i < d->count && !j->code; i++) {
    if (i) jinja_put_word(j, t, ", ");
    jinja_put_repr(j, t, d->pairs[i].key);
    jinja_put_word(j, t, ": ");
    jinja_put_repr(j, t, d->pairs[i].value);
  }
  jinja_put_word(j, t, "}");
}

void jinja_put_repr(Jinja *j, JinjaText *t, JinjaValue v) {
  if (v.kind == JINJA_STRING) {
    put_quoted(j, t, v.string);
    return;
  }
  if (!jinja_is_list(v) && v.kind != JINJA_DICT) {
    if (v.kind == JINJA_UNDEFINED) jinja_put_word(j, t, "Undefined");
    else jinja_put_value(j, t, v);
    return;
  }
  if (jinja_enter(j)) {
    if (v.kind == JINJA_DICT) put_dict(j, t, v.dict);
    else put_list(j, t, v);
  }
  jinja_leave(j);
}

void jinja_put_value(Jinja *j, JinjaText *t, JinjaValue v) {
  char text[JINJA_REAL_TEXT];
  switch (v.kind) {
  case JINJA_ABSENT:
  case JINJA_UNDEFINED: return;
  case JINJA_NONE: jinja_put_word(j, t, "None"); return;
  case JINJA_BOOLEAN: jinja_put_word(j, t, v.boolean ? "True" : "False"); return;
  case JINJA_INTEGER:
    snprintf(text, sizeof text, "%lld", (long long)v.integer);
    jinja_put_word(j, t, text);
    return;
  case JINJA_REAL: jinja_put_word(j, t, jinja_real_text(v.real, text)); return;
  case JINJA_STRING: jinja_put_string(j, t, v.string); return;
  case JINJA_LIST:
  case JINJA_TUPLE:
  case JINJA_DICT: jinja_put_repr(j, t, v); return;
  default: jinja_fail(j, "a %s is put out as a text", jinja_type(v));
  }
}

JinjaValue jinja_str(Jinja *j, JinjaValue v) {
  if (v.kind == JINJA_STRING) return v;
  JinjaText t = {0};
  jinja_put_value(j, &t, v);
  return jinja_text_end(j, &t);
}

JinjaValue jinja_safe(Jinja *j, JinjaValue v) {
  JinjaString *s = jinja_alloc(j, 1, sizeof *s);
  *s = *jinja_str(j, v).string;
  s->safe = true;
  return (JinjaValue){.kind = JINJA_STRING, .string = s};
}
