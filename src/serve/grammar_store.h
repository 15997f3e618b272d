// Grammars of schemas that come again: compiled once, with the masks that they have gathered. Any thread may use it.
#pragma once
#include "grammar/grammar.h"
#include <stddef.h>

// At most 64 grammars, and 16 million cells of tables; the one that was not used for longest goes first.
enum { STORE_MOST = 64, STORE_CELLS = 16 << 20 };
typedef struct GrammarStore GrammarStore;
GrammarStore *grammar_store_create(void);
void grammar_store_free(GrammarStore *store); // NULL is fine; after all users of its grammars

// The grammar of a text that says all that it was compiled from, with one more user; NULL: it is not there. The store
// may be NULL, which keeps nothing.
Grammar *grammar_store_find(GrammarStore *store, const char *text);
// Takes over a new one, for one user, who takes the grammar that is returned: an equal one may have been added since.
Grammar *grammar_store_add(GrammarStore *store, const char *text, Grammar *grammar);
void grammar_store_release(GrammarStore *store, Grammar *grammar);
int grammar_store_count(GrammarStore *store); // kept for others, or used
