// A stand-in until chat templates are there.
#pragma once
#include "tokenizer/tokenizer.h"
#include <jansson.h>
#include <stdbool.h>

typedef struct Chat Chat; // const after opening, shared by threads
int chat_open(Chat **chat, const char *folder, const char *template_path, const Tokenizer *tokenizer, Error *error);
void chat_close(Chat *chat);
typedef struct ChatPrompt { const json_t *messages, *tools, *kwargs; bool answer; bool prefill; } ChatPrompt;
int chat_encode(const Chat *chat, const ChatPrompt *prompt, IdVector *ids, Error *error);
