// Devices, contexts, and the names of older interfaces.
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
