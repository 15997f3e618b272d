// Opening a model's template, and messages to ids by it.
#include "chat/chat.h"
#include "base/fault.h"
#include "base/file.h"
#include "chat/chat_parts.h"
#include <string.h>

struct Chat {
  const Tokenizer *tokenizer;
  ChatSource source;
  JinjaTemplate *plain, *tools; // tools: NULL where the other one serves them, too
  ChatTraits traits;
};

// ---- rendering

// A role that all know is a word of the template, also where it makes a special token of it ("<|" + role + "|>").
static bool is_own(const char *key, const json_t *value) {
  bool known = json_is_string(value) && chat_role_is_known(json_string_value(value));
  return FAULT(roles_are_contents, !strcmp(key, "role") && known, false);
}

static int run(const Chat *chat, const ChatPrompt *prompt, const json_t *messages, JinjaOutput *output, Error *error) {
  enum { MOST = 64 };
  JinjaVariable variables[MOST + 16];
  int count = 0;
  const char *key;
  json_t *value, *null = json_null(), *answer = json_boolean(prompt->answer);
  json_object_foreach((json_t *)(uintptr_t)prompt->kwargs, key, value) {
    if (count == MOST) return error_set(error, PLAIT_BAD_INPUT, "chat_template_kwargs has over %d keys", MOST);
    variables[count++] = (JinjaVariable){.name = key, .value = value, .origin = JINJA_GIVEN};
  }
  int specials = 0;
  json_object_foreach(chat->source.specials, key, value)
    if (specials++ < 12) variables[count++] = (JinjaVariable){.name = key, .value = value, .origin = JINJA_TEMPLATE};
  bool tools = json_array_size(prompt->tools) > 0;
  variables[count++] = (JinjaVariable){
      .name = "tools", .value = tools ? prompt->tools : null, .origin = JINJA_GIVEN};
  if (!json_object_get(prompt->kwargs, "documents"))
    variables[count++] = (JinjaVariable){.name = "documents", .value = null, .origin = JINJA_GIVEN};
  variables[count++] = (JinjaVariable){.name = "add_generation_prompt", .value = answer, .origin = JINJA_TEMPLATE};
  variables[count++] = (JinjaVariable){
      .name = "messages", .value = messages, .origin = JINJA_TEMPLATE, .list = true, .own = is_own};
  return jinja_run(tools && chat->tools ? chat->tools : chat->plain, variables, count, NULL, output, error);
}

// An answer that is continued ends with the last byte of it: what the template puts after a message goes.
static int cut_prefill(JinjaOutput *o, int last, Error *error) {
  int i = o->parts.count;
  UNLESS_FAULT(prefill_keeps_what_follows) while (i > 0 && o->parts.data[i - 1].origin != last) i--;
  if (!i)
    return error_set(error, PLAIT_BAD_INPUT,
                     "messages[%d].content, the beginning of the answer, is not in what the template makes of it",
                     last);
  o->parts.count = i;
  o->text.count = (int)o->parts.data[i - 1].end;
  return PLAIT_OK;
}

int chat_check_kwargs(const json_t *kwargs, const char *name, Error *error) {
  static const char *const own[] = {"messages", "tools", "add_generation_prompt"};
  if (!kwargs || json_is_null(kwargs)) return PLAIT_OK;
  if (!json_is_object(kwargs)) return error_set(error, PLAIT_BAD_INPUT, "%s is not an object", name);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (json_object_get(kwargs, own[i]))
      return error_set(error, PLAIT_BAD_INPUT, "%s has %s, which the template gets from the chat itself", name, own[i]);
  return PLAIT_OK;
}

static int check_prompt(const ChatPrompt *prompt, Error *error) {
  size_t count = json_array_size(prompt->messages), i;
  json_t *tool;
  const char *role = json_string_value(json_object_get(json_array_get(prompt->messages, count - 1), "role"));
  if (prompt->prefill && (!role || strcmp(role, "assistant") != 0))
    return error_set(error, PLAIT_BAD_INPUT,
                     "messages[%zu].role is not assistant: only an answer can be continued", count ? count - 1 : 0);
  if (chat_check_kwargs(prompt->kwargs, "chat_template_kwargs", error)) return PLAIT_BAD_INPUT;
  if (prompt->tools && !json_is_array(prompt->tools) && !json_is_null(prompt->tools))
    return error_set(error, PLAIT_BAD_INPUT, "tools is not a list");
  json_array_foreach(prompt->tools, i, tool) if (!json_is_object(tool))
    return error_set(error, PLAIT_BAD_INPUT, "tools[%zu] is not an object", i);
  return PLAIT_OK;
}

int chat_render(const Chat *chat, const ChatPrompt *prompt, ByteVector *text, TextSpanVector *spans, Error *error) {
  JinjaOutput o = {0};
  json_t *messages = NULL;
  int code = check_prompt(prompt, error);
  ChatPrompt own = *prompt;
  own.answer = prompt->answer && !prompt->prefill;
  if (json_is_null(own.kwargs)) own.kwargs = NULL;
  if (!code) code = chat_messages(&chat->traits, prompt, chat->source.text, &messages, error);
  if (!code) code = run(chat, &own, messages, &o, error);
  if (!code && prompt->prefill) code = cut_prefill(&o, (int)json_array_size(messages) - 1, error);
  size_t before = (size_t)text->count, start = before;
  if (!code && o.text.count) bytes_append(text, o.text.data, (size_t)o.text.count);
  for (int i = 0; i < o.parts.count && !code; i++) {
    size_t end = before + o.parts.data[i].end;
    if (FAULT(contents_are_the_templates, o.parts.data[i].origin == JINJA_TEMPLATE, true))
      vec_push(spans, (TextSpan){start, end});
    start = end;
  }
  json_decref(messages);
  jinja_output_free(&o);
  return code;
}

int chat_encode(const Chat *chat, const ChatPrompt *prompt, IdVector *ids, Error *error) {
  ByteVector text = {0};
  TextSpanVector spans = {0};
  int code = chat_render(chat, prompt, &text, &spans, error);
  TokenizerScratch *scratch = tokenizer_scratch_create(chat->tokenizer);
  if (!code)
    code = tokenizer_encode_spans(chat->tokenizer, scratch, text.data ? text.data : "", (size_t)text.count, spans.data,
                                  spans.count, ids, error);
  tokenizer_scratch_destroy(scratch);
  vec_free(&text);
  vec_free(&spans);
  return code;
}

// ---- opening

static bool renders(const Chat *chat, const char *messages, const char *tools, const char *wanted,
                    const char *unwanted) {
  json_t *list = json_loads(messages, 0, NULL), *tool_list = tools ? json_loads(tools, 0, NULL) : NULL;
  ChatPrompt prompt = {.messages = list, .tools = tool_list, .answer = true};
  ByteVector text = {0};
  TextSpanVector spans = {0};
  Error ignored = {0};
  CHECK(list, "a chat to try is not JSON");
  bool good = !chat_render(chat, &prompt, &text, &spans, &ignored) && text.count &&
              memmem(text.data, (size_t)text.count, wanted, strlen(wanted)) &&
              !memmem(text.data, (size_t)text.count, unwanted, strlen(unwanted));
  vec_free(&text);
  vec_free(&spans);
  json_decref(list);
  json_decref(tool_list);
  return good;
}

// Templates differ in the form of contents and of calls' arguments. Chats that have words of their own tell which form
// makes them come out as they are.
static void try_template(Chat *chat) {
  static const char user[] = "[{\"role\": \"user\", \"content\": \"a plain question\"}]";
  static const char calls[] =
      "[{\"role\": \"user\", \"content\": \"a plain question\"}, {\"role\": \"assistant\", \"content\": null, "
      "\"tool_calls\": [{\"id\": \"callabcd1\", \"type\": \"function\", \"function\": {\"name\": \"trial\", "
      "\"arguments\": {\"argument_x\": \"value_x\"}}}]}, {\"role\": \"tool\", \"tool_call_id\": \"callabcd1\", "
      "\"name\": \"trial\", \"content\": \"a result\"}]";
  static const char tools[] =
      "[{\"type\": \"function\", \"function\": {\"name\": \"trial\", \"description\": \"to try\", "
      "\"parameters\": {\"type\": \"object\", \"properties\": {\"argument_x\": {\"type\": "
      "\"string\"}}}}}]";
  ChatTraits *t = &chat->traits;
  t->developer = strstr(chat->source.text, "developer");
  if (!renders(chat, user, NULL, "a plain question", "'type'")) {
    t->typed_content = true;
    t->typed_content = renders(chat, user, NULL, "a plain question", "'type'");
  }
  for (int form = 0; form < 4; form++) {
    t->text_arguments = form >= 2;
    t->empty_content = form % 2;
    // As Python shows an object, or a text within JSON: not as a model has learnt it.
    if (renders(chat, calls, tools, "value_x", "'argument_x'") && renders(chat, calls, tools, "argument_x", "\\\""))
      return;
  }
  t->text_arguments = false; // it shows no calls: their messages then have a content that fails nowhere
  t->empty_content = true;
}

static int parse_templates(Chat *chat, Error *error) {
  ChatSource *s = &chat->source;
  int code = jinja_parse(s->text, s->bytes, s->name, &chat->plain, error);
  if (!code && s->tools_text) code = jinja_parse(s->tools_text, s->tools_bytes, s->name, &chat->tools, error);
  if (!code) try_template(chat);
  return code;
}

int chat_open_files(Chat **out, const json_t *files, const char *name, const char *template_path,
                    const Tokenizer *tokenizer, Error *error) {
  Chat *chat = xcalloc(1, sizeof *chat);
  chat->tokenizer = tokenizer;
  *out = NULL;
  int code = chat_source_find(&chat->source, files, name, template_path, error);
  if (!code && !chat->source.text && chat->source.tools_text) { // its only template is for tools
    chat->source.text = chat->source.tools_text;
    chat->source.bytes = chat->source.tools_bytes;
    chat->source.tools_text = NULL;
  }
  bool found = !code && chat->source.text;
  if (found) code = parse_templates(chat, error);
  if (found && !code) *out = chat;
  else chat_close(chat);
  return code;
}

int chat_open(Chat **chat, const char *folder, const char *template_path, const Tokenizer *tokenizer, Error *error) {
  static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
                                      "chat_template.json"};
  json_t *files = json_object();
  int code = PLAIT_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names && !code; i++) {
    char *path = xformat("%s/%s", folder, names[i]), *text = NULL;
    size_t bytes = 0;
    if (file_exists(path)) code = file_read(path, 4 << 20, &text, &bytes, error);
    json_t *value = text ? json_stringn(text, bytes) : NULL;
    if (text && !value) code = error_set(error, PLAIT_BAD_INPUT, "%s: not UTF-8", path);
    if (value) json_object_set_new(files, names[i], value);
    free(text);
    free(path);
  }
  *chat = NULL;
  if (!code) code = chat_open_files(chat, files, folder, template_path, tokenizer, error);
  json_decref(files);
  return code;
}

void chat_close(Chat *chat) {
  if (!chat) return;
  jinja_free(chat->plain);
  jinja_free(chat->tools);
  chat_source_free(&chat->source);
  free(chat);
}

// ---- what answers look like

static bool names(const Chat *chat, const char *word) {
  return strstr(chat->source.text, word) || (chat->source.tools_text && strstr(chat->source.tools_text, word));
}

ChatForm chat_form(const Chat *chat) {
  if (names(chat, "[TOOL_CALLS]")) return CHAT_MISTRAL;
  if (names(chat, "<tool_call>"))
    return names(chat, "<function=") ? CHAT_QWEN_XML : names(chat, "<arg_key>") ? CHAT_GLM : CHAT_HERMES;
  if (names(chat, "<|python_tag|>") || (names(chat, "<|start_header_id|>") && names(chat, "parameters")))
    return CHAT_LLAMA3;
  return CHAT_NO_CALLS;
}

bool chat_has_reasoning(const Chat *chat) { return names(chat, "<think>"); }

bool chat_begins_reasoning(const ByteVector *text) {
  size_t n = (size_t)text->count;
  while (n && strchr(" \n\t\r", text->data[n - 1]) && text->data[n - 1]) n--;
  return n >= 7 && !memcmp(text->data + n - 7, "<think>", 7);
}
