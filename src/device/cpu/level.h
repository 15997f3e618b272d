// All kernels of one SIMD level; a level_*.c defines LEVEL_BYTES (vector size) and LEVEL (suffix) and includes this.
#include "device/cpu/target.h"
#include "base/fault.h"

#include "device/cpu/transpose.h"
#include "device/cpu/random.h"
#include "device/cpu/state_loops.h"

#define WIDTH_F64 (LEVEL_BYTES / 8)
#define TYPED(name) JOIN(name, _f64)
#define REAL double
#define INTEGER int64_t
#define UNSIGNED uint64_t
#define BITS 64
#define DTYPE_ELEMENT DTYPE_F64
#include "device/cpu/kernels.h"
#undef TYPED
#undef REAL
#undef INTEGER
#undef UNSIGNED
#undef BITS
#undef DTYPE_ELEMENT

#define TYPED(name) JOIN(name, _f32)
#define REAL float
#define INTEGER int32_t
#define UNSIGNED uint32_t
#define BITS 32
#define DTYPE_ELEMENT DTYPE_F32
#include "device/cpu/kernels.h"

#define no_workspace_f32 NULL
#define no_workspace_f64 NULL
// Kernels work in one dtype; calls that mix dtypes go to the reference.
#define ENTRY(op, kernel, workspace)                                                                                   \
  static void checked_##kernel##_f32(const KernelCall *call) {                                                         \
    (cpu_one_dtype(call, op, DTYPE_F32) ? kernel##_f32 : op_def(op)->reference)(call);                                 \
  }                                                                                                                    \
  static void checked_##kernel##_f64(const KernelCall *call) {                                                         \
    (cpu_one_dtype(call, op, DTYPE_F64) ? kernel##_f64 : op_def(op)->reference)(call);                                 \
  }
#include "device/cpu/entries.def"
#undef ENTRY

const KernelEntry JOIN(cpu_table_, LEVEL)[] = {
#define ENTRY(op, kernel, workspace)                                                                                   \
  {op, DTYPE_F32, checked_##kernel##_f32, workspace##_f32}, {op, DTYPE_F64, checked_##kernel##_f64, workspace##_f64},
#include "device/cpu/entries.def"
#undef ENTRY
    {OP_COUNT, DTYPE_COUNT, NULL, NULL},
};

#if LEVEL_BYTES > 16 && defined(__clang__)
#pragma clang attribute pop
#endif
