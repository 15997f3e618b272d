// Choosing the next token from logits: temperature, top-k, top-p; deterministic in (seed, position).
#pragma once
#include <stdint.h>

typedef struct SampleOptions {
  double temperature; // 0: the most likely token
  int64_t top_k;      // only the k most likely tokens; 0: all
  double top_p; // of these the fewest that together have this probability, in (0, 1]. Holtzman et al., "The curious
                // case of neural text degeneration", 2019
  uint64_t seed;
} SampleOptions;

typedef struct SampleCandidate {
  double logit, probability;
  int32_t id;
} SampleCandidate;

// Draws from logits (count). allowed (count) may be NULL; ids with allowed[id] == 0 are never drawn. Ties go to the
// lowest id. scratch: room for `count` candidates. Philox at (seed, position): the same token on every machine that
// has the same logits. -1 when no allowed logit is finite or one is NaN.
int32_t sample_token(const float *logits, int count, const uint8_t *allowed, const SampleOptions *options,
                     uint64_t position, SampleCandidate *scratch);
