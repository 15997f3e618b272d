// CUDA's driver, loaded while plait runs: one binary serves machines with and without it.
#pragma once
#include "base/error.h"
#include "device/cuda/abi.h"

typedef struct CudaDriver {
  const char *path; // of the library
  int version;      // 13000: the newest CUDA that it is a driver for is 13.0
  int devices;      // once it is initialised
  CudaTakesOperands *takes_operands; // the emulated driver's; NULL: it is a real one
#define CUDA_ENTRY(name, parameters) name##_entry *name;
#include "device/cuda/entries.def"
#undef CUDA_ENTRY
} CudaDriver;

// Loads libcuda.so.1, or what PLAIT_CUDA_DRIVER names, once in a process. PLAIT_INFEASIBLE, with one sentence: there is
// no driver, it is too old, or it lacks an entry.
int cuda_driver_loaded(const CudaDriver **driver, Error *error);
// And initialises it, once in a process: it may fail, or have no device. A driver that has been initialised does not
// work in children that the process forks, so this is for those who run something on a device, after the last fork, and
// never for plans.
int cuda_driver(const CudaDriver **driver, Error *error);

// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
const char *cuda_result_text(const CudaDriver *driver, CudaResult result, char *text, size_t size);
