// Random ragged corpora for tests.
#pragma once
#include "base/error.h"
#include <stdint.h>

// Writes PREFIX.bin/.idx: `documents` documents of min_len to max_len tokens (both included), ids in [0, vocab), from
// seed alone. The last token of each document is vocab - 1 (the end-of-text), which stands nowhere else. Ids follow a
// simple chain with noise, so that a model can learn something. vocab >= 2, min_len >= 1.
int synthetic_corpus(const char *prefix, int documents, int min_len, int max_len, int vocab, uint64_t seed,
                     Error *error);
