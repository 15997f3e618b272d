// precision: auto of a run: chosen at its first start, and kept.
#pragma once
#include "recipe/recipe.h"
#include "runtime/launch.h"

// *recipe: the one asked for; where that says auto, with the precision and loss scale of the checkpoint that the run
// will start from, or else of run.dir's recipe.yaml (*kept; false: it does not say auto, or there is neither). The
// caller frees it.
int precision_of_run(const Recipe *asked, Recipe *recipe, bool *kept, Error *error);
// The same for a run that begins: where there is neither, with what this machine computes fast (of several, rank 0's).
// Says so in `text` (a line, or ""). Every rank calls it. `force`: as for resume_find. PLAIT_BAD_INPUT where the run's
// precision does not go with the rest of the recipe.
int precision_resolve(const Recipe *asked, const Launch *launch, bool force, Recipe *recipe, char *text, size_t size,
                      Error *error);
