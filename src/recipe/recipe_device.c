// From run.backend to a Device, and the precision that the device computes fast.
#include "recipe/recipe_device.h"
#include "base/fault.h"

const Device *recipe_device(const Recipe *recipe) { return device_describe((DeviceKind)recipe->run.backend); }

int recipe_check_runs(const Recipe *recipe, Error *error) {
  const Device *device = recipe_device(recipe);
  if (FAULT(described_devices_run, device->implementation != NULL, true)) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "%srun.backend is %s, which plait can plan and simulate for, but not run yet; to run, take "
                   "run.backend=cpu",
                   recipe_where(recipe, "run.backend"), device->name);
}

Dtype recipe_fast_precision(const Recipe *recipe) {
  return recipe_device(recipe)->fast_dtypes >> DTYPE_BF16 & 1 ? DTYPE_BF16 : DTYPE_F32;
}
