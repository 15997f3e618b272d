// Messages of a chat: which roles and contents there may be, and the texts that templates get.
#include "serve/call.h"
#include <string.h>

enum { MOST_MESSAGES = 16384 };

static int wrong(size_t i, const char *what, Refusal *f) {
  return refusal_set(f, 400, "invalid_value", "messages", "messages[%zu] %s", i, what);
}

// A text, or a list of {"type": "text", "text": …}: their texts one after the other. NULL: it is neither.
static json_t *text_of(const json_t *content) {
  ByteVector text = {0};
  size_t i;
  json_t *part;
  if (json_is_string(content)) return json_incref((json_t *)(uintptr_t)content);
  if (!json_is_array(content)) return NULL;
  json_array_foreach(content, i, part) {
    const json_t *type = json_object_get(part, "type"), *piece = json_object_get(part, "text");
    if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0 || !json_is_string(piece)) {
      vec_free(&text);
      return NULL;
    }
    bytes_append(&text, json_string_value(piece), json_string_length(piece));
  }
  json_t *joined = json_stringn(text.data ? text.data : "", (size_t)text.count);
  vec_free(&text);
  return joined;
}

static const char *role_of(const json_t *message) {
  static const char *const roles[] = {"system", "user", "assistant", "tool"};
  const char *role = json_string_value(json_object_get(message, "role"));
  if (role && !strcmp(role, "developer")) return "system";
  for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
    if (!strcmp(role, roles[i])) return roles[i];
  return NULL;
}

static bool is_kept(const char *key) {
  static const char *const kept[] = {"name", "tool_call_id", "reasoning_content"};
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
    if (!strcmp(key, kept[i])) return true;
  return false;
}

static int read_message(size_t i, json_t *message, json_t *out, int64_t *ignored, Refusal *f) {
  if (!json_is_object(message)) return wrong(i, "is not an object", f);
  const char *role = role_of(message), *key;
  json_t *value;
  if (!role) return wrong(i, "has no role of system, developer, user, assistant or tool", f);
  json_object_set_new(out, "role", json_string(role));
  const json_t *content = json_object_get(message, "content"), *calls = json_object_get(message, "tool_calls");
  if (json_is_array(calls) && json_array_size(calls)) return wrong(i, "has tool_calls, which are not built", f);
  json_t *text = text_of(content);
  if (!text)
    return wrong(i, "has a content that is neither a text nor a list of parts of type text (images and sounds are not "
                    "built)", f);
  json_object_set_new(out, "content", text);
  json_object_foreach(message, key, value) {
    if (json_is_null(value) || !strcmp(key, "role") || !strcmp(key, "content")) continue;
    if (!is_kept(key)) ++*ignored;
    else if (!json_is_string(value))
      return wrong(i, "has a name, tool_call_id or reasoning_content that is no text", f);
    else json_object_set(out, key, value);
  }
  return 0;
}

json_t *call_messages(const json_t *messages, bool *prefill, int64_t *ignored, Refusal *f) {
  size_t i, count = json_array_size(messages);
  json_t *message, *list = json_array();
  int code = 0;
  if (!count)
    code = refusal_set(f, 400, "missing_field", "messages", "messages must be a list of at least one message");
  else if (count > MOST_MESSAGES)
    code = refusal_set(f, 400, "invalid_value", "messages", "there are at most %d messages", MOST_MESSAGES);
  json_array_foreach(messages, i, message) {
    json_t *out = json_object();
    if (!code) code = read_message(i, message, out, ignored, f);
    json_array_append_new(list, out);
  }
  const char *last = json_string_value(json_object_get(json_array_get(list, count - 1), "role"));
  *prefill = !code && last && !strcmp(last, "assistant");
  if (!code) return list;
  json_decref(list);
  return NULL;
}
