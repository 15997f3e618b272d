// The text of one choice: tokens in, and bytes out that no stop string can take back.
#pragma once
#include "serve/ticket.h"
#include "tokenizer/tokenizer.h"

enum { MOST_STOPS = 4 };
typedef struct Stops { const char *text[MOST_STOPS]; int bytes[MOST_STOPS]; int count; } Stops;

// A token with its log-probability, where the request asks for them.
typedef struct OutputToken {
  int32_t id;
  int from;        // where its text begins
  bool first;      // of a prompt: it has no log-probability
  double logprob;
  int top, top_at; // of the most likely tokens, in top_ids and top_logprobs
} OutputToken;

typedef struct Output {
  const Stops *stops; // borrowed
  TokenizerStream stream;
  ByteVector text;
  int prompt;         // bytes at its begin that are the prompt's: no stops there
  int ready;          // bytes that may be sent
  int64_t tokens;     // that were drawn and count
  bool stopped;       // by a stop string, which is not in the text any more
  bool over;
  const char *finish; // "stop", "length"; NULL: it is not over, or broke
  Vec(OutputToken) told;
  Vec(int32_t) top_ids;
  Vec(double) top_logprobs;
} Output;

// skip_special: special tokens are not in the text.
void output_begin(Output *output, const Tokenizer *tokenizer, const Stops *stops, bool skip_special);
void output_free(Output *output);
// The prompt's ids: some tokenizers drop the first token's space. echo: they are the begin of the text; `text` in the
// place of theirs where it is not NULL.
void output_prompt(Output *output, const IdVector *ids, bool echo, const char *text, size_t bytes);
void output_note(Output *output, const EngineEvent *event, int from, bool first);
void output_push(Output *output, const EngineEvent *event, bool note); // a token that was drawn
void output_end(Output *output, RequestEnd end);
