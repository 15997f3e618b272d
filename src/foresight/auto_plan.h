// plan: auto: a run that searches for its plan before it starts.
#pragma once
#include "recipe/recipe.h"
#include "runtime/launch.h"
#include <stdio.h>

// Where the recipe says plan: auto, replaces its open keys by those of the fastest plan for run.cluster, says to `out`
// what was chosen and why, and makes it plan: fixed, so that the run's recipe.yaml keeps the plan. Where ranks are
// processes, every one calls it, rank 0 measures and searches, and the others take its plan; then the plan is for as
// many ranks. Else it is for those of the recipe's mesh where it has more than one rank, else for as many as the
// cluster has devices. Returns the same on all ranks. PLAIT_BAD_INPUT: as predict_cluster; PLAIT_INFEASIBLE: as
// search_plans.
int auto_plan(Recipe *recipe, const Launch *launch, FILE *out, Error *error);

// For commands that show a recipe's plan and do not search: a note to `out` where the recipe says plan: auto, that
// plait train would not run this one, and what finds the one that it would.
void auto_plan_note(const Recipe *recipe, FILE *out);
