// Text broken into lines of a terminal's width.
#pragma once
#include <stdio.h>

// The width to write for: the variable COLUMNS, else that of the terminal that `out` is, else 80; at least 40.
int wrap_columns(FILE *out);

// Writes text, broken at spaces, and a newline. The cursor stands in column `at`; further lines start in column
// `indent`. A newline in the text starts a line too. Characters count, not bytes; a word that is longer than a line
// stays whole.
void wrap_text(FILE *out, const char *text, int at, int indent, int columns);

int wrap_length(const char *text, int bytes); // characters in these bytes of UTF-8
