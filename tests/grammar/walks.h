// Random answers: a small vocabulary, and walks along its masks.
#pragma once
#include "grammar/grammar.h"
#include <stdint.h>

// All single bytes, and pieces of JSON that cross what it is made of.
TokenTrie *walk_vocabulary(void);
int walk_vocabulary_size(void);
const char *walk_token(int id, int *bytes);

// One walk: at each step a random token of the mask; after `steps` of them, those that end the document soonest. The
// text is appended to *text. When `compare`, each token of each mask is tried, too. NULL, or what is wrong.
const char *walk(const Grammar *g, const TokenTrie *trie, uint64_t seed, int steps, int compare, ByteVector *text,
                 int64_t *taken);
extern const char walk_is_endless[]; // wrong only where each character may lead to the end
int grammar_accepts(const Grammar *g, const char *text, size_t bytes); // as a whole
// Reads questions (lines of JSON) from the standard input and answers them, for scripts/grammar_walks.py.
int drive(void);
