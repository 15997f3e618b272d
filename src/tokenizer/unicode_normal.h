// Normal forms of Unicode, small letters, and texts without accents, character for character as Hugging Face has them.
#pragma once
#include "tokenizer/bpe.h"
#include "tokenizer/unicode.h"

typedef enum UnicodeForm {
  UNICODE_NFC,
  UNICODE_NFD,
  UNICODE_NFKC,
  UNICODE_NFKD,
  UNICODE_LOWERCASE,
  UNICODE_STRIP_ACCENTS
} UnicodeForm;

typedef struct UnicodePair { uint32_t first, second, whole; } UnicodePair;

// Tables; immutable after unicode_normal_create.
typedef struct UnicodeNormal {
  UnicodeMap classes;  // order of combining marks
  UnicodeMap touches;  // bit `form`: the character may change, or change its neighbours
  UnicodeMapping canonical, compatible, lower;
  Vec(UnicodePair) pairs; // by first, then second
} UnicodeNormal;
UnicodeNormal *unicode_normal_create(void);
void unicode_normal_destroy(UnicodeNormal *normal); // NULL is fine

typedef struct UnicodeScratch { Vec(uint32_t) points, sorted; } UnicodeScratch; // of one thread; zero-initialise
void unicode_scratch_free(UnicodeScratch *scratch);

// Replaces *out by the form of a text. 0: the text has it already and *out is not touched; -1: it would have more than
// `most` bytes (at most 1 GiB). Bytes that are not UTF-8 stay, and nothing is joined across them.
int unicode_normalize(const UnicodeNormal *normal, UnicodeForm form, UnicodeScratch *scratch, const char *text,
                      size_t bytes, int most, ByteVector *out);
