// Choosing the next token from logits: penalties, temperature, top-k, top-p, min-p; deterministic in (seed, position).
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct SampleBias { int32_t id; float bias; } SampleBias;

// All zero: the most likely token.
typedef struct SampleOptions {
  double temperature; // 0: the most likely token
  int64_t top_k;      // only the k most likely tokens; 0: all
  double top_p; // of these the fewest that together have this probability, in (0, 1]; 0: all. Holtzman et al., "The
                // curious case of neural text degeneration", 2019
  double min_p; // only tokens with at least this share of the most likely one's probability, in [0, 1]. Nguyen et al.,
                // "Turning up the heat: Min-p sampling for creative and coherent LLM outputs", 2024
  double repetition; // of a token that the text has, prompt included, a positive logit is divided by this and a
                     // negative one multiplied; 0: 1. Keskar et al., "CTRL", 2019
  double presence, frequency; // what a logit loses if its token was drawn before, and for each time that it was
  const SampleBias *bias;     // (biases) added to logits first; borrowed
  int biases;
  uint64_t seed;
} SampleOptions;

// A text so far: ids (count), of which the first `prompt` were given and the others drawn.
typedef struct SampleText { const int32_t *ids; int64_t count, prompt; } SampleText;

typedef struct SampleScratch {
  int count;
  float *value, *weight; // (count): logits, and probabilities over that of the most likely token
  int32_t *order;        // (count)
} SampleScratch;
void sample_scratch_create(SampleScratch *scratch, int count);
void sample_scratch_destroy(SampleScratch *scratch);

// Draws the token that follows the text from logits (scratch->count). allowed (count) may be NULL; ids with
// allowed[id] == 0 are never drawn. Ties go to the lowest id. Philox at (seed, text->count): the same token on every
// machine that has the same logits. -1 when no allowed logit is finite or one is NaN.
int32_t sample_token(const float *logits, const uint8_t *allowed, const SampleOptions *options, const SampleText *text,
                     SampleScratch *scratch);

// The most likely of some ids, as sample_token finds it at temperature 0: id -1 where none is finite, and value NaN
// where one is NaN.
typedef struct SampleBest { float value; int32_t id; } SampleBest;
typedef struct SampleRange { int32_t first, end; } SampleRange; // ids
// Of logits (count), of which the first one is that of the id `first`. Only ids of `range` are taken.
SampleBest sample_best(const float *logits, int64_t count, int32_t first, SampleRange range);
// Of both: so the best of parts of a vocabulary, in any order, becomes that of all.
SampleBest sample_better(SampleBest a, SampleBest b);
// sample_token with these options takes the best one of those that are allowed, whatever the text is.
bool sample_takes_best(const SampleOptions *options);
