// From run.backend to a Device, and the precision that the device computes fast.
#include "recipe/recipe_device.h"
#include "base/fault.h"

int recipe_device(const Recipe *recipe, const Device **device, Error *error) {
  static const char *const names[] = {[RECIPE_BACKEND_AUTO] = "auto", [RECIPE_BACKEND_CPU] = "cpu"};
  if (recipe->run.backend == RECIPE_BACKEND_CUDA) return *device = device_cuda(), PLAIT_OK;
  int code = device_by_name(names[recipe->run.backend], device, error);
  return code ? error_prefix(error, "run.backend") : PLAIT_OK;
}

int recipe_check_runs(const Recipe *recipe, Error *error) {
  const Device *device;
  int code = recipe_device(recipe, &device, error);
  if (code || FAULT(described_devices_run, device->implementation != NULL, true)) return code;
  return error_set(error, PLAIT_BAD_INPUT,
                   "%srun.backend is %s, which plait can plan and simulate for, but not run yet; to run, take "
                   "run.backend=cpu",
                   recipe_where(recipe, "run.backend"), device->name);
}

Dtype recipe_fast_precision(const Recipe *recipe) {
  const Device *device;
  Error ignored = {0};
  if (recipe_device(recipe, &device, &ignored)) return DTYPE_F32;
  return device->fast_dtypes >> DTYPE_BF16 & 1 ? DTYPE_BF16 : DTYPE_F32;
}
