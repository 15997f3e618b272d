// A compiled grammar: nodes, one for each schema within the schema, and automata of strings and numbers.
#pragma once
#include "base/arena.h"
#include "base/vec.h"
#include "grammar/grammar.h"
#include "grammar/number_automaton.h"
#include "grammar/string_automaton.h"
#include <pthread.h>

typedef enum NodeKind {
  NODE_UNION,    // one of its parts; after grammar_finish none of these is a UNION
  NODE_STRING,   // strings[automaton]
  NODE_NUMBER,   // numbers[automaton]
  NODE_WORD,     // exactly its text
  NODE_OBJECT,   // parts are properties in order; rest: of other keys
  NODE_ARRAY,    // parts are the first elements; rest: of those after them
  NODE_SEQUENCE, // its parts one after another
  NODE_UNTIL     // text in which, after the trigger (its text), comes its part; without a part the trigger may not come
} NodeKind;

typedef struct Node {
  NodeKind kind;
  bool possible; // something matches it
  bool is_call;  // of an OBJECT: the call of a tool
  int automaton; // of an OBJECT: of its keys
  const char *text;
  size_t bytes;
  int count;
  int *parts;           // (count) nodes; in an OBJECT -1: the key may not be there
  int rest;             // -1: none
  int64_t min, max;     // elements of an ARRAY; max < 0: no bound
  bool *required;       // (count) of an OBJECT
  StringWord *names;    // (count) of an OBJECT
  int *next_required;   // (count + 1) the first required property from one on; count: none
  bool free, start, again; // of UNTIL: other text than the trigger may come; the trigger counts only where the text
                           // begins; after the part it begins anew
  bool must;               // of UNTIL: the text does not end but by its trigger, and has no special tokens
  bool blank;              // of UNTIL and SEQUENCE: one blank may stand before a part
  int *fallback;        // (bytes + 1) of UNTIL: the prefix of the trigger that remains after a mismatch
} Node;

typedef struct OneOf { int *nodes; int count; char *path; } OneOf; // alternatives that must not meet

typedef struct MaskCache MaskCache;
struct Grammar {
  Arena arena;
  Vec(Node) nodes;
  Vec(StringAutomaton) strings;
  Vec(NumberAutomaton) numbers;
  Vec(OneOf) one_of;
  int root;
  int any, plain_string, plain_number[2]; // nodes that many schemas share; -1 until they are made
  MaskCache *cache;
  int64_t cells; // of all tables of automata: how large the grammar is
};

Grammar *grammar_create(void);
int grammar_add(Grammar *g, Node node);              // its index
int grammar_word(Grammar *g, const char *text, size_t bytes); // copies the text
int grammar_string(Grammar *g, StringAutomaton a);   // takes it over
int grammar_number(Grammar *g, bool integer, const NumberBounds *bounds);
int grammar_any_string(Grammar *g);
int grammar_any(Grammar *g);                         // any JSON
int grammar_union(Grammar *g, const int *parts, int count); // copies the list
// After all nodes are there: says which are possible, drops what is not, flattens unions, makes automata of keys.
// PLAIT_BAD_INPUT: the keys of an object are too many, without a place.
int grammar_finish(Grammar *g, Error *error);
// After grammar_finish: PLAIT_BAD_INPUT where alternatives of a oneOf may have a document in common.
int grammar_check_one_of(const Grammar *g, Error *error);
