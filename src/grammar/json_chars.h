// The characters of a JSON string as an automaton over bytes, in kinds that an expression or a set of words tells
// apart.
#pragma once
#include "tokenizer/unicode.h"
#include <stdbool.h>
#include <stdint.h>

// All code points in kinds: those from first[i] on, below first[i + 1], are of kind[i].
typedef struct CharKinds {
  int ranges, kinds;
  uint32_t *first; // (ranges) in order; first[0] is 0
  int *kind;       // (ranges)
  bool *member;    // (sets, kinds) whether the characters of a kind are in a set
} CharKinds;

enum { CHAR_KINDS = 1024 }; // most kinds

// The kinds that `count` tidy sets tell apart. False: more than CHAR_KINDS.
bool char_kinds_make(const UnicodeSet *sets, int count, CharKinds *kinds);
void char_kinds_free(CharKinds *kinds);
int char_kinds_of(const CharKinds *kinds, uint32_t code);

// Bytes to characters: each as UTF-8, or escaped as Python's json.dumps does it with ensure_ascii: \" \\ \b \f \n \r
// \t, and \uXXXX (either case) for other control characters and those from U+007F on, in pairs of surrogates from
// U+10000 on. Nothing else is accepted: no needless escape, no half of a pair. State 0 stands between two characters.
enum { CHAR_REFUSED = -1, CHAR_DONE = 1 << 14 }; // CHAR_DONE + k: the byte ends a character of kind k
typedef struct JsonChars {
  int states, kinds;
  int16_t *next;   // (states, 256) a state, CHAR_REFUSED, or CHAR_DONE + kind
  uint8_t *shape;  // (states) the same place in the automaton of one kind, which char_shapes() has
  uint64_t *reach; // (states, words) kinds of which the character that has begun may become one
  int words;       // of a row of reach
} JsonChars;

// False: more states than an automaton can have.
bool json_chars_make(const CharKinds *kinds, JsonChars *chars);
void json_chars_free(JsonChars *chars);

enum { CHAR_SHAPES = 32 }; // most states of the automaton of one kind
