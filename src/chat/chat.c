// Opening templates, and messages to ids.
#include "chat/chat.h"
#include "base/file.h"
#include "base/json_read.h"
#include <string.h>

struct Chat { const Tokenizer *tokenizer; };

int chat_open(Chat **chat, const char *folder, const char *template_path, const Tokenizer *tokenizer, Error *error) {
  static const char *const names[] = {"tokenizer_config.json", "chat_template.jinja", "chat_template.json"};
  json_t *files = json_object();
  int code = PLAIT_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names && !code; i++) {
    char *path = xformat("%s/%s", folder, names[i]), *text = NULL;
    size_t bytes = 0;
    if (file_exists(path)) code = file_read(path, 4 << 20, &text, &bytes, error);
    if (text) json_object_set_new(files, names[i], json_stringn(text, bytes));
    free(text);
    free(path);
  }
  *chat = NULL;
  if (!code) code = chat_open_files(chat, files, folder, template_path, tokenizer, error);
  json_decref(files);
  return code;
}

int chat_open_files(Chat **chat, const json_t *files, const char *name, const char *template_path,
                    const Tokenizer *tokenizer, Error *error) {
  const char *config = json_string_value(json_object_get(files, "tokenizer_config.json"));
  *chat = NULL;
  if (!template_path && !json_object_get(files, "chat_template.jinja") &&
      !(config && strstr(config, "\"chat_template\"")))
    return PLAIT_OK;
  *chat = xcalloc(1, sizeof **chat);
  (*chat)->tokenizer = tokenizer;
  return PLAIT_OK;
}

void chat_close(Chat *chat) { free(chat); }

static void put(ByteVector *text, TextSpanVector *spans, const char *from, size_t bytes, bool own) {
  size_t start = (size_t)text->count;
  bytes_append(text, from, bytes);
  if (!own || !bytes) return;
  if (spans->count && spans->data[spans->count - 1].end == start) spans->data[spans->count - 1].end += bytes;
  else vec_push(spans, (TextSpan){start, start + bytes});
}

int chat_render(const Chat *chat, const ChatPrompt *prompt, ByteVector *text, TextSpanVector *spans, Error *error) {
  size_t i, last = json_array_size(prompt->messages) - 1;
  json_t *message;
  (void)chat;
  json_array_foreach(prompt->messages, i, message) {
    const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
    if (!json_is_string(role)) return error_set(error, PLAIT_BAD_INPUT, "messages[%zu].role is not a text", i);
    put(text, spans, "<|im_start|>", 12, true);
    put(text, spans, json_string_value(role), json_string_length(role), false);
    put(text, spans, "\n", 1, true);
    if (json_is_string(content))
      put(text, spans, json_string_value(content), json_string_length(content), false);
    if (!prompt->prefill || i != last) put(text, spans, "<|im_end|>\n", 11, true);
  }
  if (prompt->answer) put(text, spans, "<|im_start|>assistant\n", 22, true);
  return PLAIT_OK;
}

int chat_encode(const Chat *chat, const ChatPrompt *prompt, IdVector *ids, Error *error) {
  ByteVector text = {0};
  TextSpanVector spans = {0};
  int code = chat_render(chat, prompt, &text, &spans, error);
  TokenizerScratch *scratch = tokenizer_scratch_create(chat->tokenizer);
  if (!code)
    code = tokenizer_encode_spans(chat->tokenizer, scratch, text.data, (size_t)text.count, spans.data, spans.count, ids,
                                  error);
  tokenizer_scratch_destroy(scratch);
  vec_free(&text);
  vec_free(&spans);
  return code;
}

ChatForm chat_form(const Chat *chat) { return (void)chat, CHAT_HERMES; }

bool chat_begins_reasoning(const ByteVector *text) { return (void)text, false; }

bool chat_has_reasoning(const Chat *chat) { return (void)chat, false; }
