// The training loop: everything that `plait train` does.
#pragma once
#include "train/recipe.h"

// Trains as the recipe says: opens and locks the run folder, compiles, resumes or initialises, runs to the last step or
// to a signal (then saves first), writing metrics and checkpoints. Messages and progress go to `out`.
// Returns PLAIT_OK, PLAIT_INTERRUPTED after a signal, or an error.
int train_run(const Recipe *recipe, FILE *out, Error *error);
