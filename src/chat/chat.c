// A stand-in until chat templates are there: "role: content" lines.
#include "chat/chat.h"
#include <stdlib.h>
#include <string.h>

struct Chat { const Tokenizer *t; };

int chat_open(Chat **chat, const char *folder, const char *template_path, const Tokenizer *tokenizer, Error *error) {
  *chat = xcalloc(1, sizeof **chat);
  (*chat)->t = tokenizer;
  return PLAIT_OK;
}
void chat_close(Chat *chat) { free(chat); }
int chat_encode(const Chat *chat, const ChatPrompt *prompt, IdVector *ids, Error *error) {
  ByteVector text = {0};
  size_t i;
  json_t *m;
  json_array_foreach(prompt->messages, i, m) {
    const char *role = json_string_value(json_object_get(m, "role"));
    const char *content = json_string_value(json_object_get(m, "content"));
    bytes_append(&text, role, strlen(role));
    bytes_append(&text, ": ", 2);
    bytes_append(&text, content ? content : "", content ? strlen(content) : 0);
    if (!prompt->prefill || i + 1 < json_array_size(prompt->messages)) bytes_append(&text, "\n", 1);
  }
  if (prompt->answer) bytes_append(&text, "assistant: ", 11);
  int code = tokenizer_encode(chat->t, text.data, (size_t)text.count, 1, ids, error);
  vec_free(&text);
  return code;
}
