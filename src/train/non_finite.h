// Handles a step that was not finite and was skipped: skip, stop or roll back, as run.non_finite says.
#pragma once
#include "checkpoint/checkpoint.h"
#include "runtime/rank.h"
#include "recipe/recipe.h"

enum {
  NON_FINITE_ROLLBACKS = 3, // without a finite checkpoint between them
  NON_FINITE_IN_A_ROW = 20  // after so long, weights, not batches, are to blame
};

// One rank's view; all ranks come to the same conclusions.
typedef struct Recovery {
  const Recipe *recipe;
  const char *checkpoints; // folder
  Checkpoint *start;       // the one from which the run continued, where the folder has none; may be NULL
  int rollbacks;           // since a checkpoint was saved after a finite step
  int rolled_back;         // the last step ended in one
  int in_a_row; // steps that were not finite, up to the last one, without those of the search for a loss scale
} Recovery;

// Whether the only cause is the search for a loss scale: gradients that were scaled too much.
int non_finite_is_scaling(const Recovery *v, const Rank *r, const StepResult *s);
// "step 12: layer 3, matmul …, rank 1 (…): infinite; skipped".
void non_finite_describe(const Recovery *v, const Rank *r, int64_t step, const StepResult *s, char *text, size_t size);
// Whether non_finite_recover may read the newest checkpoint, or end the run: one that is being written must be there
// first. The same on all ranks.
int non_finite_needs_files(const Recovery *v, const Rank *r, const StepResult *s);
// Acts on a skipped step; collective. *to: the checkpoint's step whose weights were loaded, -1: none were. Fails where
// the run is to stop, with one sentence.
int non_finite_recover(Recovery *v, Rank *r, int64_t step, const StepResult *s, int64_t *to, Error *error);
// After a checkpoint was saved: rollbacks to it are counted anew, unless it holds what was rolled back to.
void non_finite_saved(Recovery *v);
