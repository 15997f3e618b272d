// Normalizers: what a tokenizer does to a text before it looks for words.
#pragma once
#include "base/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/tokenizer_split.h"
#include "tokenizer/unicode_normal.h"

typedef enum NormalizerKind {
  NORMALIZE_PREPEND,
  NORMALIZE_REPLACE,
  NORMALIZE_EXPRESSION,
  NORMALIZE_STRIP,
  NORMALIZE_FORM
} NormalizerKind;

typedef struct NormalizerStep {
  NormalizerKind kind;
  const char *prepend, *from, *to;
  int prepend_bytes, from_bytes, to_bytes;
  SplitStep expression; // replaced by `to`
  UnicodeForm form;
  int strip_left, strip_right; // white space, NORMALIZE_STRIP
} NormalizerStep;

typedef struct NormalizerScratch { // zero-initialise
  ByteVector text, other;
  UnicodeScratch unicode;
  SplitScratch split;
} NormalizerScratch;
void normalizer_scratch_free(NormalizerScratch *scratch);

// Applies the steps to *text; the result is the text itself or lies in the scratch. `continues`: nothing is prepended.
// `unicode` may be NULL where no step has a form.
int normalizer_run(const NormalizerStep *steps, int count, const UnicodeNormal *unicode, NormalizerScratch *scratch,
                   int continues, const char **text, size_t *bytes, Error *error);
