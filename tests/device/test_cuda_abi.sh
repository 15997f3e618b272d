#!/bin/bash
# tier 1
# device/cuda/abi.h and entries.def say what CUDA's own header says: values, types of handles, and of each function; so do blas_abi.h and
# blas_entries.def of cuBLASLt's.
. "$SOURCE/tests/script.sh"
include=''
for folder in "${CUDA_HOME-}" "$(dirname "$(dirname "$(command -v nvcc)")")" /usr/local/cuda /usr; do
  [ -z "$include" ] && [ -e "$folder/include/cuda.h" ] && include=$folder/include
done
if [ -z "$include" ]; then
  command -v nvcc >/dev/null && fail "nvcc is here, and cuda.h is not beside it" && finish
  echo "skipped: no cuda.h here (NVIDIA's package cuda-driver-dev), so abi.h is compared with nothing"
  exit 77
fi
mkdir -p device/cuda && cp "$SOURCE"/src/device/cuda/{abi.h,entries.def,blas_abi.h,blas_entries.def} device/cuda/
cat >compare.c <<'C'
#include <cuda.h>
#include "device/cuda/abi.h"
#define SAME(ours, theirs) _Static_assert(__builtin_types_compatible_p(ours, theirs), #ours)
SAME(CudaDevice, CUdevice);
SAME(CudaPointer, CUdeviceptr);
SAME(CudaContext, CUcontext);
SAME(CudaStream, CUstream);
SAME(CudaEvent, CUevent);
SAME(CudaModule, CUmodule);
SAME(CudaFunction, CUfunction);
SAME(CudaResult, CUresult);
#define CUDA_VALUE(ours, theirs, value) _Static_assert((int)(ours) == (int)(theirs), #theirs);
CUDA_VALUES
#define CUDA_ENTRY(name, parameters) SAME(name##_entry, __typeof__(name));
#include "device/cuda/entries.def"
_Static_assert(CUDA_OLDEST <= CUDA_VERSION, "");
C
compiles() { ${CC:-cc} -std=gnu11 -fsyntax-only -isystem "$include" -I. compare.c >errors 2>&1; }
compiles || { cat errors; fail "abi.h is not what $include/cuda.h says"; }
# and the comparison would notice
sed -i 's/CU_STREAM_NON_BLOCKING, 1/CU_STREAM_NON_BLOCKING, 2/' device/cuda/abi.h
compiles && fail "another value passes"
cp "$SOURCE/src/device/cuda/abi.h" device/cuda/
sed -i 's/cuMemAlloc_v2, (CudaPointer \* address, size_t/cuMemAlloc_v2, (CudaPointer * address, unsigned/' device/cuda/entries.def
compiles && fail "another type passes"
grep -q cuMemAlloc_v2 errors || fail "the comparison does not name the function"
cp "$SOURCE/src/device/cuda/entries.def" device/cuda/

if [ ! -e "$include/cublasLt.h" ]; then
  echo "no cublasLt.h here (NVIDIA's package libcublas-dev), so blas_abi.h is compared with nothing"
  finish
fi
cat >compare.c <<'C'
#include <cublasLt.h>
#include <stddef.h>
#define BLAS_HANDLES_ARE_THEIRS
typedef cublasLtHandle_t BlasHandle;
typedef cublasLtMatmulDesc_t BlasProduct;
typedef cublasLtMatrixLayout_t BlasLayout;
typedef cublasLtMatmulPreference_t BlasWish;
#define BlasAlgorithm cublasLtMatmulAlgo_t // in the types of functions
#define BlasProposal cublasLtMatmulHeuristicResult_t
#include "device/cuda/blas_abi.h"
#undef BlasAlgorithm
#undef BlasProposal
#define SAME(ours, theirs) _Static_assert(__builtin_types_compatible_p(ours, theirs), #ours)
SAME(BlasStatus, cublasStatus_t);
SAME(BlasDtype, cudaDataType_t);
SAME(BlasCompute, cublasComputeType_t);
SAME(BlasAttribute, cublasLtMatmulDescAttributes_t);
SAME(BlasAttribute, cublasLtMatmulPreferenceAttributes_t);
#define BLAS_VALUE(ours, theirs, value) _Static_assert((int)(ours) == (int)(theirs), #theirs);
BLAS_VALUES
#define BLAS_ENTRY(result, name, parameters) SAME(name##_entry, __typeof__(name));
#include "device/cuda/blas_entries.def"
BLAS_STRUCTS
_Static_assert(sizeof(BlasAlgorithm) == sizeof(cublasLtMatmulAlgo_t), "");
_Static_assert(sizeof(BlasProposal) == sizeof(cublasLtMatmulHeuristicResult_t), "");
_Static_assert(offsetof(BlasProposal, workspace) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize), "");
_Static_assert(offsetof(BlasProposal, status) == offsetof(cublasLtMatmulHeuristicResult_t, state), "");
C
compiles || { head -20 errors; fail "blas_abi.h is not what $include/cublasLt.h says"; }
sed -i 's/CUBLASLT_MATMUL_DESC_EPILOGUE, 7/CUBLASLT_MATMUL_DESC_EPILOGUE, 8/' device/cuda/blas_abi.h
compiles && fail "another value of cuBLASLt's passes"
cp "$SOURCE/src/device/cuda/blas_abi.h" device/cuda/
sed -i 's/uint64_t columns, int64_t step/uint64_t columns, int32_t step/' device/cuda/blas_entries.def
compiles && fail "another type of cuBLASLt's passes"
grep -q cublasLtMatrixLayoutCreate errors || fail "the comparison does not name cuBLASLt's function"
finish
