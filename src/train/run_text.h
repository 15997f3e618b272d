// The files of a run with which its model can be used with text later: the tokenizer, the small files of the Hugging
// Face folders that model and tokenizer came from, and the tokens that begin and end documents of its corpus.
#pragma once
#include "recipe/recipe.h"
#include "train/run_folder.h"
#include <jansson.h>

// Copies data.tokenizer to DIR/tokenizer.json, where it is not that already, and the small files beside it.
int run_text_keep(const RunFolder *folder, const Recipe *recipe, Error *error);
// Members for a checkpoint's `extra`: "huggingface_files"; "documents", how those of data.train begin and end by their
// record, or, where they have none and all end with one token, "document_end".
// before: the `extra` of the checkpoint that the run starts from, or NULL. The caller owns it.
json_t *run_text_describe(const Recipe *recipe, const json_t *before);
