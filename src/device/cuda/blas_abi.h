// The part of cuBLASLt's interface that plait uses, declared by hand as device/cuda/abi.h does the driver's.
// tests/device/test_cuda_abi.sh compares all of it with cublasLt.h.
#pragma once
#include "device/cuda/abi.h"
#include <stdint.h>

typedef unsigned BlasStatus, BlasDtype, BlasCompute, BlasAttribute; // cublasLt.h has enumerations
#ifndef BLAS_HANDLES_ARE_THEIRS // the test has cublasLt.h's own types
typedef struct BlasHandle_s *BlasHandle;
typedef struct BlasProduct_s *BlasProduct; // how to multiply: transpositions, epilogue
typedef struct BlasLayout_s *BlasLayout;   // of a matrix
typedef struct BlasWish_s *BlasWish;       // what algorithms may be proposed
#endif
#define BLAS_STRUCTS                                                                                                   \
  typedef struct BlasAlgorithm { uint64_t data[8]; } BlasAlgorithm;                                                    \
  typedef struct BlasProposal {                                                                                        \
    BlasAlgorithm algorithm;                                                                                           \
    size_t workspace;                                                                                                  \
    BlasStatus status;                                                                                                 \
    float waves;                                                                                                       \
    int reserved[4];                                                                                                   \
  } BlasProposal;
#ifndef BLAS_HANDLES_ARE_THEIRS
BLAS_STRUCTS
#endif

// BLAS_VALUE(ours, theirs, value)
#define BLAS_VALUES                                                                                                    \
  BLAS_VALUE(BLAS_OK, CUBLAS_STATUS_SUCCESS, 0)                                                                        \
  BLAS_VALUE(BLAS_BAD_VALUE, CUBLAS_STATUS_INVALID_VALUE, 7)                                                           \
  BLAS_VALUE(BLAS_UNSUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED, 15)                                                        \
  BLAS_VALUE(BLAS_F32, CUDA_R_32F, 0)                                                                                  \
  BLAS_VALUE(BLAS_F64, CUDA_R_64F, 1)                                                                                  \
  BLAS_VALUE(BLAS_F16, CUDA_R_16F, 2)                                                                                  \
  BLAS_VALUE(BLAS_BF16, CUDA_R_16BF, 14)                                                                               \
  BLAS_VALUE(BLAS_SUMS_F32, CUBLAS_COMPUTE_32F, 68)                                                                    \
  BLAS_VALUE(BLAS_SUMS_F64, CUBLAS_COMPUTE_64F, 70)                                                                    \
  BLAS_VALUE(BLAS_AS_IT_IS, CUBLAS_OP_N, 0)                                                                            \
  BLAS_VALUE(BLAS_TRANSPOSED, CUBLAS_OP_T, 1)                                                                          \
  BLAS_VALUE(BLAS_IS_A_TRANSPOSED, CUBLASLT_MATMUL_DESC_TRANSA, 3)                                                     \
  BLAS_VALUE(BLAS_IS_B_TRANSPOSED, CUBLASLT_MATMUL_DESC_TRANSB, 4)                                                     \
  BLAS_VALUE(BLAS_IS_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                                       \
  BLAS_VALUE(BLAS_IS_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                                                       \
  BLAS_VALUE(BLAS_IS_BEFORE, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11)                                            \
  BLAS_VALUE(BLAS_IS_BEFORE_STEP, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12)                                            \
  BLAS_VALUE(BLAS_ADDS_NOTHING, CUBLASLT_EPILOGUE_DEFAULT, 1)                                                          \
  BLAS_VALUE(BLAS_ADDS_BIAS, CUBLASLT_EPILOGUE_BIAS, 4)                                                                \
  BLAS_VALUE(BLAS_GELU, CUBLASLT_EPILOGUE_GELU, 32)                                                                    \
  BLAS_VALUE(BLAS_GELU_KEEPS, CUBLASLT_EPILOGUE_GELU_AUX, 160)                                                         \
  BLAS_VALUE(BLAS_GELU_SLOPE, CUBLASLT_EPILOGUE_DGELU, 192)                                                            \
  BLAS_VALUE(BLAS_IS_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                           \
  BLAS_VALUE(BLAS_IS_REDUCTION, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)                                         \
  BLAS_VALUE(BLAS_IS_A_ALIGNED, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                         \
  BLAS_VALUE(BLAS_IS_B_ALIGNED, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                                         \
  BLAS_VALUE(BLAS_IS_C_ALIGNED, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                                         \
  BLAS_VALUE(BLAS_IS_D_ALIGNED, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)                                         \
  BLAS_VALUE(BLAS_REDUCES_NOT, CUBLASLT_REDUCTION_SCHEME_NONE, 0)                                                      \
  BLAS_VALUE(BLAS_REDUCES_SUMS, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)

enum {
#define BLAS_VALUE(ours, theirs, value) ours = value,
  BLAS_VALUES
#undef BLAS_VALUE
};

#define BLAS_ENTRY(result, name, parameters) typedef result name##_entry parameters;
#include "device/cuda/blas_entries.def"
#undef BLAS_ENTRY

// The emulator's library alone has this symbol: it is taken with the emulated driver, and no other is.
#define BLAS_EMULATED "emulated_cublaslt"
