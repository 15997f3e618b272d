// Regular expressions of tokenizer.json (Oniguruma's Ruby syntax, as Hugging Face reads them) for PCRE2, by letters.
#pragma once
#include "base/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/unicode.h"

// An expression distinguishes only a few kinds of characters. Each kind gets a letter, a byte: ASCII characters their
// own, the others 128 and up, so that a text becomes one byte a character and every class a set of bytes. Which
// character is of which kind says unicode.h, not PCRE2: its Unicode version plays no part.
//
// Appends the expression over letters to *out (for PCRE2 without UTF, with PCRE2_MULTILINE and newlines \n) and fills
// *letters. PLAIT_BAD_INPUT with a reason where the expression is wrong or a construct is not supported.
int pattern_translate(const char *pattern, size_t bytes, ByteVector *out, UnicodeMap *letters, Error *error);
