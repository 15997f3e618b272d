// The device that a recipe names, and what follows from it for the recipe.
#pragma once
#include "device/device.h"
#include "recipe/recipe.h"

const Device *recipe_device(const Recipe *recipe);
// Whether this build can run on it: PLAIT_BAD_INPUT where it has the device's description only, for plans.
int recipe_check_runs(const Recipe *recipe, Error *error);
// The meaning of precision: auto on this machine: DTYPE_BF16 where the device computes it fast, else DTYPE_F32.
Dtype recipe_fast_precision(const Recipe *recipe);
