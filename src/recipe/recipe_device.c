// From run.backend to a Device, and the precision that the device computes fast.
#include "recipe/recipe_device.h"
#include "base/fault.h"
#include <stdlib.h>

const Device *recipe_device(const Recipe *recipe) { return device_describe((DeviceKind)recipe->run.backend); }

DeviceNumbers recipe_devices(const Recipe *recipe) {
  DeviceNumbers numbers = {.count = recipe->run.devices.count};
  CHECK(numbers.count <= DEVICE_MOST_NUMBERS);
  for (int i = 0; i < numbers.count; i++) numbers.number[i] = recipe->run.devices.items[i];
  return numbers;
}

int recipe_check_devices(const Recipe *recipe, Error *error) {
  const RecipeInts *list = &recipe->run.devices;
  for (int i = 0; i < list->count; i++)
    for (int k = 0; k < i; k++)
      if (FAULT(devices_may_be_named_twice, list->items[i] == list->items[k], 0))
        return error_set(error, PLAIT_BAD_INPUT,
                         "%srun.devices names device %d twice; ranks take devices in turn anyway",
                         recipe_where(recipe, "run.devices"), list->items[i]);
  return PLAIT_OK;
}

static int about_device(const Recipe *recipe, Error *error) {
  return error_prefix(error, "%srun.backend is %s", recipe_where(recipe, "run.backend"), recipe_device(recipe)->name);
}

int recipe_check_runs(const Recipe *recipe, Error *error) {
  int code = device_present(recipe_device(recipe), error);
  return FAULT(described_devices_run, code, PLAIT_OK) ? about_device(recipe, error) : PLAIT_OK;
}

// PLAIT_SPACE is an option that must not be off silently.
static int check_space(const Recipe *recipe, Error *error) {
  char ignored[160];
  if (device_shares_host(recipe_device(recipe)->kind) || device_space_wish(ignored, sizeof ignored) <= 0)
    return PLAIT_OK;
  error_set(error, PLAIT_BAD_INPUT, "PLAIT_SPACE=%s places the memory of the CPU's ranks only; unset it",
            getenv("PLAIT_SPACE"));
  return about_device(recipe, error);
}

int recipe_check_ready(const Recipe *recipe, Error *error) {
  const DeviceNumbers numbers = recipe_devices(recipe);
  int code = check_space(recipe, error);
  if (!code) code = recipe_check_runs(recipe, error);
  if (!code) code = device_ready(recipe_device(recipe), &numbers, error) ? about_device(recipe, error) : code;
  return code;
}

Dtype recipe_fast_precision(const Recipe *recipe) {
  return recipe_device(recipe)->fast_dtypes >> DTYPE_BF16 & 1 ? DTYPE_BF16 : DTYPE_F32;
}
