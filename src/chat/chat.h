// Chats: the template of a model, which makes one prompt of messages, and the parser of what it answers.
#pragma once
#include "tokenizer/tokenizer.h"
#include <jansson.h>
#include <stdbool.h>

// How a model writes the calls of tools in its answer, told by its template.
typedef enum ChatForm {
  CHAT_NO_CALLS,
  CHAT_HERMES, // <tool_call>{"name": …, "arguments": {…}}</tool_call>, any number of them (Hermes, Qwen)
  CHAT_LLAMA3, // the whole answer is {"name": …, "parameters": {…}}, perhaps after <|python_tag|>; `;` between several
  CHAT_QWEN_XML, // <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call> (Qwen3-Coder)
  CHAT_GLM, // <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call> (GLM-4.5)
  CHAT_MISTRAL // [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or [TOOL_CALLS]name[ARGS]{…}. Ids of calls that the
               // template is given must be 9 letters and digits
} ChatForm;

// A model's chat template and what it needs of the tokenizer's files; const after opening, shared by threads.
typedef struct Chat Chat;

// `folder`: where tokenizer_config.json, chat_template.jinja and chat_template.json lie. template_path: a file that the
// user gives instead of theirs, or the name of one of theirs, or NULL. `tokenizer` is borrowed. *chat is NULL and the
// code PLAIT_OK where the model has no template and none is given. PLAIT_BAD_INPUT: the template cannot be read, or is
// not one that plait can run; the sentence has file and line.
int chat_open(Chat **chat, const char *folder, const char *template_path, const Tokenizer *tokenizer, Error *error);
// The same with the texts of these files, {"tokenizer_config.json": "its text", …}, as ModelSource.files has them, and
// the name of the model for messages. The template named "tool_use" is taken for prompts with tools, if there is one.
int chat_open_files(Chat **chat, const json_t *files, const char *name, const char *template_path,
                    const Tokenizer *tokenizer, Error *error);
void chat_close(Chat *chat); // NULL is fine

typedef struct ChatPrompt {
  const json_t *messages; // array of OpenAI's messages: role, content (text, null or list of text parts), tool_calls,
                          // tool_call_id, reasoning_content, name
  const json_t *tools;    // array, or NULL
  const json_t *kwargs;   // object (chat_template_kwargs: enable_thinking …), or NULL
  bool answer;  // the assistant's turn is opened at the end (add_generation_prompt)
  bool prefill; // the last message is the beginning of the assistant's answer, which is continued
} ChatPrompt;

// Appends the ids of the whole prompt, which has what the template puts first (BOS): nothing is to be added. Special
// tokens come only from the template's own text, never from contents.
// PLAIT_BAD_INPUT with the template's sentence (raise_exception), or where messages are malformed (names
// messages[i].field), or the template asks for more than it may.
int chat_encode(const Chat *chat, const ChatPrompt *prompt, IdVector *ids, Error *error);

// The text that chat_encode encodes, and which bytes of it are the template's; the caller frees both.
typedef Vec(TextSpan) TextSpanVector;
int chat_render(const Chat *chat, const ChatPrompt *prompt, ByteVector *text, TextSpanVector *spans, Error *error);

// PLAIT_BAD_INPUT: variables for the template (`name` says where they were given) are not an object, or have the name
// of one that it gets anyway. NULL and null are fine.
int chat_check_kwargs(const json_t *kwargs, const char *name, Error *error);

ChatForm chat_form(const Chat *chat);
// Does the prompt end within the model's reasoning (it ends with <think>)? Then so does its answer begin.
bool chat_begins_reasoning(const ByteVector *text);
bool chat_has_reasoning(const Chat *chat); // the template knows <think>
