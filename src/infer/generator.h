// Generation: a prompt in, one token after the other out. No KV cache: every token runs the whole window again.
#pragma once
#include "infer/sample.h"
#include "infer/single.h"

typedef struct Generator {
  Single model;
  SampleOptions sample;
  int vocab, window;
  const uint8_t *allowed; // (vocab), borrowed; NULL: all
  int32_t *ids;           // all tokens so far, prompt included
  int64_t count, capacity;
  int32_t *tokens, *positions, *documents, *index; // (window), (window), (window), (1)
  SampleCandidate *scratch;                        // (vocab)
} Generator;

// window: tokens that the model looks back on; beyond it the oldest fall out. The caller destroys it, also after an
// error.
int generator_create(Generator *g, const ModelSource *source, int64_t window, const SampleOptions *sample, int threads,
                     Error *error);
void generator_destroy(Generator *g); // also safe twice

// Appends tokens (a prompt). An id at or above the model's vocabulary is PLAIT_BAD_INPUT.
int generator_push(Generator *g, const int32_t *ids, int64_t count, Error *error);
// Logits (vocab) of what follows the tokens so far (at least one); valid until the next call.
int generator_logits(Generator *g, const float **logits, Error *error);
// Draws the next token and appends it.
int generator_next(Generator *g, int32_t *id, Error *error);
