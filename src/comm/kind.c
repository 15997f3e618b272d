// The sizes of elements of communication calls.
#include "comm/kind.h"
#include "base/dtype.h"

_Static_assert((int)PLAIT_FP64 == DTYPE_F64 && (int)PLAIT_FP32 == DTYPE_F32 && (int)PLAIT_BF16 == DTYPE_BF16,
               "dtypes.def");
_Static_assert((int)PLAIT_FP16 == DTYPE_F16 && (int)PLAIT_INT64 == DTYPE_I64 && (int)PLAIT_INT32 == DTYPE_I32,
               "dtypes.def");
_Static_assert((int)PLAIT_UINT16 == DTYPE_U16 && (int)PLAIT_UINT8 == DTYPE_U8, "dtypes.def");
_Static_assert((int)PLAIT_DTYPE_COUNT == DTYPE_COUNT, "dtypes.def");

size_t comm_dtype_size(PlaitDtype dtype) { return dtype_size((Dtype)dtype); }

size_t comm_wide_size(PlaitDtype dtype) {
  return dtype == PLAIT_BF16 || dtype == PLAIT_FP16 ? sizeof(float) : comm_dtype_size(dtype);
}
