// Words of a line as a shell reads them, without variables and patterns: between blanks, in quotes where they hold
// some.
#pragma once
#include "base/error.h"
#include <stdio.h>

typedef struct Words { char **word; int count; } Words;

// 'single' and "double" quotes keep what is between them (\" and \\ in double ones, as \ before any character outside);
// # at the begin of a word ends the line. PLAIT_BAD_INPUT, without a prefix, where a quote is open at the end.
int words_split(const char *line, Words *words, Error *error);
void words_add(Words *words, const char *word); // copied
void words_free(Words *words);                  // safe on zeroed ones

// Prints a word so that a shell reads this word: as it is, or in single quotes.
void words_quote(const char *word, FILE *out);
