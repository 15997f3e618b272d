// precision: auto of a run: chosen at its first start, and kept.
#pragma once
#include "recipe/recipe.h"
#include "runtime/launch.h"

// Where the recipe says auto: takes the precision and loss scale of the checkpoint that the run will start from
// (`force`: as for resume_find), or else of run.dir's recipe.yaml. false: the recipe does not say auto, or there is
// neither.
bool precision_of_run(Recipe *recipe, bool force);
// Where the recipe says auto: that precision, or else what this machine computes fast (of several, rank 0's). Changes
// recipe->precision and its loss scale, and says so in `text` (a line, or ""). Every rank calls it. PLAIT_BAD_INPUT
// where the run's precision does not go with the rest of the recipe.
int precision_resolve(Recipe *recipe, const Launch *launch, bool force, char *text, size_t size, Error *error);
