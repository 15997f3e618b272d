// The messages and tools of a chat that templates get. src/chat checks the contents of messages.
#include "serve/call.h"
#include <string.h>

enum { MOST_MESSAGES = 16384, MOST_TOOLS = 128 };

static bool is_kept(const char *key) {
  static const char *const kept[] = {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content"};
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
    if (!strcmp(key, kept[i])) return true;
  return false;
}

static json_t *kept_of(const json_t *message, int64_t *ignored) {
  const char *key;
  json_t *value, *out = json_object();
  if (!json_is_object(message)) return json_decref(out), json_incref((json_t *)(uintptr_t)message);
  json_object_foreach((json_t *)(uintptr_t)message, key, value) {
    if (is_kept(key)) json_object_set(out, key, value);
    else if (!json_is_null(value)) ++*ignored;
  }
  return out;
}

static bool is_begin_of_answer(const json_t *message) {
  const char *role = json_string_value(json_object_get(message, "role"));
  const json_t *content = json_object_get(message, "content");
  return role && !strcmp(role, "assistant") && content && !json_is_null(content) &&
         !json_array_size(json_object_get(message, "tool_calls"));
}

json_t *call_messages(const json_t *messages, bool *prefill, int64_t *ignored, Refusal *f) {
  size_t i, count = json_array_size(messages);
  json_t *message;
  *prefill = false;
  if (!count) {
    refusal_set(f, 400, messages ? "invalid_value" : "missing_field", "messages",
                "messages must be a list of at least one message");
    return NULL;
  }
  if (count > MOST_MESSAGES) {
    refusal_set(f, 400, "invalid_value", "messages", "there are at most %d messages", MOST_MESSAGES);
    return NULL;
  }
  json_t *list = json_array();
  json_array_foreach((json_t *)(uintptr_t)messages, i, message) json_array_append_new(list, kept_of(message, ignored));
  *prefill = is_begin_of_answer(json_array_get(list, count - 1));
  return list;
}

// ---- tools

static int wrong_tool(size_t i, const char *what, Refusal *f) {
  return refusal_set(f, 400, "invalid_value", "tools", "tools[%zu]%s", i, what);
}

static int check_tool(size_t i, const json_t *tool, Refusal *f) {
  const json_t *function = json_object_get(tool, "function"), *parameters = json_object_get(function, "parameters");
  const char *type = json_string_value(json_object_get(tool, "type"));
  if (!type || strcmp(type, "function") != 0) return wrong_tool(i, " is not of type function", f);
  const char *name = json_string_value(json_object_get(function, "name"));
  if (!name || !*name) return wrong_tool(i, ".function.name is not a text", f);
  if (parameters && !json_is_object(parameters) && !json_is_null(parameters))
    return wrong_tool(i, ".function.parameters is not an object", f);
  return 0;
}

int call_tools(const json_t *request, const ServedModel *m, const json_t **tools, Refusal *f) {
  const json_t *list = json_object_get(request, "tools"), *choice = json_object_get(request, "tool_choice");
  const char *word = json_string_value(choice);
  size_t i;
  json_t *tool;
  *tools = NULL;
  if (list && !json_is_array(list)) return refusal_set(f, 400, "invalid_value", "tools", "tools must be a list");
  if (json_array_size(list) > MOST_TOOLS)
    return refusal_set(f, 400, "invalid_value", "tools", "there are at most %d tools", MOST_TOOLS);
  json_array_foreach((json_t *)(uintptr_t)list, i, tool) if (check_tool(i, tool, f)) return -1;
  if (word && strcmp(word, "auto") != 0 && strcmp(word, "none") != 0 && strcmp(word, "required") != 0)
    return refusal_set(f, 400, "invalid_value", "tool_choice",
                       "tool_choice must be auto, none, required, or a function that tools has");
  if (!json_array_size(list) && choice && !word)
    return refusal_set(f, 400, "invalid_value", "tool_choice", "tool_choice names a function, and there are no tools");
  if (!json_array_size(list) && word && !strcmp(word, "required"))
    return refusal_set(f, 400, "invalid_value", "tool_choice", "tool_choice is required, and there are no tools");
  if (!json_array_size(list) || (word && !strcmp(word, "none"))) return 0;
  if (!m->chat || chat_form(m->chat) == CHAT_NO_CALLS)
    return refusal_set(f, 400, "not_built", "tools", "the model's chat template has no form of calls that plait knows");
  *tools = list;
  return 0;
}
