// The device that a recipe names, and what follows from it for the recipe.
#pragma once
#include "device/device.h"
#include "recipe/recipe.h"

const Device *recipe_device(const Recipe *recipe);
DeviceNumbers recipe_devices(const Recipe *recipe);
// Whether each number of run.devices stands there once.
int recipe_check_devices(const Recipe *recipe, Error *error);
// Whether this machine can run on it: device_present, for processes that may still fork; and device_ready as well, for
// those whose ranks will.
int recipe_check_runs(const Recipe *recipe, Error *error);
int recipe_check_ready(const Recipe *recipe, Error *error);
// The meaning of precision: auto on this machine: DTYPE_BF16 where the device computes it fast, else DTYPE_F32.
Dtype recipe_fast_precision(const Recipe *recipe);
