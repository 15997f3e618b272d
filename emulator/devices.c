// Devices, contexts, and what this emulator does not do: kernels.
#include "emulator.h"
#include <stdio.h>
#include <stdlib.h>

CudaResult cuDeviceGetCount(int *count) {
  enter(__func__, NEEDS_INIT, NULL);
  *count = emulated_devices();
  return leave(CUDA_OK);
}

CudaResult cuDeviceGet(CudaDevice *device, int number) {
  enter(__func__, NEEDS_INIT, NULL);
  *device = number;
  return leave(number < 0 || number >= emulated_devices() ? CUDA_BAD_DEVICE : CUDA_OK);
}

CudaResult cuDeviceGetName(char *name, int size, CudaDevice device) {
  enter(__func__, NEEDS_INIT, NULL);
  check_device(__func__, device);
  snprintf(name, (size_t)size, "emulated device");
  return leave(CUDA_OK);
}

CudaResult cuDeviceGetAttribute(int *value, unsigned attribute, CudaDevice device) {
  enter(__func__, NEEDS_INIT, NULL);
  check_device(__func__, device);
  const char *capability = getenv("PLAIT_EMULATED_CAPABILITY");
  int major = 9, minor = 0;
  if (capability && sscanf(capability, "%d.%d", &major, &minor) != 2) wrong(__func__, "PLAIT_EMULATED_CAPABILITY is no 8.0");
  switch (attribute) {
  case CUDA_IS_MULTIPROCESSORS: *value = 2; break;
  case CUDA_IS_CAPABILITY_MAJOR: *value = major; break;
  case CUDA_IS_CAPABILITY_MINOR: *value = minor; break;
  default: wrong(__func__, "attribute %u is not emulated", attribute);
  }
  return leave(CUDA_OK);
}

CudaResult cuDevicePrimaryCtxRetain(CudaContext *context, CudaDevice device) {
  enter(__func__, NEEDS_INIT, NULL);
  *context = primary_context(check_device(__func__, device));
  return leave(CUDA_OK);
}

CudaResult cuCtxSetCurrent(CudaContext context) {
  enter(__func__, NEEDS_INIT, NULL);
  int known = !context;
  for (int i = 0; i < emulated_devices(); i++) known |= context == primary_context(i);
  if (!known) wrong(__func__, "%p is not a context", (void *)context);
  set_current(context);
  return leave(CUDA_OK);
}

// Kernels -----------------------------------------------------------------------------------------------------------

CudaResult cuModuleLoadData(CudaModule *module, const void *image) {
  CudaResult result = enter(__func__, NEEDS_CONTEXT, NULL);
  return leave(result ? result : CUDA_BAD_IMAGE);
}

CudaResult cuModuleUnload(CudaModule module) { wrong(__func__, "no module is loaded"); }

CudaResult cuModuleGetFunction(CudaFunction *function, CudaModule module, const char *name) {
  wrong(__func__, "no module is loaded, so there is no \"%s\"", name);
}

CudaResult cuLaunchKernel(CudaFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, CudaStream stream,
                          void **parameters, void **extra) {
  enum { MOST_THREADS = 1024, MOST_SHARED = 48 << 10, MOST_Z = 64, MOST_GRID = 65535 };
  enter(__func__, NEEDS_CONTEXT, NULL);
  if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z)
    wrong(__func__, "a grid of %u × %u × %u blocks of %u × %u × %u threads is empty", grid_x, grid_y, grid_z, block_x,
          block_y, block_z);
  if (grid_x > 0x7fffffff || grid_y > MOST_GRID || grid_z > MOST_GRID)
    wrong(__func__, "a grid of %u × %u × %u blocks is too large", grid_x, grid_y, grid_z);
  if (block_z > MOST_Z || (uint64_t)block_x * block_y * block_z > MOST_THREADS)
    wrong(__func__, "a block of %u × %u × %u threads is too large", block_x, block_y, block_z);
  if (shared_bytes > MOST_SHARED)
    wrong(__func__, "%u bytes of shared memory are more than the %d that a kernel has unasked", shared_bytes, MOST_SHARED);
  wrong(__func__, "%p is not a function: no module is loaded", (void *)function);
}

// Names of older interfaces -------------------------------------------------------------------------------------------

// Drivers still export them, with arguments of 32 bits, or of an older meaning.
#define OLD(name)                                                                                                      \
  void name(void);                                                                                                     \
  void name(void) { wrong(#name, "the driver's first, 32-bit interface; cuda.h maps this name to another one"); }
OLD(cuMemAlloc)
OLD(cuMemFree)
OLD(cuMemGetInfo)
OLD(cuMemcpyHtoD)
OLD(cuMemcpyDtoH)
OLD(cuMemcpyDtoD)
OLD(cuMemcpyHtoDAsync)
OLD(cuMemcpyDtoHAsync)
OLD(cuMemcpyDtoDAsync)
OLD(cuMemsetD8)
OLD(cuMemsetD32)
OLD(cuDeviceTotalMem)
OLD(cuCtxCreate)
OLD(cuCtxDestroy)
OLD(cuDevicePrimaryCtxRelease)
OLD(cuStreamDestroy)
OLD(cuEventDestroy)
OLD(cuMemHostRegister)
