// How a model is used with text: which tokens come before a prompt, and at which ones a text ends. Told by the files
// beside the weights, the config, the corpus that the model was trained on, and the tokenizer.
#pragma once
#include "data/tokenizer.h"
#include "infer/model_source.h"

typedef struct TextSetup {
  IdVector before; // what is put before a prompt: BOS, or nothing
  IdVector ends;   // a text ends before any of these
  int32_t bos;     // the first token of a text, where there is one; else the end of a text before it; -1: none
  int32_t eos;     // the end of text that the model has learnt; -1: none
} TextSetup;

// `tokenizer` may be NULL. What a generation_config.json says comes first, then, of a model that came from a Hugging
// Face folder, its config.json; a model that was trained here ends its texts as its corpus does.
// PLAIT_BAD_INPUT, and nothing to free, where one of the files is there and cannot be read.
int text_setup(TextSetup *setup, const ModelSource *source, const Tokenizer *tokenizer, Error *error);
void text_setup_free(TextSetup *setup); // also safe twice, and zeroed

// For an export: the source's files, with those that transformers needs and that are not there yet. The caller owns
// them. Also gives the config of a model that was trained here its bos_token_id and eos_token_id.
json_t *text_setup_files(const TextSetup *setup, ModelSource *source, const Tokenizer *tokenizer);
