// Taking answers apart.
#include "chat/chat_parser.h"

struct ChatParser { ChatParserOptions options; };

ChatParser *chat_parser_create(const ChatParserOptions *options) {
  ChatParser *p = xcalloc(1, sizeof *p);
  p->options = *options;
  return p;
}

void chat_parser_destroy(ChatParser *p) { free(p); }

void chat_parser_push(ChatParser *p, const char *text, size_t bytes) {
  if (bytes) p->options.tell(p->options.context, &(ChatDelta){.kind = CHAT_CONTENT, .text = text, .bytes = bytes});
}

void chat_parser_end(ChatParser *p) { (void)p; }

int chat_parser_calls(const ChatParser *p) { return (void)p, 0; }
