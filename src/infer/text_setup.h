// How a model is used with text: which tokens come before a prompt, and at which ones a text ends. Told by the files
// beside the weights, the config, the corpus that the model was trained on, and the tokenizer.
#pragma once
#include "tokenizer/tokenizer.h"
#include "infer/model_source.h"

typedef struct TextSetup {
  IdVector before; // what is put before a prompt: BOS, or nothing
  IdVector ends;   // a text ends before any of these
  int32_t bos;     // the first token of a text, where there is one; else the end of a text before it; -1: none
  int32_t eos;     // the end of text that the model has learnt; -1: none
  DocumentMarks said; // what the tokenizer's files say of documents (data/document_marks.h)
} TextSetup;

// `tokenizer` may be NULL. Before a prompt comes what begins the documents that the model was trained on, if that is
// recorded, else what the tokenizer's files say. A text ends at all tokens of generation_config.json, or else, of a
// model that came from a Hugging Face folder, of config.json; and at the one that ends the documents of its corpus.
// PLAIT_BAD_INPUT, and nothing to free, where one of the files is there and cannot be read.
int text_setup(TextSetup *setup, const ModelSource *source, const Tokenizer *tokenizer, Error *error);
// Does the record of the corpus say other than the tokenizer's files? If so, *text is a sentence about it.
bool text_setup_contradicts(const TextSetup *setup, const ModelSource *source, const Tokenizer *tokenizer, char *text,
                            size_t size);
// The same for a dataset that the model is evaluated on, PREFIX.bin and PREFIX.idx, and its record: 1 there is a
// sentence, 0 none. PLAIT_BAD_INPUT where the record cannot be read.
int text_setup_compare(const ModelSource *source, const Tokenizer *tokenizer, const char *prefix, char *text,
                       size_t size, Error *error);
// Appends a prompt's ids, after what the tokenizer puts before a text (BOS); an empty one starts after an end of text.
// *missed: bytes of it that the vocabulary lacks. PLAIT_BAD_INPUT: it has no tokens.
int text_setup_encode(const TextSetup *setup, const Tokenizer *tokenizer, const char *prompt, size_t bytes,
                      IdVector *ids, int64_t *missed, Error *error);
void text_setup_free(TextSetup *setup); // also safe twice, and zeroed

// For an export: the source's files, with those that transformers needs and that are not there yet. The caller owns
// them. Also gives the config of a model that was trained here its bos_token_id and eos_token_id.
json_t *text_setup_files(const TextSetup *setup, ModelSource *source, const Tokenizer *tokenizer);
