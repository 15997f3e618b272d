// The part of cuDNN's graph interface that plait uses, declared by hand as device/cuda/abi.h does the driver's.
// tests/device/test_cuda_abi.sh compares all of it with cudnn.h.
#pragma once
#include "device/cuda/abi.h"
#include <stdint.h>

typedef unsigned DnnStatus, DnnDtype, DnnKind, DnnAttribute, DnnType; // cudnn.h has enumerations
typedef void *DnnDescriptor;
#ifndef DNN_HANDLES_ARE_THEIRS // the test has cudnn.h's own type
typedef struct DnnHandle_s *DnnHandle;
#endif

// DNN_VALUE(ours, theirs, value). Kinds of descriptors, then their attributes, then the types and values of these.
#define DNN_VALUES                                                                                                     \
  DNN_VALUE(DNN_OK, CUDNN_STATUS_SUCCESS, 0)                                                                           \
  DNN_VALUE(DNN_BAD_VALUE, CUDNN_STATUS_BAD_PARAM, 2000)                                                               \
  DNN_VALUE(DNN_UNSUPPORTED, CUDNN_STATUS_NOT_SUPPORTED, 3000)                                                         \
  DNN_VALUE(DNN_POINTWISE, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                                                      \
  DNN_VALUE(DNN_CONFIGURATION, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                                                  \
  DNN_VALUE(DNN_HEURISTIC, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                                                     \
  DNN_VALUE(DNN_PLAN, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                                      \
  DNN_VALUE(DNN_DO_POINTWISE, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                                        \
  DNN_VALUE(DNN_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                                                    \
  DNN_VALUE(DNN_PACK, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                                                       \
  DNN_VALUE(DNN_TENSOR, CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                                                           \
  DNN_VALUE(DNN_MATMUL, CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)                                                           \
  DNN_VALUE(DNN_DO_MATMUL, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)                                              \
  DNN_VALUE(DNN_REDUCTION, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)                                                     \
  DNN_VALUE(DNN_DO_REDUCTION, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)                                        \
  DNN_VALUE(DNN_DO_RESHAPE, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)                                            \
  DNN_VALUE(DNN_PROPERTIES, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38)                                                   \
  DNN_VALUE(DNN_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MODE, 0)                                                          \
  DNN_VALUE(DNN_POINTWISE_COMPUTES, CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                                                 \
  DNN_VALUE(DNN_POINTWISE_AXIS, CUDNN_ATTR_POINTWISE_AXIS, 9)                                                          \
  DNN_VALUE(DNN_HEURISTIC_MODE, CUDNN_ATTR_ENGINEHEUR_MODE, 200)                                                       \
  DNN_VALUE(DNN_HEURISTIC_GRAPH, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                                           \
  DNN_VALUE(DNN_HEURISTIC_RESULTS, CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                                                 \
  DNN_VALUE(DNN_HEURISTIC_PROPERTIES, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204)                                           \
  DNN_VALUE(DNN_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)                                                    \
  DNN_VALUE(DNN_PLAN_CONFIGURATION, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                                      \
  DNN_VALUE(DNN_PLAN_WORKSPACE, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                                         \
  DNN_VALUE(DNN_PLAN_PROPERTIES, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 407)                                            \
  DNN_VALUE(DNN_DO_POINTWISE_HOW, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                                   \
  DNN_VALUE(DNN_DO_POINTWISE_X, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)                                             \
  DNN_VALUE(DNN_DO_POINTWISE_B, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)                                             \
  DNN_VALUE(DNN_DO_POINTWISE_Y, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)                                             \
  DNN_VALUE(DNN_DO_POINTWISE_T, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)                                             \
  DNN_VALUE(DNN_GRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)                                                   \
  DNN_VALUE(DNN_GRAPH_OPERATIONS, CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                                                  \
  DNN_VALUE(DNN_TENSOR_ALIGNMENT, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                                               \
  DNN_VALUE(DNN_TENSOR_DTYPE, CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                                                        \
  DNN_VALUE(DNN_TENSOR_SIZES, CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                                                       \
  DNN_VALUE(DNN_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_STRIDES, 903)                                                        \
  DNN_VALUE(DNN_TENSOR_NUMBER, CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                                                       \
  DNN_VALUE(DNN_TENSOR_IS_VIRTUAL, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                                                  \
  DNN_VALUE(DNN_TENSOR_IS_VALUE, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                                                   \
  DNN_VALUE(DNN_PACK_NUMBERS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                                                \
  DNN_VALUE(DNN_PACK_POINTERS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                                            \
  DNN_VALUE(DNN_PACK_WORKSPACE, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                                               \
  DNN_VALUE(DNN_MATMUL_COMPUTES, CUDNN_ATTR_MATMUL_COMP_TYPE, 1500)                                                    \
  DNN_VALUE(DNN_DO_MATMUL_A, CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)                                                  \
  DNN_VALUE(DNN_DO_MATMUL_B, CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)                                                  \
  DNN_VALUE(DNN_DO_MATMUL_C, CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)                                                  \
  DNN_VALUE(DNN_DO_MATMUL_HOW, CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)                                                 \
  DNN_VALUE(DNN_REDUCTION_OPERATOR, CUDNN_ATTR_REDUCTION_OPERATOR, 1600)                                               \
  DNN_VALUE(DNN_REDUCTION_COMPUTES, CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601)                                              \
  DNN_VALUE(DNN_DO_REDUCTION_X, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)                                            \
  DNN_VALUE(DNN_DO_REDUCTION_Y, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)                                            \
  DNN_VALUE(DNN_DO_REDUCTION_HOW, CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)                                           \
  DNN_VALUE(DNN_DO_RESHAPE_X, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200)                                                \
  DNN_VALUE(DNN_DO_RESHAPE_Y, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)                                                \
  DNN_VALUE(DNN_PROPERTIES_TEXT, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)                                      \
  DNN_VALUE(DNN_IS_HANDLE, CUDNN_TYPE_HANDLE, 0)                                                                       \
  DNN_VALUE(DNN_IS_DTYPE, CUDNN_TYPE_DATA_TYPE, 1)                                                                     \
  DNN_VALUE(DNN_IS_BOOLEAN, CUDNN_TYPE_BOOLEAN, 2)                                                                     \
  DNN_VALUE(DNN_IS_INT64, CUDNN_TYPE_INT64, 3)                                                                         \
  DNN_VALUE(DNN_IS_POINTER, CUDNN_TYPE_VOID_PTR, 6)                                                                    \
  DNN_VALUE(DNN_IS_HEURISTIC_MODE, CUDNN_TYPE_HEUR_MODE, 8)                                                            \
  DNN_VALUE(DNN_IS_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 14)                                                      \
  DNN_VALUE(DNN_IS_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                                                      \
  DNN_VALUE(DNN_IS_REDUCTION, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)                                                  \
  DNN_VALUE(DNN_IS_CHAR, CUDNN_TYPE_CHAR, 24)                                                                          \
  DNN_VALUE(DNN_F32, CUDNN_DATA_FLOAT, 0)                                                                              \
  DNN_VALUE(DNN_F16, CUDNN_DATA_HALF, 2)                                                                               \
  DNN_VALUE(DNN_I32, CUDNN_DATA_INT32, 4)                                                                              \
  DNN_VALUE(DNN_BF16, CUDNN_DATA_BFLOAT16, 9)                                                                          \
  DNN_VALUE(DNN_BOOLEAN, CUDNN_DATA_BOOLEAN, 11)                                                                       \
  DNN_VALUE(DNN_MODE_A, CUDNN_HEUR_MODE_A, 3)                                                                          \
  DNN_VALUE(DNN_ADD, CUDNN_POINTWISE_ADD, 0)                                                                           \
  DNN_VALUE(DNN_MUL, CUDNN_POINTWISE_MUL, 1)                                                                           \
  DNN_VALUE(DNN_DIV, CUDNN_POINTWISE_DIV, 6)                                                                           \
  DNN_VALUE(DNN_SUB, CUDNN_POINTWISE_SUB, 9)                                                                           \
  DNN_VALUE(DNN_EXP, CUDNN_POINTWISE_EXP, 13)                                                                          \
  DNN_VALUE(DNN_LOG, CUDNN_POINTWISE_LOG, 15)                                                                          \
  DNN_VALUE(DNN_COPY, CUDNN_POINTWISE_IDENTITY, 21)                                                                    \
  DNN_VALUE(DNN_IS_AT_LEAST, CUDNN_POINTWISE_CMP_GE, 303)                                                              \
  DNN_VALUE(DNN_INDEX, CUDNN_POINTWISE_GEN_INDEX, 501)                                                                 \
  DNN_VALUE(DNN_SELECT, CUDNN_POINTWISE_BINARY_SELECT, 601)                                                            \
  DNN_VALUE(DNN_SUM, CUDNN_REDUCE_TENSOR_ADD, 0)                                                                       \
  DNN_VALUE(DNN_MAXIMUM, CUDNN_REDUCE_TENSOR_MAX, 3)

enum {
#define DNN_VALUE(ours, theirs, value) ours = value,
  DNN_VALUES
#undef DNN_VALUE
};

#define DNN_ENTRY(result, name, parameters) typedef result name##_entry parameters;
#include "device/cuda/dnn_entries.def"
#undef DNN_ENTRY

// The emulator's library alone has this symbol: it is taken with the emulated driver, and no other is.
#define DNN_EMULATED "emulated_cudnn"
