// precision: auto of a run: chosen at its first start, and kept.
#pragma once
#include "recipe/recipe.h"
#include "runtime/launch.h"

// Where the recipe says auto: takes the precision and loss scale of the run that run.dir holds already, or of the
// checkpoint that checkpoint.resume names. false: the recipe does not say auto, or there is neither.
bool precision_of_run(Recipe *recipe);
// Where the recipe says auto: the precision of the run that run.dir holds already, or of the checkpoint that
// checkpoint.resume names, else what this machine computes fast (of several, rank 0's). Changes recipe->precision and
// its loss scale, and says so in `text` (a line, or ""). Every rank calls it. PLAIT_BAD_INPUT where the run's precision
// does not go with the rest of the recipe.
int precision_resolve(Recipe *recipe, const Launch *launch, char *text, size_t size, Error *error);
