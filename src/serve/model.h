// The model that a server serves, as its threads see it: nothing changes while they run.
#pragma once
#include "chat/chat.h"
#include "grammar/grammar.h"
#include "infer/text_setup.h"
#include "serve/grammar_store.h"
#include "infer/sample.h"
#include "serve/refusal.h"

typedef struct ServedModel {
  const ModelSource *source;
  const Tokenizer *tokenizer;
  const TextSetup *text;
  const Chat *chat;       // NULL: it has no template
  const TokenTrie *trie;  // of the tokenizer
  GrammarStore *grammars; // of requests; may be NULL
  const uint8_t *allowed; // (vocab) ids that stand for something
  const char *name;       // that clients give
  int64_t context;
  SampleOptions usual;    // of generation_config.json
  char fingerprint[40];   // set before the queue is ready
  int64_t created;        // seconds since 1970
} ServedModel;

// 404 where a client asks for another model.
int served_model_check(const ServedModel *model, const char *name, Refusal *refusal);

// The sampling of generation_config.json, where one is among the source's files; temperature 1 and no filters without
// it. PLAIT_BAD_INPUT: the file cannot be read.
int served_model_usual(const ModelSource *source, SampleOptions *usual, Error *error);
