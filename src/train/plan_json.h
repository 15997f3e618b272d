// The memory and time of a recipe, for programs: plait plan --json.
#pragma once
#include "recipe/recipe.h"

// The numbers of plan_print as one JSON object: memory of each pipeline coordinate by rows, FLOPs, and the time where
// it is known, simulated on run.cluster or estimated for this machine. Errors as plan_print; nothing is printed then.
int plan_json(const Recipe *recipe, FILE *out, Error *error);
