// Which strings a schema allows, as an automaton over characters: any, those of an expression, those of a list, keys.
#pragma once
#include "base/error.h"
#include "grammar/json_chars.h"

enum { STRING_REFUSED = -1, STRING_OTHER = -2, RUN_ENDLESS = 255 };

// From every state of it a string that is accepted can be reached, but for bounds of lengths.
typedef struct StringAutomaton {
  JsonChars chars;
  CharKinds ranges; // which characters are of which kind
  int states, kinds;
  int32_t *next; // (states, kinds) a state or STRING_REFUSED; state 0 is the first one
  int32_t *out;  // (states) where a string may end: the word it is, 0 where there is no list; STRING_OTHER: it is none
                 // of the list; STRING_REFUSED: it may not end here
  int *class;    // (states) equal where the same kinds may follow
  uint8_t *run;  // (states) at least 1: for as many characters of the kinds that may follow here, each may follow those
                 // before it; RUN_ENDLESS: for all
  uint8_t *most; // (states) characters that may follow at most; RUN_ENDLESS: that many, or more
  bool any;      // it has one state, which all characters lead to
  bool others;   // strings that the list does not have are accepted too
  int64_t min, max; // of characters, where `any`; max < 0: no bound
  int *word_start, *words; // (states + 1) and their words: those that begin as a state has it, in order
} StringAutomaton;

// Strings of any characters.
void string_automaton_any(StringAutomaton *a, int64_t min, int64_t max);

// Strings in which an expression matches, of min … max characters (max < 0: no bound). The expression is what
// ECMA-262 and Python's re both have: characters, \t \n \r \f \v \0 \xHH \uHHHH \cX, \d \w \s \D \W \S, classes, groups
// (also named ones), |, * + ? {n} {n,} {n,m} (also lazy), ^ and $. PLAIT_BAD_INPUT: the reason, without a place. An
// automaton without states accepts nothing.
int string_automaton_pattern(StringAutomaton *a, const char *text, size_t bytes, int64_t min, int64_t max,
                             Error *error);

typedef struct StringWord { const char *text; size_t bytes; } StringWord; // UTF-8
// The words of a list, which are distinct, and where `others`, all other strings as well.
int string_automaton_words(StringAutomaton *a, const StringWord *words, int count, bool others, Error *error);

void string_automaton_free(StringAutomaton *a);

// Whether the character that has begun may become one that the state takes; place: within it, not 0.
bool string_is_live(const StringAutomaton *a, int state, int place);

// Whether some string may be accepted by both; lengths of `any` are not compared.
bool string_automata_meet(const StringAutomaton *a, const StringAutomaton *b);

// ---- for the files of this room ----

// An automaton over kinds while it is made.
typedef struct CharTable {
  CharKinds kinds;
  int states;
  int32_t *next; // (states, kinds.kinds)
  int32_t *out;  // (states)
} CharTable;
int pattern_table(const char *text, size_t bytes, CharTable *table, Error *error); // pattern.c
void char_table_free(CharTable *table);
