// The small files beside the weights of a Hugging Face folder: what tokenizers and generation read. plait carries them
// from the folder that a model or a tokenizer came from into the one that is exported.
#pragma once
#include "base/error.h"
#include <jansson.h>
#include <stdbool.h>

// All of them are JSON objects {"tokenizer_config.json": "its text", …}; the caller owns what is returned.

// Those that say how text becomes tokens (tokenizer_config.json, special_tokens_map.json, chat templates) of `folder`;
// never NULL. Of a file that cannot be read, is not UTF-8 or has more than 4 MiB, {"broken": a sentence} is the text:
// whoever parses or writes it gets that error.
json_t *huggingface_files_of_tokenizer(const char *folder);
// Also the one that says how the model is used: generation_config.json.
json_t *huggingface_files_of_model(const char *folder);
// Of a model that came from the folder `model` (NULL: from none) with the tokenizer `tokenizer` (a tokenizer.json or
// its folder; NULL: none). Where model has another tokenizer than that, what it says about tokens is not carried.
json_t *huggingface_files_collect(const char *model, const char *tokenizer);

// Is it the name of one of them?
bool huggingface_files_has_name(const char *name);

// Do two files hold the same bytes? Not where one cannot be read, or is a pipe.
bool huggingface_same_file(const char *a, const char *b);

// Writes them into a folder, each whole or not at all.
int huggingface_files_write(const json_t *files, const char *folder, Error *error);
// Are they in the folder, byte for byte? PLAIT_FAILED where not.
int huggingface_files_verify(const json_t *files, const char *folder, Error *error);

// One of them parsed, to be released with json_decref; NULL and PLAIT_OK where there is no such file. PLAIT_BAD_INPUT
// where it is there, but unreadable or not a JSON object.
int huggingface_files_parse(const json_t *files, const char *name, json_t **parsed, Error *error);
