// Finding added tokens in a text before the model sees it.
#pragma once
#include "tokenizer/tokenizer.h"
#include <stdbool.h>

// Builds the set of those tokens whose `normalized` is as given.
void added_set_build(AddedSet *set, Arena *arena, const AddedToken *tokens, int count, int normalized);

void added_prepare_word(Tokenizer *t); // what the options single_word need, if there are any

typedef struct AddedMatch { const AddedToken *token; size_t start, end; } AddedMatch; // with the spaces it strips

// The next match, looking from *scan on; `done` is the end of the last one. 0: none. *scan moves past the token. As in
// Hugging Face, a token may stand in the spaces that the one before it strips: then it starts before `done`. special:
// where special tokens are found; NULL: everywhere. Elsewhere they are passed over, with whatever stands within them.
// Its positions are those of `text` plus `offset`.
typedef struct AddedPlaces { const TextSpan *spans; int count; size_t offset; } AddedPlaces;
int added_next(const AddedSet *set, const char *text, size_t bytes, const AddedPlaces *special, size_t done,
               size_t *scan, AddedMatch *match);
