// Sorted candidates, cut by k and by p, then one uniform number.
#include "infer/sample.h"
#include "base/philox.h"
#include <math.h>
#include <stdlib.h>

static int more_likely_first(const void *a, const void *b) {
  const SampleCandidate *x = a, *y = b;
  if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
  return (x->id > y->id) - (x->id < y->id);
}

static int32_t most_likely(const SampleCandidate *c, int n) {
  int best = 0;
  for (int i = 1; i < n; i++)
    if (c[i].logit > c[best].logit) best = i;
  return c[best].id;
}

// 53 bits, so that even the rarest of a large vocabulary can be met.
static double uniform(uint64_t seed, uint64_t position) {
  uint32_t r[4];
  philox4x32(philox_key(seed, 0, philox_name("generate.sample")), (uint32_t)position, (uint32_t)(position >> 32), 0, 0,
             r);
  return (double)(((uint64_t)r[0] << 21) ^ (r[1] >> 11)) * 0x1p-53;
}

int32_t sample_token(const float *logits, int count, const uint8_t *allowed, const SampleOptions *options,
                     uint64_t position, SampleCandidate *scratch) {
  int n = 0;
  for (int i = 0; i < count; i++) {
    if (isnan(logits[i])) return -1;
    if ((!allowed || allowed[i]) && isfinite(logits[i])) scratch[n++] = (SampleCandidate){.logit = logits[i], .id = i};
  }
  if (!n) return -1;
  if (options->temperature <= 0) return most_likely(scratch, n);
  qsort(scratch, (size_t)n, sizeof *scratch, more_likely_first);
  if (options->top_k > 0 && options->top_k < n) n = (int)options->top_k;
  double total = 0, kept = 0;
  for (int i = 0; i < n; i++) {
    scratch[i].probability = exp((scratch[i].logit - scratch[0].logit) / options->temperature);
    total += scratch[i].probability;
  }
  int last = 0;
  for (kept = scratch[0].probability; last + 1 < n && kept < options->top_p * total;)
    kept += scratch[++last].probability;
  double at = uniform(options->seed, position) * kept, sum = 0;
  for (int i = 0; i <= last; i++)
    if ((sum += scratch[i].probability) > at) return scratch[i].id;
  return scratch[last].id;
}
