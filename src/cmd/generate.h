// plait generate: what its two ways of working have in common, one prompt (generate.c) and a file of them
// (generate_file.c).
#pragma once
#include "cmd/model_text.h"
#include "infer/engine.h"

typedef struct PromptFile PromptFile;

typedef struct Generate {
  const char *prompt, *prompts, *out_path;
  int64_t max_tokens, window, seed, threads, logprobs; // window: 0, or infer.context by its old name
  SampleOptions sample; // but for the seed
  bool ignore_eos, stop_at_end, verbose, chats; // chats: prompts are messages
  ModelSource source;
  ModelText text;
  Engine *engine;
  PromptFile *file; // of --prompts, on rank 0
} Generate;

// The request that the options describe, without a prompt; its ends are borrowed from g->text.
RequestOptions generate_request(const Generate *g);
// Appends a prompt's ids, after what the tokenizer puts before a text (BOS); an empty one starts after an end of text.
// *missed: bytes of it that the vocabulary lacks. PLAIT_BAD_INPUT: it has no tokens.
int generate_encode(const Generate *g, const char *prompt, size_t bytes, IdVector *ids, int64_t *missed, Error *error);
// Opens the tokenizer of g->source and, where g->chats, its chat template. PLAIT_BAD_INPUT where there is none.
// The caller closes g->text.
int generate_open_text(Generate *g, Error *error);
// Appends the ids of messages, of which the last one is continued where it is the assistant's. tools and kwargs may be
// NULL.
int generate_encode_chat(const Generate *g, const json_t *messages, const json_t *tools, const json_t *kwargs,
                         IdVector *ids, Error *error);
// A stream of the text that follows these ids: some tokenizers drop the first token's space.
void generate_stream(const Generate *g, const IdVector *ids, TokenizerStream *stream);
// On stderr, with --verbose: tokens/s and what else the engine has counted.
void generate_print_speed(const Generate *g, bool ended);

// Opens g->prompts and g->out_path, and finds what an earlier run has answered. The caller closes, also after an error.
int generate_file_open(Generate *g, Error *error);
void generate_file_close(Generate *g, int code); // after an error a new file without an answer goes
// Answers all lines that have no answer yet. PLAIT_BAD_INPUT, with a sentence, at the end where some could not be
// answered, which their answers say.
int generate_file(Generate *g, Error *error);
