// The part of the CUDA driver's interface that plait uses, declared by hand, so that neither building plait nor its
// emulator (emulator/) needs CUDA's headers. tests/device/test_cuda_abi.sh compares all of it with them.
#pragma once
#include <stddef.h>

typedef unsigned CudaResult; // cuda.h has an enumeration
typedef int CudaDevice;
typedef unsigned long long CudaPointer; // an address in a device's memory
typedef struct CUctx_st *CudaContext;
typedef struct CUstream_st *CudaStream;
typedef struct CUevent_st *CudaEvent;
typedef struct CUmod_st *CudaModule;
typedef struct CUfunc_st *CudaFunction;

// CUDA_VALUE(ours, theirs, value)
#define CUDA_VALUES                                                                                                    \
  CUDA_VALUE(CUDA_OK, CUDA_SUCCESS, 0)                                                                                 \
  CUDA_VALUE(CUDA_BAD_VALUE, CUDA_ERROR_INVALID_VALUE, 1)                                                              \
  CUDA_VALUE(CUDA_NO_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, 2)                                                              \
  CUDA_VALUE(CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE, 100)                                                                \
  CUDA_VALUE(CUDA_BAD_DEVICE, CUDA_ERROR_INVALID_DEVICE, 101)                                                          \
  CUDA_VALUE(CUDA_BAD_IMAGE, CUDA_ERROR_INVALID_IMAGE, 200)                                                            \
  CUDA_VALUE(CUDA_NOT_FOUND, CUDA_ERROR_NOT_FOUND, 500)                                                                \
  CUDA_VALUE(CUDA_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                    \
  CUDA_VALUE(CUDA_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED, 719)                                                        \
  CUDA_VALUE(CUDA_IS_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                    \
  CUDA_VALUE(CUDA_IS_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                               \
  CUDA_VALUE(CUDA_IS_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                               \
  CUDA_VALUE(CUDA_STREAM_OF_ITS_OWN, CU_STREAM_NON_BLOCKING, 1)                                                        \
  CUDA_VALUE(CUDA_EVENT_WITH_TIME, CU_EVENT_DEFAULT, 0)                                                                \
  CUDA_VALUE(CUDA_EVENT_WITHOUT_TIME, CU_EVENT_DISABLE_TIMING, 2)                                                      \
  CUDA_VALUE(CUDA_HOST_FOR_ALL, CU_MEMHOSTALLOC_PORTABLE, 1)                                                           \
  CUDA_VALUE(CUDA_REGISTERED_FOR_ALL, CU_MEMHOSTREGISTER_PORTABLE, 1)

enum {
#define CUDA_VALUE(ours, theirs, value) ours = value,
  CUDA_VALUES
#undef CUDA_VALUE
};

// The oldest driver has these entries: CUDA 12.0, as cuDriverGetVersion says it.
enum { CUDA_OLDEST = 12000 };

#define CUDA_ENTRY(name, parameters) typedef CudaResult name##_entry parameters;
#include "device/cuda/entries.def"
#undef CUDA_ENTRY

// The emulated driver alone has this function, and takes by it the operands of the calling thread's next launch; and it
// takes an image of kernels that begins with this text.
enum { CUDA_READS = 1, CUDA_WRITES = 2 };
typedef struct CudaOperand { const char *name; CudaPointer at; size_t bytes; unsigned mode; } CudaOperand;
typedef void CudaTakesOperands(const CudaOperand *operand, int count);
#define CUDA_TAKES_OPERANDS "emulated_operands"
#define CUDA_EMULATED_IMAGE "the emulated driver's own kernels"
