// cuBLASLt and cuDNN, loaded while plait runs.
#pragma once
#include "device/cuda/blas_abi.h"
#include "device/cuda/dnn_abi.h"
#include "device/cuda/driver.h"

typedef struct CudaBlas {
  char path[256];
  size_t version; // 130100 is 13.1.0
#define BLAS_ENTRY(result, name, parameters) name##_entry *name;
#include "device/cuda/blas_entries.def"
#undef BLAS_ENTRY
} CudaBlas;

// Loads it once in a process: of the driver's CUDA or an older one, but of none that is older than the nvcc of plait's
// kernels; from a folder of PLAIT_CUDA_LIBRARIES=DIR:DIR, else where the loader finds it, else from the folders
// nvidia/*/lib beside python3's packages. An emulated driver gets the emulator's, from PLAIT_CUDA_LIBRARIES alone.
// NULL, with a sentence: there is none, or it lacks an entry.
const CudaBlas *cuda_blas(const CudaDriver *driver, Error *error);

typedef struct CudaDnn {
  char path[256];
  size_t version; // 91900 is 9.19.0
#define DNN_ENTRY(result, name, parameters) name##_entry *name;
#include "device/cuda/dnn_entries.def"
#undef DNN_ENTRY
} CudaDnn;

enum { DNN_OLDEST = 91000 };
// The same of libcudnn.so.9, of version 9.10 or newer, made for such a CUDA.
const CudaDnn *cuda_dnn(const CudaDriver *driver, Error *error);
