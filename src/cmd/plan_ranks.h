// plait plan --nnodes: what a run whose ranks come and go needs at each number of them.
#pragma once
#include "recipe/recipe.h"
#include <stdio.h>

// For each number of machines of `nodes` ("4", or a range "1:4"), each with `processes` processes: data ranks, idle
// ranks, the cut of the batch and memory, a line each. mesh.dp of the recipe must be auto. PLAIT_BAD_INPUT: it is not,
// the range is not valid, or a mesh fits no number of machines.
int plan_ranks(const Recipe *recipe, const char *nodes, int processes, FILE *out, Error *error);
