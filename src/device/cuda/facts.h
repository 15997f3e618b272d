// A CUDA driver about itself and its devices, for plait doctor.
#pragma once
#include "base/error.h"
#include "device/device.h"
#include <stdint.h>

// version: 13000 is CUDA 13.0. PLAIT_INFEASIBLE: as cuda_driver.
int cuda_driver_facts(const char **driver, int *version, int *devices, Error *error);

typedef struct CudaFacts {
  char name[64];
  int major, minor; // compute capability
  int multiprocessors;
  int64_t available, total; // bytes of memory
} CudaFacts;
int cuda_facts(int number, CudaFacts *facts, Error *error); // or why it cannot be used
// The library that it would use, of the driver that cuda_driver_facts has found; version: 130100 is cuBLASLt 13.1.0,
// 91900 is cuDNN 9.19.0.
typedef enum CudaLibrary { CUDA_LIBRARY_BLAS, CUDA_LIBRARY_DNN, CUDA_LIBRARIES } CudaLibrary;
int cuda_library_facts(CudaLibrary which, const char **library, size_t *version, Error *error);
int cuda_has_code(void); // whether this binary has kernels for cards
int cuda_has_kernels(const Device *instance); // whether the device runs kernels: those, or an emulated driver's
// Calls of ops with kernels that ran on the host all the same, since no kernel takes their operands so.
int64_t cuda_host_calls(const DeviceQueue *queue);
