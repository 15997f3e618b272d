// Grammars: which tokens may follow, so that an answer is JSON that a schema allows.
#pragma once
#include "base/error.h"
#include "tokenizer/tokenizer.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

// A grammar is compiled from a schema (docs/schemas.md says what is built). It is constant: any number of threads may
// use one, but for its cache of masks, which has a lock.
typedef struct Grammar Grammar;

// A refusal has a sentence in *error (not NULL) that begins with its path, "WHERE.properties.a.not …".
// PLAIT_BAD_INPUT: it is not a schema, or no document matches it. GRAMMAR_NOT_BUILT: it is one, and plait cannot
// hold an answer to it. The caller frees *g, after the states that use it. The schema is not needed any more.
enum { GRAMMAR_NOT_BUILT = -64 };
int grammar_from_schema(Grammar **g, const json_t *schema, const char *where, Error *error);
void grammar_free(Grammar *g);     // NULL is fine
int64_t grammar_cells(const Grammar *g); // of its tables, with 4 bytes each: how large it is, but for its masks

// The vocabulary by the bytes that tokens stand for. Constant; made once for a tokenizer. No grammar of a schema allows
// special tokens; those of tools allow them in the text around calls.
typedef struct TokenTrie TokenTrie;
TokenTrie *token_trie_create(const Tokenizer *t);
// The same of texts: token i is bytes[i] bytes at text[i]; NULL: there is no such token. special: NULL, none is.
TokenTrie *token_trie_of(const char *const *text, const int *bytes, const bool *special, int count);
void token_trie_free(TokenTrie *trie); // NULL is fine; after the grammars whose masks were asked for with it
int token_trie_size(const TokenTrie *trie); // of the vocabulary: ids are below it

// Where one answer is. It belongs to one thread at a time.
typedef struct GrammarState GrammarState;
GrammarState *grammar_begin(const Grammar *g);
GrammarState *grammar_copy(const GrammarState *state);
void grammar_end(GrammarState *state); // NULL is fine

// The tokens that may follow: allowed[id] is 1 or 0, for ids below token_trie_size. *may_end: the answer may end here;
// then the caller allows the tokens that end it. Where neither is possible (a vocabulary that lacks bytes) nothing is.
void grammar_mask(GrammarState *state, const TokenTrie *trie, uint8_t *allowed, bool *may_end);
// Takes a token, or bytes. False: they are not allowed, and the state has not changed.
bool grammar_take(GrammarState *state, const TokenTrie *trie, int32_t id);
bool grammar_take_bytes(GrammarState *state, const char *text, size_t bytes);
bool grammar_may_end(const GrammarState *state);
