// Outputs of a graph for the host: an observer copies what OUTPUT nodes give, microbatch by microbatch, into arrays of
// the whole step.
#pragma once
#include "base/shares.h"
#include "op/op.h"

typedef struct OutputCopy {
  const char *node; // the OUTPUT node
  void *data;       // (samples of the step, …), row-major; NULL: it is not wanted
  Dtype dtype;      // of data
} OutputCopy;

// The observer of one rank. Ranks may share the arrays: each writes its own samples. Where several ranks have the same
// samples, one of them is enough.
typedef struct Outputs { const Shares *shares; const OutputCopy *output; int count; } Outputs;
