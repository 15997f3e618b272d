// Handles a step that was not finite and was skipped: skip, stop or roll back, as run.non_finite says.
#pragma once
#include "train/trainer.h"

enum {
  NON_FINITE_ROLLBACKS = 3, // without a finite checkpoint between them
  NON_FINITE_IN_A_ROW = 20  // after so long, weights, not batches, are to blame
};

// Of a skipped step: "step 12: layer 3, matmul …, rank 1 (…): infinite; skipped".
void non_finite_describe(const Training *x, char *text, size_t size);
