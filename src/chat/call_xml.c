// Parameters in XML, whose values are texts or JSON by the schema of the tool, as an object of JSON.
#include "chat/call_xml.h"
#include "base/fault.h"
#include "chat/call_kinds.h"
#include <stdio.h>
#include <string.h>

enum { MOST_NAME = 256 };

// The text as it is so far, and who is told.
typedef struct Xml {
  CallXml *x;
  const char *s;
  size_t bytes, at;
  bool last;
  void (*told)(void *context, const ChatDelta *delta);
  void *context;
  int call;
} Xml;

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static size_t pass_space(const char *text, size_t bytes, size_t at) {
  while (at < bytes && is_space(text[at])) at++;
  return at;
}

// 1: the word stands here; 0: another; -1: it may, when more comes.
static int has_word(const char *text, size_t bytes, size_t at, const char *word) {
  size_t n = strlen(word), have = bytes - at;
  if (memcmp(text + at, word, have < n ? have : n)) return 0;
  return have >= n ? 1 : -1;
}

// The end of a name that begins here: the first byte that cannot be in one.
static size_t pass_name(const char *text, size_t bytes, size_t at) {
  while (at < bytes && !is_space(text[at]) && text[at] != '<' && text[at] != '>') at++;
  return at;
}

static CallScanStatus begin_glm(const char *text, size_t bytes, CallXmlName *n) {
  size_t at = n->rest = pass_space(text, bytes, n->at + n->bytes);
  int key = has_word(text, bytes, at, "<arg_key>"), end = has_word(text, bytes, at, "</tool_call>");
  return key > 0 || end > 0 ? CALL_BEGINS : key < 0 || end < 0 ? CALL_IS_OPEN : CALL_IS_NONE;
}

CallScanStatus call_xml_begin(ChatForm form, const char *text, size_t bytes, bool ended, CallXmlName *n) {
  static const char function[] = "<function=";
  size_t at = pass_space(text, bytes, 0);
  CallScanStatus open = ended ? CALL_IS_NONE : CALL_IS_OPEN, status;
  if (at == bytes) return open;
  if (form == CHAT_QWEN_XML) {
    int has = has_word(text, bytes, at, function);
    if (has <= 0) return has ? open : CALL_IS_NONE;
    at += strlen(function);
  }
  size_t end = pass_name(text, bytes, at);
  *n = (CallXmlName){.at = at, .bytes = end - at, .rest = end + 1};
  if (end - at > MOST_NAME) return CALL_IS_NONE;
  if (end == bytes) return open;
  if (end == at) return CALL_IS_NONE;
  if (form == CHAT_QWEN_XML) return text[end] == '>' ? CALL_BEGINS : CALL_IS_NONE;
  status = begin_glm(text, bytes, n);
  return status == CALL_IS_OPEN ? open : status;
}

// ---- telling --------------------------------------------------------------------------------------------------------

static void tell(const Xml *m, const char *text, size_t bytes) {
  if (bytes) m->told(m->context, &(ChatDelta){CHAT_ARGUMENTS, m->call, text, bytes});
}

// As it stands within the quotes of a text.
static void tell_escaped(const Xml *m, const char *text, size_t bytes) {
  static const char names[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
  size_t from = 0;
  for (size_t i = 0; i < bytes; i++) {
    unsigned char c = (unsigned char)text[i];
    char code[8];
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    const char *name = c ? strchr(names, c) : NULL;
    if (name) snprintf(code, sizeof code, "\\%c", letters[name - names]);
    else snprintf(code, sizeof code, "\\u%04x", c);
    tell(m, text + from, i - from);
    tell(m, code, strlen(code));
    from = i + 1;
  }
  tell(m, text + from, bytes - from);
}

static void tell_text(const Xml *m, const char *text, size_t bytes) {
  tell(m, "\"", 1);
  tell_escaped(m, text, bytes);
  tell(m, "\"", 1);
}

static bool is_json(const char *text, size_t bytes) {
  json_t *value = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);
  json_decref(value);
  return value != NULL;
}

// As Python writes these, which some templates let it do.
static const char *json_of_python(const char *text, size_t bytes) {
  static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
  for (int i = 0; i < 3; i++)
    if (bytes == strlen(words[i][0]) && !memcmp(text, words[i][0], bytes)) return words[i][1];
  return NULL;
}

// A parameter that may be a text is one, but for null where that is allowed. Where the schema does not say, what is
// JSON is JSON.
static void tell_value(const Xml *m, const char *text, size_t bytes) {
  unsigned kinds = m->x->kinds;
  size_t from = pass_space(text, bytes, 0), to = bytes;
  while (to > from && is_space(text[to - 1])) to--;
  bool null = to - from == 4 && !memcmp(text + from, "null", 4);
  const char *python = json_of_python(text + from, to - from);
  bool other = kinds == CALL_ALL || !(kinds & CALL_TEXT);
  if (null ? kinds & CALL_NULL : other && is_json(text + from, to - from)) tell(m, text + from, to - from);
  else if (python && !(kinds & CALL_TEXT)) tell(m, python, strlen(python));
  else tell_text(m, text, bytes);
}

// ---- parameters -----------------------------------------------------------------------------------------------------

void call_xml_open(CallXml *x, ChatForm form, const json_t *tools, const char *name, size_t name_bytes) {
  size_t i;
  json_t *tool;
  *x = (CallXml){.form = form};
  json_array_foreach(tools, i, tool) {
    const json_t *function = json_object_get(tool, "function"), *own = json_object_get(function, "name");
    if (json_string_length(own) == name_bytes && !memcmp(json_string_value(own), name, name_bytes))
      x->parameters = json_object_get(function, "parameters");
  }
}

static size_t end(Xml *m, size_t consumed) {
  m->x->state = XML_ENDED;
  if (m->x->any) tell(m, "}", 1);
  else tell(m, "{}", 2);
  return consumed;
}

static void begin_value(Xml *m, const char *key, size_t bytes) {
  CallXml *x = m->x;
  tell(m, x->any ? ", \"" : "{\"", x->any ? 3 : 2);
  tell_escaped(m, key, bytes);
  tell(m, "\": ", 3);
  x->kinds = call_kinds(json_object_getn(json_object_get(x->parameters, "properties"), key, bytes), x->parameters);
  x->is_text = FAULT(texts_in_xml_are_json, (x->kinds & CALL_TEXT) && !(x->kinds & CALL_NULL), false);
  if (x->is_text) tell(m, "\"", 1);
  x->any = true;
  x->line_may_come = x->form == CHAT_QWEN_XML;
  x->state = XML_VALUE;
}

// The key at `from` ends with a word, and after `then`, if that is not NULL, begins the value. Returns where; 0: it is
// not there yet; -1: it never will be.
static long key_ends(const Xml *m, size_t from, const char *word, const char *then, size_t *key_bytes) {
  const char *found = memmem(m->s + from, m->bytes - from, word, strlen(word));
  size_t most = found ? (size_t)(found - m->s) - from : m->bytes - from;
  if (!most && !found) return 0;
  if (!most || most > MOST_NAME || memchr(m->s + from, '\n', most)) return -1;
  if (!found) return 0;
  *key_bytes = most;
  size_t at = from + most + strlen(word);
  if (!then) return (long)at;
  at = pass_space(m->s, m->bytes, at);
  int has = has_word(m->s, m->bytes, at, then);
  return has > 0 ? (long)(at + strlen(then)) : has < 0 ? 0 : -1;
}

// Returns how many bytes are taken; 0 with the state unchanged: more must come.
static size_t between(Xml *m) {
  bool qwen = m->x->form == CHAT_QWEN_XML;
  const char *key = qwen ? "<parameter=" : "<arg_key>", *over = qwen ? "</function>" : "</tool_call>";
  size_t at = pass_space(m->s, m->bytes, 0), key_bytes = 0;
  int begins = has_word(m->s, m->bytes, at, key), ends = has_word(m->s, m->bytes, at, over);
  if (ends > 0) return end(m, qwen ? at + strlen(over) : at);
  if (begins < 0 || ends < 0) return 0;
  if (!begins) return end(m, at);
  size_t from = at + strlen(key);
  long value = key_ends(m, from, qwen ? ">" : "</arg_key>", qwen ? NULL : "<arg_value>", &key_bytes);
  if (value < 0) return end(m, at);
  if (!value) return 0;
  begin_value(m, m->s + from, key_bytes);
  return (size_t)value;
}

// Where the value ends, and *after its closing tag. At the end of what is certain: *after 0.
static size_t value_ends(const Xml *m, size_t *after) {
  bool qwen = m->x->form == CHAT_QWEN_XML;
  const char *line = "\n</parameter>", *word = qwen ? line + 1 : "</arg_value>";
  *after = 0;
  for (size_t at = 0; at < m->bytes; at++) {
    if (m->s[at] != '<' && !(qwen && m->s[at] == '\n')) continue;
    const char *tag = m->s[at] == '<' ? word : line;
    int has = has_word(m->s, m->bytes, at, tag);
    if (has > 0) *after = at + strlen(tag);
    if (has > 0 || (has < 0 && !m->last)) return at;
  }
  return m->bytes;
}

static size_t value(Xml *m) {
  CallXml *x = m->x;
  size_t after, line = x->line_may_come && m->s[0] == '\n' ? 1 : 0;
  if (line && m->bytes == 1 && !m->last) return 0;
  if (line && has_word(m->s, m->bytes, 0, "\n</parameter>") > 0) line = 0; // an empty value, of one line end
  if (line && has_word(m->s, m->bytes, 0, "\n</parameter>") < 0 && !m->last) return 0;
  if (line) {
    x->line_may_come = false;
    return 1;
  }
  size_t n = value_ends(m, &after);
  if (n) x->line_may_come = false;
  if (x->is_text) {
    tell_escaped(m, m->s, n);
    if (after) tell(m, "\"", 1);
  } else if (after) tell_value(m, m->s, n);
  else return m->last ? m->bytes : 0; // a value that is not whole is told of texts only
  if (after) x->state = XML_BETWEEN;
  return after ? after : n;
}

size_t call_xml_take(CallXml *x, const char *text, size_t bytes, bool last,
                     void (*told)(void *context, const ChatDelta *delta), void *context, int call) {
  Xml m = {.x = x, .last = last, .told = told, .context = context, .call = call};
  size_t taken = 0, n = 1;
  while (n && taken < bytes && x->state != XML_ENDED) {
    m.s = text + taken;
    m.bytes = bytes - taken;
    n = x->state == XML_VALUE ? value(&m) : between(&m);
    taken += n;
  }
  if (last && x->state != XML_ENDED) taken = bytes, x->state = XML_ENDED;
  return taken;
}
