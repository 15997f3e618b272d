#!/bin/bash
# tier 1
# device/cuda/abi.h and entries.def say what CUDA's own header says: values, types of handles, and of each function; so do blas_abi.h and
# blas_entries.def of cuBLASLt's, and dnn_abi.h and dnn_entries.def of cuDNN's.
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
mkdir -p device/cuda && cp "$SOURCE"/src/device/cuda/{abi.h,entries.def,blas_abi.h,blas_entries.def,dnn_abi.h,dnn_entries.def} device/cuda/
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

if [ -e "$include/cudnn.h" ]; then
  cat >compare.c <<'C'
#include <cudnn.h>
#define DNN_HANDLES_ARE_THEIRS
typedef cudnnHandle_t DnnHandle;
#include "device/cuda/dnn_abi.h"
#define SAME(ours, theirs) _Static_assert(__builtin_types_compatible_p(ours, theirs), #ours)
SAME(DnnStatus, cudnnStatus_t);
SAME(DnnDtype, cudnnDataType_t);
SAME(DnnKind, cudnnBackendDescriptorType_t);
SAME(DnnAttribute, cudnnBackendAttributeName_t);
SAME(DnnType, cudnnBackendAttributeType_t);
SAME(DnnDescriptor, cudnnBackendDescriptor_t);
SAME(unsigned, cudnnPointwiseMode_t); // values of attributes
SAME(unsigned, cudnnReduceTensorOp_t);
SAME(unsigned, cudnnBackendHeurMode_t);
#define DNN_VALUE(ours, theirs, value) _Static_assert((int)(ours) == (int)(theirs), #theirs);
DNN_VALUES
#define DNN_ENTRY(result, name, parameters) SAME(name##_entry, __typeof__(name));
#include "device/cuda/dnn_entries.def"
C
  compiles || { head -20 errors; fail "dnn_abi.h is not what $include/cudnn.h says"; }
  sed -i 's/CUDNN_ATTR_TENSOR_STRIDES, 903/CUDNN_ATTR_TENSOR_STRIDES, 902/' device/cuda/dnn_abi.h
  compiles && fail "another value of cuDNN's passes"
  cp "$SOURCE/src/device/cuda/dnn_abi.h" device/cuda/
  sed -i 's/DnnType type, int64_t count/DnnType type, int count/' device/cuda/dnn_entries.def
  compiles && fail "another type of cuDNN's passes"
  grep -q cudnnBackendSetAttribute errors || fail "the comparison does not name cuDNN's function"
else
  echo "no cudnn.h here (NVIDIA's package cudnn), so dnn_abi.h is compared with nothing"
fi

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
