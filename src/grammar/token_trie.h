// The vocabulary as a trie in one list, and what tokens do within strings.
#pragma once
#include "grammar/grammar.h"
#include "grammar/json_chars.h"

// Texts by their bytes, in order: a text is its rank. Nodes are in the order of a walk from the root: the children of
// node i follow it, up to skip[i]. The root itself is not in the list.
typedef struct ByteTrie {
  int nodes;
  uint8_t *byte;   // (nodes)
  uint16_t *depth; // (nodes) from 0
  int32_t *skip;   // (nodes) the first node after those below
  int32_t *rank;   // (nodes + 1) the texts that end at node i are rank[i] … rank[i + 1] - 1
} ByteTrie;

// A token (its rank) that ends a string: the node where it ends, bytes and characters before the quote, and which text
// of `rests` comes after the quote; -1: none. again: the bytes before the quote are those of the closer before it. They
// lie one after another in the order of closers: masks look at all of them.
typedef struct Closer { int32_t token, node, rest, bytes, characters; bool again; const char *text; } Closer;

struct TokenTrie {
  ByteTrie all;  // tokens that are not special
  int count;     // of these
  int32_t *id;   // (count) of the token of a rank
  int32_t *rank; // (size) of a token; `count` where it has none
  int size;      // of the vocabulary
  char *text;    // all tokens' bytes
  size_t *start; // (size + 1)
  bool *special; // (size)
  int32_t *specials; // (special_count)
  int special_count;
  JsonChars chars; // of one kind
  ByteTrie rests;  // what follows the quote in tokens that end a string
  int rest_count;
  bool *rest_has_key; // (rest_count) it may have a whole key in it: two quotes
  // Of each place within a string (a state of chars):
  uint8_t *needs; // (places, count) characters that the string must have room for, so that it may have the token;
                  // NEEDS_REFUSED: the token ends the string, or does not belong there
  Closer *closers[CHAR_SHAPES]; // in the order of nodes
  int closer_count[CHAR_SHAPES];
  char *closer_text[CHAR_SHAPES];
};
enum { NEEDS_REFUSED = 255, TOKEN_BYTES = 254 }; // longer tokens are never allowed

typedef struct TokenText { const char *text; size_t bytes; } TokenText;
static inline TokenText token_text(const TokenTrie *t, int id) {
  return (TokenText){t->text + t->start[id], t->start[id + 1] - t->start[id]};
}
