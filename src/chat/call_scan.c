// Scanning JSON that is still being written.
#include "chat/call_scan.h"
#include <string.h>

enum { MOST_BEFORE_NAME = 16384 }; // bytes of arguments that come before the name; else it is not a call

typedef struct Scan {
  const char *s;
  size_t bytes, at;
} Scan;

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static bool pass_space(Scan *s) { // false: the end
  while (s->at < s->bytes && is_space(s->s[s->at])) s->at++;
  return s->at < s->bytes;
}

// Passes a string; false: it has no end yet.
static bool pass_string(Scan *s) {
  for (s->at++; s->at < s->bytes; s->at++) {
    if (s->s[s->at] == '\\') s->at++;
    else if (s->s[s->at] == '"') return s->at++, true;
  }
  return false;
}

static bool pass_value(Scan *s) {
  if (s->s[s->at] == '"') return pass_string(s);
  if (s->s[s->at] == '{' || s->s[s->at] == '[') {
    CallValue v = {0};
    s->at += call_value_pass(&v, s->s + s->at, s->bytes - s->at);
    return v.ended;
  }
  while (s->at < s->bytes && !strchr(",}] \n\t\r", s->s[s->at])) s->at++;
  return s->at < s->bytes;
}

static bool is_key(const char *text, size_t bytes, const char *key) {
  return bytes == strlen(key) + 2 && !memcmp(text + 1, key, bytes - 2);
}

static char *name_in(const char *text, size_t bytes, size_t *length) { // "…" decoded; NULL: no name
  json_t *s = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);
  char *name = NULL;
  *length = json_string_length(s);
  if (*length && *length <= 256) name = xstrdup(json_string_value(s));
  json_decref(s);
  return name;
}

// One key and its value. CALL_IS_WHOLE: it has passed them.
static CallScanStatus scan_pair(Scan *s, CallScan *c) {
  if (s->s[s->at] != '"') return CALL_IS_NONE;
  size_t key = s->at;
  if (!pass_string(s)) return s->bytes - key > 64 ? CALL_IS_NONE : CALL_IS_OPEN;
  size_t key_bytes = s->at - key;
  const char *k = s->s + key;
  bool name = is_key(k, key_bytes, "name");
  bool arguments = is_key(k, key_bytes, "arguments") || is_key(k, key_bytes, "parameters");
  if (!name && !arguments && !is_key(k, key_bytes, "id") && !is_key(k, key_bytes, "type")) return CALL_IS_NONE;
  if (!pass_space(s)) return CALL_IS_OPEN;
  if (s->s[s->at++] != ':') return CALL_IS_NONE;
  if (!pass_space(s)) return CALL_IS_OPEN;
  size_t value = s->at;
  if (name && s->s[value] != '"') return CALL_IS_NONE;
  if (strchr(",}]:", s->s[value])) return CALL_IS_NONE;
  if (arguments) c->arguments = value;
  if (arguments && c->name) return CALL_BEGINS;
  bool whole = pass_value(s);
  if (s->at - value > MOST_BEFORE_NAME) return CALL_IS_NONE;
  if (!whole) return CALL_IS_OPEN;
  if (arguments) c->arguments_bytes = s->at - value;
  if (name && c->name) return CALL_IS_NONE;
  if (name && !(c->name = name_in(s->s + value, s->at - value, &c->name_bytes))) return CALL_IS_NONE;
  return CALL_IS_WHOLE;
}

static CallScanStatus scan_object(Scan *s, CallScan *c) {
  if (s->s[s->at++] != '{') return CALL_IS_NONE;
  for (;;) {
    if (!pass_space(s)) return CALL_IS_OPEN;
    CallScanStatus status = scan_pair(s, c);
    if (status != CALL_IS_WHOLE) return status;
    if (c->name && c->arguments_bytes) return c->rest = s->at, CALL_IS_WHOLE;
    if (!pass_space(s)) return CALL_IS_OPEN;
    if (s->s[s->at] == '}') return c->name ? (c->rest = s->at, CALL_IS_WHOLE) : CALL_IS_NONE;
    if (s->s[s->at++] != ',') return CALL_IS_NONE;
  }
}

CallScanStatus call_scan(const char *text, size_t bytes, CallScan *c) {
  Scan s = {.s = text, .bytes = bytes};
  *c = (CallScan){0};
  CallScanStatus status = scan_object(&s, c);
  if (status == CALL_IS_OPEN || status == CALL_IS_NONE) {
    free(c->name);
    c->name = NULL;
  }
  return status;
}

// One byte of an object or a list.
static void pass_byte(CallValue *v, char c) {
  if (v->in_string) {
    if (v->escaped) v->escaped = false;
    else if (c == '\\') v->escaped = true;
    else if (c == '"') v->in_string = false;
    return;
  }
  if (c == '"') v->in_string = true;
  if (c == '{' || c == '[') v->depth++;
  if ((c == '}' || c == ']') && --v->depth == 0) v->ended = true;
}

size_t call_value_pass(CallValue *v, const char *text, size_t bytes) {
  size_t n = 0;
  while (n < bytes && !v->ended) pass_byte(v, text[n++]);
  return n;
}

// A value that is neither an object nor a list; told whole.
static size_t take_plain(CallValue *v, const char *text, size_t bytes, bool last) {
  size_t n = 0;
  while (n < bytes && !v->ended) {
    char c = text[n];
    if (v->first == '"') {
      bool begins = !v->held.count && !v->in_string;
      if (begins) v->in_string = true;
      else pass_byte(v, c);
      if (!begins && !v->in_string) v->ended = true;
    } else if (strchr(",}] \n\t\r", c)) {
      v->ended = true;
      break;
    }
    bytes_append(&v->held, &c, 1);
    n++;
  }
  if (last) v->ended = true;
  return n;
}

static void tell_plain(CallValue *v, void (*told)(void *, const ChatDelta *), void *context, int call) {
  ChatDelta d = {CHAT_ARGUMENTS, call, v->held.data, (size_t)v->held.count};
  json_t *s = v->first == '"' && d.bytes ? json_loadb(d.text, d.bytes, JSON_DECODE_ANY, NULL) : NULL;
  if (s) d.text = json_string_value(s), d.bytes = json_string_length(s);
  else if (d.bytes == 4 && !memcmp(d.text, "null", 4)) d.text = "{}", d.bytes = 2;
  if (d.bytes) told(context, &d);
  json_decref(s);
  vec_free(&v->held);
}

size_t call_value_take(CallValue *v, const char *text, size_t bytes, bool last,
                       void (*told)(void *context, const ChatDelta *delta), void *context, int call) {
  if (!v->begun && bytes) {
    v->begun = true;
    v->first = text[0];
  }
  if (v->first == '{' || v->first == '[') {
    size_t n = call_value_pass(v, text, bytes);
    if (n) told(context, &(ChatDelta){CHAT_ARGUMENTS, call, text, n});
    if (last) v->ended = true;
    return n;
  }
  size_t n = take_plain(v, text, bytes, last);
  if (v->ended) tell_plain(v, told, context, call);
  return n;
}
