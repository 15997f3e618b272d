// From run.backend to a Device, and the precision that the device computes fast.
#include "recipe/recipe_device.h"

int recipe_device(const Recipe *recipe, const Device **device, Error *error) {
  static const char *const names[] = {[RECIPE_BACKEND_AUTO] = "auto", [RECIPE_BACKEND_CPU] = "cpu"};
  if (recipe->run.backend == RECIPE_BACKEND_CUDA) return *device = device_cuda(), PLAIT_OK;
  int code = device_by_name(names[recipe->run.backend], device, error);
  return code ? error_prefix(error, "run.backend") : PLAIT_OK;
}

Dtype recipe_fast_precision(const Recipe *recipe) {
  const Device *device;
  Error ignored = {0};
  if (recipe_device(recipe, &device, &ignored)) return DTYPE_F32;
  return device->fast_dtypes >> DTYPE_BF16 & 1 ? DTYPE_BF16 : DTYPE_F32;
}
