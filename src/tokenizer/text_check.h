// Does a file look like text? Counts of what text does not hold, and a sentence where there is too much of it.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TextCheck {
  int64_t characters; // a byte that is not UTF-8 counts as one
  int64_t invalid;    // bytes that are not UTF-8
  int64_t wide;       // characters of several bytes
  int64_t no_text;    // lines of JSON whose text is null
  int64_t halves;     // halves of surrogate pairs in JSON, each of which became U+FFFD
  int64_t replaced;   // U+FFFD: what an earlier program put where it could not read a character
  int64_t nul, control; // bytes 0; other control characters that text does not hold
  bool utf16;         // begins with a byte order mark of UTF-16
  int64_t tokens, unknown; // where it is encoded: its tokens, and how many of them are the unknown token
  int64_t missed;          // bytes that the vocabulary lacks
  int64_t missed_at;       // the first of them: its byte, from 0, or the line, from 1
  bool missed_exact, missed_line;
  int64_t control_tokens;  // tokens that the text spells out and that are special: they became those tokens
  bool lines, lines_found; // it was read as lines of JSON; not because its name says so, but its contents
} TextCheck;

// Adds the counts of a piece of a text, which must not end within a character; begins: it is the file's first one.
void text_check_scan(TextCheck *check, const char *text, size_t bytes, bool begins);
void text_check_add(TextCheck *sum, const TextCheck *part);
// NONE: binary data or another encoding, which must not become tokens. DOUBTFUL: more than 5% of its characters are
// replaced or unknown, or NULs stand in it. Then why: the end of a sentence that begins with the file's name.
typedef enum TextVerdict { TEXT_IS_FINE, TEXT_IS_DOUBTFUL, TEXT_IS_NONE } TextVerdict;
TextVerdict text_check_verdict(const TextCheck *check, char *why, size_t size);
// Where the first byte is that the vocabulary lacks: "at byte 17", "in line 3".
void text_check_place(const TextCheck *check, char *text, size_t size);
