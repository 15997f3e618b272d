// Parts of a regular expression that are one character: escapes, properties, and classes in brackets.
#pragma once
#include "base/error.h"
#include "tokenizer/unicode.h"

typedef struct PatternText {
  const char *at, *end;
  Error *error;
} PatternText;

// Every function moves text->at past the text that it read; negative (PLAIT_BAD_INPUT) with a reason.
int pattern_refuse(const PatternText *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
int pattern_character(PatternText *text, uint32_t *code); // the next one as it is

enum { ESCAPE_CODE, ESCAPE_SET };
// After a backslash: one character (ESCAPE_CODE) or a set, which it joins to *set (ESCAPE_SET). In a class some sets
// are others than alone: Oniguruma's \w has ², its [\w] has not.
int pattern_escape(PatternText *text, int in_class, uint32_t *code, UnicodeSet *set);
// After "[": the class up to its "]". `fold`: of both cases.
int pattern_class(PatternText *text, int fold, UnicodeSet *set);
// Adds the other cases of ASCII letters; letters outside ASCII have to be there all or not at all.
int pattern_fold(const PatternText *text, UnicodeSet *set);
