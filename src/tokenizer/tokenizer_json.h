// Helpers that the files which read tokenizer.json share.
#pragma once
#include "tokenizer/tokenizer.h"
#include <jansson.h>

typedef struct TokenizerReader {
  Tokenizer *t;
  const char *name; // of the file, for messages
  Error *error;
} TokenizerReader;

// PLAIT_BAD_INPUT with "NAME: KEY …".
int reader_refuse(const TokenizerReader *r, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Text of a member that must be a string; NULL after refusing. `bytes` may be NULL.
const char *reader_string(const TokenizerReader *r, const json_t *object, const char *key, const char *where,
                          int *bytes);
// Value of a member that must be true or false; `fallback` where it is absent or null; negative after refusing.
int reader_flag(const TokenizerReader *r, const json_t *object, const char *key, const char *where, int fallback);
char *reader_copy(const TokenizerReader *r, const char *text, int bytes); // into the arena, NUL-terminated
// Calls part for every member of a (nested) Sequence under `list`, or for the component itself; null is nothing.
typedef int (*ReaderPart)(const TokenizerReader *r, const json_t *component, const char *type, const char *where);
int reader_each(const TokenizerReader *r, const json_t *component, const char *where, const char *list,
                ReaderPart part);

int reader_replace(const TokenizerReader *r, const json_t *component, const char *where, NormalizerStep *step);
int reader_normalizer(const TokenizerReader *r, const json_t *component, const char *type, const char *where);
int reader_normalize_added(
    const TokenizerReader *r); // tokens that are matched in normalized text, after the normalizer

// The components: normalizer, pre_tokenizer, decoder, post_processor of the root object.
int reader_components(const TokenizerReader *r, const json_t *root);
// After everything is read: decoded texts, and what may be cut.
int reader_finish_decoder(const TokenizerReader *r);
void reader_finish_cuts(const TokenizerReader *r);
