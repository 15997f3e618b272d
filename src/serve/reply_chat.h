// The parts of a chat's answer: what the model thinks first, what it says, and the tools that it calls.
#pragma once
#include "chat/chat_parser.h"
#include "serve/output.h"

typedef struct ReplyCall {
  char id[24];
  ByteVector name, arguments;
  int sent;   // of the arguments
  bool told;  // that it has begun
} ReplyCall;

typedef struct ReplyChat {
  ChatParser *parser;
  ChatForm form;
  int fed; // bytes of the output's text that the parser has had
  ByteVector content, reasoning;
  Vec(ReplyCall) calls;
  int content_sent, reasoning_sent;
} ReplyChat;

// It must stay where it is until reply_chat_free. thinks: the prompt has opened <think>.
// tools: of the request, or NULL.
void reply_chat_begin(ReplyChat *chat, ChatForm form, const json_t *tools, bool reasoning, bool thinks);
void reply_chat_free(ReplyChat *chat);
// Takes what is ready of the output; last: there will be no more.
void reply_chat_update(ReplyChat *chat, const Output *output, bool last);
json_t *reply_chat_message(const ReplyChat *chat); // all of it
json_t *reply_chat_delta(ReplyChat *chat);         // all that is not in a delta yet; an empty object: nothing
// "tool_calls" in the place of "stop" where tools are called.
const char *reply_chat_finish(const ReplyChat *chat, const char *finish);
