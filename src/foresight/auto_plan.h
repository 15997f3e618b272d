// plan: auto: a run that searches for its plan before it starts.
#pragma once
#include "recipe/recipe.h"
#include "runtime/launch.h"
#include <stdio.h>

// *planned: where the recipe says plan: auto, its variant with the keys of the fastest plan for run.cluster and plan:
// fixed, so that the run's recipe.yaml keeps the plan; says to `out` what was chosen and why. Another recipe is as it
// was. The caller frees it (recipe_free) before the recipe, from which it borrows. Where ranks are
// processes, every one calls it, rank 0 measures and searches, and the others take its plan; then the plan is for as
// many ranks. Else it is for those of the recipe's mesh where it has more than one rank, else for as many as the
// cluster has devices. Returns the same on all ranks. PLAIT_BAD_INPUT: as predict_cluster; PLAIT_INFEASIBLE: as
// search_plans.
int auto_plan(const Recipe *recipe, const Launch *launch, FILE *out, Recipe *planned, Error *error);

// For commands that show a recipe's plan and do not search: a note to `out` where the recipe says plan: auto, that
// plait train would not run this one, and what finds the one that it would.
void auto_plan_note(const Recipe *recipe, FILE *out);
