// Generation: a prompt in, one token after the other out. Keys and values of tokens stay in a cache; each tick computes
// those of the tokens that are new, a part of the prompt or one.
#pragma once
#include "infer/inference.h"
#include "infer/sample.h"

typedef struct Generator {
  Inference model;
  SampleOptions sample;
  int vocab, window, tick; // tick: the most tokens at a time
  const uint8_t *allowed; // (vocab), borrowed; NULL: all
  int32_t *ids;           // all tokens so far, prompt included; the same in every process
  int64_t count, capacity;
  int64_t begin, done; // the first token that is looked back on; those before `done` are in the cache
  int tokens;          // of the tick
  int32_t *input[INPUT_COUNT]; // of one data rank, all rows alike; NULL: not read
  float *logits;                                   // (rows, vocab) of all data ranks, on rank 0
  SampleCandidate *scratch;                        // (vocab)
  int32_t next;                                    // the token that was drawn last
} Generator;

// options: mode and rows are filled in. The window is options->seq: the most tokens that the model looks back on; where
// it is full, the older half falls out, and the rest is computed again. Where ranks are processes every process calls
// this and what follows. The caller destroys it, also after an error.
int generator_create(Generator *g, const ModelSource *source, const InferenceOptions *options,
                     const SampleOptions *sample, Launch *launch, Error *error);
void generator_destroy(Generator *g); // also safe twice

// Appends tokens (a prompt). An id at or above the model's vocabulary is PLAIT_BAD_INPUT.
int generator_push(Generator *g, const int32_t *ids, int64_t count, Error *error);
// Draws the next token, on rank 0, and appends it in every process. There is at least one token already.
int generator_next(Generator *g, int32_t *id, Error *error);
