// Taking answers apart: a state, and the bytes that cannot be told yet. Each step takes from the front of these what is
// certain however the text continues; what is told does not depend on where pieces end.
#include "chat/chat_parser.h"
#include "base/fault.h"
#include "chat/call_xml.h"
#include <string.h>

typedef enum State {
  AT_START,     // of the answer, or of what follows the reasoning
  IN_REASONING,
  IN_CONTENT,
  BEFORE_CALL,  // after the mark of calls, or between two of them: perhaps a call
  IN_NAME,      // of [TOOL_CALLS]name[ARGS]{…}
  IN_ARGUMENTS,
  IN_XML,       // the same, as XML
  IN_TAIL,      // the rest of a call's object, after its arguments
  AFTER_CALL
} State;

struct ChatParser {
  ChatParserOptions options;
  State state;
  ByteVector held;
  bool think_may_come; // <think> here begins the reasoning
  bool skips_space;    // white space that comes next is dropped
  bool in_list;        // calls stand in [ … ]
  bool named;          // the call has had the form name[ARGS]
  int mark;            // bytes of held that are before a call, its mark; told as content if no call follows
  int calls;
  CallValue value;     // of the arguments
  CallValue tail;
  CallXml xml;
};

ChatParser *chat_parser_create(const ChatParserOptions *options) {
  ChatParser *p = xcalloc(1, sizeof *p);
  p->options = *options;
  p->state = options->in_reasoning && options->reasoning ? IN_REASONING : AT_START;
  p->skips_space = p->state == IN_REASONING;
  p->think_may_come = options->reasoning;
  return p;
}

void chat_parser_destroy(ChatParser *p) {
  if (!p) return;
  vec_free(&p->held);
  vec_free(&p->value.held);
  free(p);
}

int chat_parser_calls(const ChatParser *p) { return p->calls; }

// ---- telling

static void drop(ChatParser *p, int bytes) {
  if (!bytes) return;
  p->held.count -= bytes;
  memmove(p->held.data, p->held.data + bytes, (size_t)p->held.count);
}

static void tell(ChatParser *p, ChatDeltaKind kind, const char *text, size_t bytes) {
  if (bytes || kind == CHAT_ARGUMENTS)
    p->options.tell(p->options.context, &(ChatDelta){kind, p->calls - 1, text, bytes});
}

static void tell_held(ChatParser *p, ChatDeltaKind kind, int bytes) {
  if (bytes) tell(p, kind, p->held.data, (size_t)bytes);
  drop(p, bytes);
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static int spaces(const ChatParser *p, int from) {
  int n = from;
  while (n < p->held.count && is_space(p->held.data[n])) n++;
  return n - from;
}

// Does the held text have the word at this place? 1; 0: it has another; -1: it may, when more comes.
static int has_word(const ChatParser *p, int at, const char *word) {
  int n = (int)strlen(word), have = p->held.count - at;
  int same = have < n ? have : n;
  if (same > 0 && memcmp(p->held.data + at, word, (size_t)same)) return 0;
  return have >= n ? 1 : -1;
}

static bool is_xml(const ChatParser *p) {
  return p->options.form == CHAT_QWEN_XML || p->options.form == CHAT_GLM;
}

static bool is_tagged(const ChatParser *p) { return p->options.form == CHAT_HERMES || is_xml(p); }

static const char *mark_of(const ChatParser *p) {
  if (is_tagged(p)) return "<tool_call>";
  return p->options.form == CHAT_MISTRAL ? "[TOOL_CALLS]" : NULL;
}

// Tells text up to a word, or all that cannot be the begin of the word. White space before the word, or before what may
// be one, waits with it. 1: the word has come and is dropped, with the space before it.
static int tell_until(ChatParser *p, ChatDeltaKind kind, const char *word, bool ended) {
  int from = p->skips_space ? spaces(p, 0) : 0;
  drop(p, from);
  if (p->held.count) p->skips_space = false;
  for (int at = 0, space = 0; at < p->held.count; at++) {
    if (is_space(p->held.data[at])) continue;
    int has = FAULT(marks_in_two_pieces_are_missed, has_word(p, at, word), has_word(p, at, word) > 0);
    for (space = at; space > 0 && is_space(p->held.data[space - 1]);) space--;
    if (has < 0 && ended) has = 0;
    if (!has) continue;
    tell_held(p, kind, space);
    return has > 0 ? at - space + (int)strlen(word) : 0;
  }
  int end = p->held.count;
  while (!ended && end > 0 && is_space(p->held.data[end - 1])) end--;
  tell_held(p, kind, end);
  return 0;
}

// ---- states; each returns whether it has changed to another one

static bool become(ChatParser *p, State state) {
  p->state = state;
  return true;
}

static bool at_start(ChatParser *p, bool ended) {
  static const char tag[] = "<|python_tag|>";
  if (p->skips_space) drop(p, spaces(p, 0));
  int at = spaces(p, 0), has;
  if (p->think_may_come && (has = has_word(p, at, "<think>"))) {
    if (has < 0 && !ended) return false;
    if (has > 0) {
      drop(p, at + 7);
      p->skips_space = true;
      p->think_may_come = false;
      return become(p, IN_REASONING);
    }
  }
  if (at == p->held.count && !ended) return false;
  p->think_may_come = false;
  if (p->options.form != CHAT_LLAMA3) return become(p, IN_CONTENT);
  if ((has = has_word(p, at, tag)) < 0 && !ended && at < p->held.count) return false;
  int mark = at + (has > 0 ? (int)strlen(tag) : 0);
  if (has > 0) mark += spaces(p, mark);
  if (mark == p->held.count && !ended) return false;
  if (mark == p->held.count || p->held.data[mark] != '{') return become(p, IN_CONTENT);
  p->mark = mark;
  return become(p, BEFORE_CALL);
}

static bool in_reasoning(ChatParser *p, bool ended) {
  int found = tell_until(p, CHAT_REASONING, "</think>", false);
  if (!found && ended) { // white space at its end is dropped
    int end = p->held.count;
    while (end > 0 && is_space(p->held.data[end - 1])) end--;
    tell_held(p, CHAT_REASONING, end);
    p->held.count = 0;
  }
  if (!found) return false;
  drop(p, found);
  p->skips_space = true;
  p->think_may_come = false;
  return become(p, AT_START);
}

static bool in_content(ChatParser *p, bool ended) {
  const char *mark = mark_of(p);
  if (!mark) {
    drop(p, p->skips_space ? spaces(p, 0) : 0);
    if (p->held.count) p->skips_space = false;
    tell_held(p, CHAT_CONTENT, p->held.count);
    return false;
  }
  if (!(p->mark = tell_until(p, CHAT_CONTENT, mark, ended))) return false;
  p->in_list = false;
  return become(p, BEFORE_CALL);
}

// Something was taken for a call that is none.
static bool no_call(ChatParser *p) {
  tell_held(p, CHAT_CONTENT, p->mark ? p->mark : p->held.count > 0);
  p->mark = 0;
  p->in_list = p->skips_space = false;
  return become(p, IN_CONTENT);
}

static void begin_call(ChatParser *p, const char *name, size_t bytes) {
  p->calls++;
  tell(p, CHAT_CALL, name, bytes);
  p->value = (CallValue){0};
}

// [TOOL_CALLS]name[ARGS]{…}, perhaps with [CALL_ID]… before [ARGS].
static bool in_name(ChatParser *p, bool ended) {
  static const char args[] = "[ARGS]";
  const char *text = p->held.data + p->mark;
  size_t bytes = (size_t)(p->held.count - p->mark), name = 0;
  const char *found = memmem(text, bytes, args, strlen(args));
  if (!found) return ended || bytes > 400 ? no_call(p) : false;
  while (text + name < found && text[name] != '[' && !is_space(text[name])) name++;
  if (!name) return no_call(p);
  int end = p->mark + (int)(found - text) + (int)strlen(args);
  end += spaces(p, end);
  if (end == p->held.count && !ended) return false;
  if (end == p->held.count || p->held.data[end] != '{') return no_call(p);
  begin_call(p, text, name);
  drop(p, end);
  p->mark = 0;
  p->named = true;
  return become(p, IN_ARGUMENTS);
}

static bool before_xml(ChatParser *p, bool ended) {
  const char *text = p->held.data + p->mark;
  CallXmlName name;
  CallScanStatus status =
      call_xml_begin(p->options.form, text, (size_t)(p->held.count - p->mark), ended, &name);
  if (status == CALL_IS_NONE) return no_call(p);
  if (status == CALL_IS_OPEN) return false;
  call_xml_open(&p->xml, p->options.form, p->options.tools, text + name.at, name.bytes);
  begin_call(p, text + name.at, name.bytes);
  drop(p, p->mark + (int)name.rest);
  p->mark = 0;
  return become(p, IN_XML);
}

static bool in_xml(ChatParser *p, bool ended) {
  size_t n = call_xml_take(&p->xml, p->held.data, (size_t)p->held.count, ended, p->options.tell, p->options.context,
                           p->calls - 1);
  drop(p, (int)n);
  return p->xml.state == XML_ENDED && become(p, AFTER_CALL);
}

static bool before_call(ChatParser *p, bool ended) {
  if (is_xml(p)) return before_xml(p, ended);
  int at = p->mark + spaces(p, p->mark);
  if (at == p->held.count) return ended ? no_call(p) : false;
  if (p->options.form == CHAT_MISTRAL && !p->in_list && p->held.data[at] != '{') {
    if (p->held.data[at] != '[') {
      p->mark = at;
      return become(p, IN_NAME);
    }
    p->in_list = true;
    p->mark = at + 1;
    return become(p, BEFORE_CALL);
  }
  CallScan scan;
  CallScanStatus status = call_scan(p->held.data + at, (size_t)(p->held.count - at), &scan);
  if (status == CALL_IS_NONE || (status == CALL_IS_OPEN && ended)) return no_call(p);
  if (status == CALL_IS_OPEN) return false;
  begin_call(p, scan.name, scan.name_bytes);
  free(scan.name);
  if (status == CALL_IS_WHOLE) { // its arguments, if any, came before its name
    if (scan.arguments_bytes) {
      CallValue value = {0};
      call_value_take(&value, p->held.data + at + scan.arguments, scan.arguments_bytes, true,
                      p->options.tell, p->options.context, p->calls - 1);
    } else tell(p, CHAT_ARGUMENTS, "{}", 2);
    p->tail = (CallValue){.depth = 1};
    drop(p, at + (int)scan.rest);
  } else drop(p, at + (int)scan.arguments);
  p->mark = 0;
  p->named = false;
  return become(p, status == CALL_IS_WHOLE ? IN_TAIL : IN_ARGUMENTS);
}

static bool in_arguments(ChatParser *p, bool ended) {
  size_t n = call_value_take(&p->value, p->held.data, (size_t)p->held.count, ended, p->options.tell,
                             p->options.context, p->calls - 1);
  drop(p, (int)n);
  if (!p->value.ended) return false;
  p->tail = (CallValue){.depth = 1};
  return become(p, p->named ? AFTER_CALL : IN_TAIL);
}

static bool in_tail(ChatParser *p, bool ended) {
  drop(p, (int)call_value_pass(&p->tail, p->held.data, (size_t)p->held.count));
  return p->tail.ended && become(p, AFTER_CALL);
}

// Marks that join calls, or end them.
static bool after_call(ChatParser *p, bool ended) {
  int at = spaces(p, 0), has;
  if (at == p->held.count) return false;
  char c = p->held.data[at];
  bool more = p->options.form == CHAT_LLAMA3 ? c == ';' : p->in_list && c == ',';
  if (more) {
    drop(p, at + 1);
    return become(p, BEFORE_CALL);
  }
  if (p->in_list && c == ']') {
    drop(p, at + 1);
    p->in_list = false;
    return true;
  }
  if (is_tagged(p) && (has = has_word(p, at, "</tool_call>"))) {
    if (has < 0 && !ended) return false;
    drop(p, has > 0 ? at + 12 : 0);
    p->skips_space = has > 0;
    return become(p, IN_CONTENT);
  }
  if (p->options.form == CHAT_QWEN_XML && (has = has_word(p, at, "<function="))) {
    if (has < 0 && !ended) return false;
    drop(p, has > 0 ? at : 0);
    return become(p, has > 0 ? BEFORE_CALL : IN_CONTENT);
  }
  if (p->options.form == CHAT_HERMES && c == '{') {
    drop(p, at);
    return become(p, BEFORE_CALL);
  }
  p->skips_space = true;
  return become(p, IN_CONTENT);
}

static bool step(ChatParser *p, bool ended) {
  switch (p->state) {
  case AT_START: return at_start(p, ended);
  case IN_REASONING: return in_reasoning(p, ended);
  case IN_CONTENT: return in_content(p, ended);
  case BEFORE_CALL: return before_call(p, ended);
  case IN_NAME: return in_name(p, ended);
  case IN_ARGUMENTS: return in_arguments(p, ended);
  case IN_XML: return in_xml(p, ended);
  case IN_TAIL: return in_tail(p, ended);
  default: return after_call(p, ended);
  }
}

void chat_parser_push(ChatParser *p, const char *text, size_t bytes) {
  if (!bytes) return;
  bytes_append(&p->held, text, bytes);
  while (p->held.count && step(p, false)) continue;
}

void chat_parser_end(ChatParser *p) {
  while (p->held.count && step(p, true)) continue;
  if (p->state == IN_ARGUMENTS) step(p, true); // what a text of arguments has held back
}
