// Folders and files as people have them: what is there instead of what plait reads, and what to do about it. Whoever
// opens one asks here first, so that all say the same and no later check has to guess.
#pragma once
#include "base/error.h"
#include <stdbool.h>

// All look at names and first bytes only. PLAIT_OK where nothing speaks against opening it; else PLAIT_BAD_INPUT with
// one sentence that begins with the path.

// A path that was given for `what` ("a Hugging Face folder"): is it there? If not, the sentence says that plait
// downloads nothing, and how to fetch a model.
int folder_check_exists(const char *path, const char *what, Error *error);
// A tokenizer.json or a folder with one. Refuses files that are not JSON: pointers of Git LFS, packed and binary files,
// tokenizer.model; and folders with other files of a tokenizer (the sentence has the line that converts them).
int folder_check_tokenizer(const char *path, Error *error);
// A Hugging Face folder with weights in safetensors, and with config.json where needs_config. Refuses pointers and
// packed files in their place, adapters, shards without their index, and weights in other formats.
int folder_check_model(const char *path, bool needs_config, Error *error);
// The same. *nothing: it is a folder in which nothing is like a model.
int folder_check_any(const char *path, bool needs_config, bool *nothing, Error *error);
