// Shared by the files of chats: where templates are found, and messages as templates take them.
#pragma once
#include "chat/chat.h"
#include "chat/jinja.h"

// A template found in a model's files, and the special tokens that it may name.
typedef struct ChatSource {
  char *text, *tools_text, *named_text; // owned; NULL: none. tools_text: of prompts with tools; named_text: of the name
                                        // that the user has given in the place of a file
  size_t bytes, tools_bytes, named_bytes;
  char *name;              // for messages: the file
  json_t *specials;        // {"bos_token": "<s>", …}
} ChatSource;
int chat_source_find(ChatSource *source, const json_t *files, const char *name, const char *template_path,
                     Error *error);
void chat_source_free(ChatSource *source); // also safe twice, and zeroed

// The forms that a template can take, found out by trying it.
typedef struct ChatTraits {
  bool typed_content;   // contents must be lists of parts
  bool text_arguments;  // arguments of calls must be JSON in a text, not objects
  bool empty_content;   // a call without content needs the content "", not null
  bool developer;       // it knows the role developer; else it is given system
} ChatTraits;

// The messages as the template takes them: checked, without fields at null, contents in one piece. `template` is its
// source: roles that nobody knows must be in it. *messages is the caller's, also after an error.
int chat_messages(const ChatTraits *traits, const ChatPrompt *prompt, const char *template, json_t **messages,
                  Error *error);
bool chat_role_is_known(const char *role); // system, developer, user, assistant, tool, function
