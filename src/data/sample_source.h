// What makes the samples that a loader hands out: sample i from i alone, so that what a step trains on depends on its
// number. The one of text is a Sampler (data/sampler.h).
#pragma once
#include "base/error.h"
#include <stdint.h>

typedef struct SampleSource {
  void *self;
  int datasets;
  const int64_t *windows; // (datasets) samples of each in the one pass of an evaluation
  int64_t total;          // an evaluation: samples of all datasets, one after the other; training: INT64_MAX
  int64_t (*row)(const void *self, int input); // bytes of a sample's row of an input (ir/inputs.h); 0: it makes none
  // Fills sample i: to[id] is where its row of an input goes, NULL: it is not asked for. Samples after the end of an
  // evaluation have no targets. A negative code is an error. Called by one thread at a time.
  int (*read)(void *self, int64_t i, void *const *to, Error *error);
  void (*close)(void *self); // NULL is fine
} SampleSource;
