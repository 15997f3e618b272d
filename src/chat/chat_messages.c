// Messages of a request, checked and as the template takes them.
#include "base/json_read.h"
#include "chat/chat_parts.h"
#include <string.h>

bool chat_role_is_known(const char *role) {
  static const char *const known[] = {"system", "developer", "user", "assistant", "tool", "function"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(role, known[i])) return true;
  return false;
}

// A role that the template names, in quotes, is as good as one that all know.
static bool role_is_in(const char *role, const char *template) {
  char quoted[2][40];
  for (const char *c = role; *c; c++)
    if (!((*c >= 'a' && *c <= 'z') || *c == '_' || *c == '-')) return false;
  if (!*role || strlen(role) > 32) return false;
  snprintf(quoted[0], sizeof quoted[0], "'%s'", role);
  snprintf(quoted[1], sizeof quoted[1], "\"%s\"", role);
  return strstr(template, quoted[0]) || strstr(template, quoted[1]);
}

// A text, or a list of {"type": "text", "text": …}: its texts, with a line's end between them.
static int text_of_content(const json_t *content, size_t i, json_t **text, Error *error) {
  *text = NULL;
  if (json_is_string(content)) return *text = json_incref((json_t *)(uintptr_t)content), PLAIT_OK;
  if (!json_is_array(content))
    return error_set(error, PLAIT_BAD_INPUT, "messages[%zu].content is neither a text nor a list of parts", i);
  char *joined = xstrdup("");
  size_t k, bytes = 0;
  json_t *part;
  int code = PLAIT_OK;
  json_array_foreach(content, k, part) {
    const json_t *type = json_object_get(part, "type"), *string = json_object_get(part, "text");
    if (json_is_string(type) && strcmp(json_string_value(type), "text") != 0)
      code =
          error_set(error, PLAIT_BAD_INPUT, "messages[%zu].content[%zu].type is \"%.40s\"; plait reads parts of text",
                    i, k, json_string_value(type));
    else if (!json_is_string(string))
      code = error_set(error, PLAIT_BAD_INPUT, "messages[%zu].content[%zu].text is not a text", i, k);
    if (code) break;
    size_t more = json_string_length(string);
    joined = xrealloc(joined, bytes + more + 2);
    if (k) joined[bytes++] = '\n';
    memcpy(joined + bytes, json_string_value(string), more);
    bytes += more;
  }
  if (!code) *text = json_stringn(joined, bytes);
  free(joined);
  return code;
}

static int check_text(const json_t *message, const char *key, size_t i, Error *error) {
  const json_t *value = json_object_get(message, key);
  if (!value || json_is_null(value) || json_is_string(value)) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "messages[%zu].%s is not a text", i, key);
}

// {"id", "type", "function": {"name", "arguments"}}, with arguments as an object or as JSON in a text.
static int take_call(const ChatTraits *traits, const json_t *call, size_t i, size_t k, json_t **taken, Error *error) {
  const json_t *function = json_object_get(call, "function"), *name = json_object_get(function, "name");
  const json_t *arguments = json_object_get(function, "arguments"), *id = json_object_get(call, "id");
  *taken = NULL;
  if (!json_is_string(name))
    return error_set(error, PLAIT_BAD_INPUT, "messages[%zu].tool_calls[%zu].function.name is not a text", i, k);
  if (arguments && !json_is_string(arguments) && !json_is_object(arguments))
    return error_set(error, PLAIT_BAD_INPUT,
                     "messages[%zu].tool_calls[%zu].function.arguments is neither a text nor an object", i, k);
  if (id && !json_is_string(id) && !json_is_null(id))
    return error_set(error, PLAIT_BAD_INPUT, "messages[%zu].tool_calls[%zu].id is not a text", i, k);
  json_t *value = json_incref((json_t *)(uintptr_t)arguments), *tree = NULL;
  Error ignored = {0};
  if (!arguments) value = traits->text_arguments ? json_string("{}") : json_object();
  else if (traits->text_arguments && json_is_object(arguments)) {
    char *text = json_dumps(arguments, 0);
    json_decref(value);
    value = json_string(text);
    free(text);
  } else if (!traits->text_arguments && json_is_string(arguments) &&
             !json_read(json_string_value(arguments), json_string_length(arguments), "", &tree, &ignored) &&
             json_is_object(tree)) {
    json_decref(value);
    value = json_incref(tree);
  }
  json_decref(tree);
  *taken = json_pack("{s:s, s:{s:O, s:o}}", "type", "function", "function", "name", name, "arguments", value);
  if (json_is_string(id)) json_object_set(*taken, "id", (json_t *)(uintptr_t)id);
  return PLAIT_OK;
}

static int take_calls(const ChatTraits *traits, const json_t *calls, size_t i, json_t *message, Error *error) {
  json_t *list = json_array(), *call, *taken;
  size_t k;
  int code = PLAIT_OK;
  if (!json_is_array(calls)) code = error_set(error, PLAIT_BAD_INPUT, "messages[%zu].tool_calls is not a list", i);
  json_array_foreach(calls, k, call) {
    if ((code = take_call(traits, call, i, k, &taken, error))) break;
    json_array_append_new(list, taken);
  }
  if (!code && json_array_size(list)) json_object_set(message, "tool_calls", list);
  json_decref(list);
  return code;
}

static json_t *content_value(const ChatTraits *traits, json_t *text) {
  if (!text) return traits->empty_content ? json_string("") : json_null();
  if (!traits->typed_content) return json_incref(text);
  return json_pack("[{s:s, s:O}]", "type", "text", "text", text);
}

static int take_message(const ChatTraits *traits, const json_t *message, const char *template, size_t i, json_t **taken,
                        Error *error) {
  *taken = NULL;
  if (!json_is_object(message)) return error_set(error, PLAIT_BAD_INPUT, "messages[%zu] is not an object", i);
  const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
  const json_t *calls = json_object_get(message, "tool_calls");
  const char *word = json_string_value(role);
  if (!word) return error_set(error, PLAIT_BAD_INPUT, "messages[%zu].role is not a text", i);
  if (!chat_role_is_known(word) && !role_is_in(word, template))
    return error_set(error, PLAIT_BAD_INPUT,
                     "messages[%zu].role is \"%.40s\"; allowed: system, developer, user, assistant, tool", i, word);
  json_t *text = NULL, *value;
  const char *key;
  bool missing = !content || json_is_null(content), has_calls = json_array_size(calls) > 0;
  int code = PLAIT_OK;
  if (missing && !(has_calls && !strcmp(word, "assistant")))
    code = error_set(error, PLAIT_BAD_INPUT, "messages[%zu].content is missing", i);
  static const char *const texts[] = {"name", "tool_call_id", "reasoning_content"};
  for (size_t k = 0; k < sizeof texts / sizeof *texts && !code; k++) code = check_text(message, texts[k], i, error);
  if (!code && !missing) code = text_of_content(content, i, &text, error);
  if (code) return code;
  bool is_system = !strcmp(word, "developer") && !traits->developer;
  *taken = json_pack("{s:s, s:o}", "role", is_system ? "system" : word, "content", content_value(traits, text));
  json_decref(text);
  json_object_foreach((json_t *)(uintptr_t)message, key, value)
    if (!json_is_null(value) && strcmp(key, "role") && strcmp(key, "content") && strcmp(key, "tool_calls"))
      json_object_set(*taken, key, value);
  return calls && !json_is_null(calls) ? take_calls(traits, calls, i, *taken, error) : PLAIT_OK;
}

int chat_messages(const ChatTraits *traits, const ChatPrompt *prompt, const char *template, json_t **messages,
                  Error *error) {
  json_t *message, *taken;
  size_t i;
  int code = PLAIT_OK;
  *messages = json_array();
  if (!json_is_array(prompt->messages) || !json_array_size(prompt->messages))
    return error_set(error, PLAIT_BAD_INPUT, "messages is not a list with at least one message");
  json_array_foreach(prompt->messages, i, message) {
    code = take_message(traits, message, template, i, &taken, error);
    if (taken) json_array_append_new(*messages, taken);
    if (code) return code;
  }
  return code;
}
