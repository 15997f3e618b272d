// Reads plait's files: tokenizers, and the tensors of checkpoints. Every argument is a number, a string or a pointer
// whose struct the caller need not know, so that other languages call these by name; docs/python.md is one that does.
//
//   PlaitError *error = plait_error_create();
//   PlaitCheckpoint *c;
//   if (plait_checkpoint_open("runs/my", &c, error)) fprintf(stderr, "%s\n", plait_error_message(error));
//
// Functions that can fail return a code of plait/error.h; any thread may call them, each object one thread at a time.
#pragma once
#include "plait/api.h"
#include "plait/error.h"
#include <stddef.h>
#include <stdint.h>

PLAIT_API_BEGIN

// A PlaitError for who does not know its size. plait_error_clear makes it ready for the next call.
PlaitError *plait_error_create(void);
const char *plait_error_message(const PlaitError *error); // "" while there is none
void plait_error_clear(PlaitError *error);
void plait_error_destroy(PlaitError *error); // NULL is fine

// Tokenizers ----------------------------------------------------------------------------------------------------------

typedef struct PlaitTokenizer PlaitTokenizer;

// A tokenizer.json, or a folder that has one. The caller closes *tokenizer; it is NULL after an error.
int plait_tokenizer_open(const char *path, PlaitTokenizer **tokenizer, PlaitError *error);
void plait_tokenizer_close(PlaitTokenizer *tokenizer); // NULL is fine
int plait_tokenizer_size(const PlaitTokenizer *tokenizer); // the largest id + 1

// The ids of a text of `bytes` bytes, UTF-8 or not. special: with what the tokenizer puts around a text (BOS, EOS).
// *ids belongs to the tokenizer until its next call.
int plait_tokenizer_encode(PlaitTokenizer *tokenizer, const char *text, size_t bytes, int special, const int32_t **ids,
                           int64_t *count, PlaitError *error);
// The bytes that ids stand for. special: with the text of special tokens. *text belongs to the tokenizer until its next
// call; a NUL follows it.
int plait_tokenizer_decode(PlaitTokenizer *tokenizer, const int32_t *ids, int64_t count, int special, const char **text,
                           size_t *bytes, PlaitError *error);

// Checkpoints ---------------------------------------------------------------------------------------------------------

typedef struct PlaitCheckpoint PlaitCheckpoint;

// A checkpoint, as runs/my/checkpoints/step-100, or a run, as runs/my, whose newest valid one is opened. It is whole,
// whatever ranks have written it. The caller closes *checkpoint; it is NULL after an error.
int plait_checkpoint_open(const char *path, PlaitCheckpoint **checkpoint, PlaitError *error);
void plait_checkpoint_close(PlaitCheckpoint *checkpoint); // NULL is fine
const char *plait_checkpoint_path(const PlaitCheckpoint *checkpoint);
int64_t plait_checkpoint_step(const PlaitCheckpoint *checkpoint);
const char *plait_checkpoint_extra(PlaitCheckpoint *checkpoint); // JSON: what the run keeps beside its tensors

// Its tensors, 0 to count - 1, sorted by name: parameters, the optimizer's moments, counters. Other numbers than these
// are answered with NULL, -1 or PLAIT_BAD_INPUT.
enum { PLAIT_MOST_DIMS = 8 };
int plait_checkpoint_count(const PlaitCheckpoint *checkpoint);
const char *plait_checkpoint_name(const PlaitCheckpoint *checkpoint, int tensor);
const char *plait_checkpoint_dtype(const PlaitCheckpoint *checkpoint, int tensor); // "fp32", "bf16", "int64"
int plait_checkpoint_dims(const PlaitCheckpoint *checkpoint, int tensor, int64_t dims[PLAIT_MOST_DIMS]); // how many

// Reads the whole tensor, row-major, into `size` bytes: as the dtype of that name, where both are floats another one
// than it is stored in. A part of the checkpoint that is damaged is PLAIT_BAD_INPUT, and so is another size.
int plait_checkpoint_read(PlaitCheckpoint *checkpoint, int tensor, const char *dtype, void *out, size_t size,
                          PlaitError *error);

PLAIT_API_END
