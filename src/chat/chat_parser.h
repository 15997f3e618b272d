// The text of an answer, piece by piece, taken apart: content, reasoning, calls of tools. The parts that are told do
// not depend on how the text is cut into pieces, but for where deltas of the same kind begin and end.
#pragma once
#include "chat/chat.h"

typedef enum ChatDeltaKind {
  CHAT_CONTENT,
  CHAT_REASONING,  // between <think> and </think>, without white space around it
  CHAT_CALL,       // a call begins: text is the name of its function
  CHAT_ARGUMENTS   // more of the arguments of the call that began last: JSON, as the model wrote it
} ChatDeltaKind;

typedef struct ChatDelta {
  ChatDeltaKind kind;
  int call;         // 0, 1, …: which call, of CHAT_CALL and CHAT_ARGUMENTS
  const char *text; // (bytes) not empty but for CHAT_ARGUMENTS; valid during the call. Cut between any bytes of UTF-8
                    // only where the pieces that were pushed are
  size_t bytes;
} ChatDelta;

typedef struct ChatParserOptions {
  ChatForm form;     // CHAT_NO_CALLS where the request has no tools
  const json_t *tools; // of the request, borrowed: where values are XML, their schemas tell texts from JSON. NULL: none
  bool reasoning;    // <think> … </think> at the begin of the answer is reasoning
  bool in_reasoning; // the prompt has ended with <think>
  void (*tell)(void *context, const ChatDelta *delta);
  void *context;
} ChatParserOptions;

typedef struct ChatParser ChatParser;
ChatParser *chat_parser_create(const ChatParserOptions *options);
void chat_parser_destroy(ChatParser *parser); // NULL is fine
// The text has special tokens in it (tokenizer_stream_begin with skip_special 0): forms of calls are made of them.
void chat_parser_push(ChatParser *parser, const char *text, size_t bytes);
void chat_parser_end(ChatParser *parser); // the answer has ended: tells what is held back
int chat_parser_calls(const ChatParser *parser); // that have begun: finish_reason is tool_calls where there is one
