// The device that a recipe names, and what follows from it for the recipe.
#pragma once
#include "device/device.h"
#include "recipe/recipe.h"

int recipe_device(const Recipe *recipe, const Device **device, Error *error);
// What precision: auto means on this machine: DTYPE_BF16 where the device computes it fast, else DTYPE_F32.
Dtype recipe_fast_precision(const Recipe *recipe);
