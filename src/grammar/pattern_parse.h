// Regular expressions of schemas as a tree.
#pragma once
#include "base/error.h"
#include "base/vec.h"
#include "grammar/grammar.h"
#include "tokenizer/unicode.h"

typedef enum PatternKind { PATTERN_EMPTY, PATTERN_SET, PATTERN_THEN, PATTERN_OR, PATTERN_REPEAT, PATTERN_BEGIN,
                           PATTERN_END } PatternKind;
typedef struct PatternNode {
  PatternKind kind;
  int a, b;     // parts: of THEN and OR two, of REPEAT one
  int min, max; // of REPEAT; max < 0: no bound
  int set;      // of SET
} PatternNode;

typedef struct PatternTree {
  Vec(PatternNode) nodes;
  Vec(UnicodeSet) sets; // tidy
  int root;
} PatternTree;

// PLAIT_BAD_INPUT: the reason, without a place. Free it in both cases.
int pattern_parse(const char *text, size_t bytes, PatternTree *tree, Error *error);
void pattern_tree_free(PatternTree *tree);
