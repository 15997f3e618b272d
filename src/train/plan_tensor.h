// The bytes that each kind of tensor parallelism would move on the ranks of a recipe, for `plait plan`.
#pragma once
#include "recipe/recipe.h"
#include <stdio.h>

// Nothing where tp has fewer than 4 ranks, or the recipe its own Layout.
int plan_print_tensor(const Recipe *recipe, const ModelConfig *config, FILE *out, Error *error);
