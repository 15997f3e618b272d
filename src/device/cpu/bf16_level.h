// The bf16 kernels of one level; a bf16_*.c defines LEVEL_BYTES, LEVEL (suffix) and LEVEL_BF16 and includes this.
// Arithmetic is fp32 but for what products read; biases, gains, statistics and gradients of parameters are fp32
// operands.
#include "device/cpu/target.h"
#include "base/fault.h"
#pragma GCC diagnostic ignored "-Wunused-function" // of the shared vector functions

#include "device/cpu/random.h"
#include "device/cpu/transpose.h"

#define WIDTH_F64 (LEVEL_BYTES / 8)
#define TYPED(name) JOIN(name, _f64)
#define REAL double
#define INTEGER int64_t
#define UNSIGNED uint64_t
#define BITS 64
#define MATH(name) TYPED(name)
#include "device/cpu/simd.h"
#include "device/cpu/vmath.h" // sines of positions
#undef TYPED
#undef REAL
#undef INTEGER
#undef UNSIGNED
#undef BITS
#undef MATH
#undef V
#undef I
#undef WIDTH
#undef EACH_VECTOR

#define MATH(name) JOIN(name, _f32)
#define TYPED(name) JOIN(name, _f32)
#define REAL float
#define INTEGER int32_t
#define UNSIGNED uint32_t
#define BITS 32
#include "device/cpu/simd.h"
#include "device/cpu/vmath.h"
#undef TYPED

#define TYPED(name) JOIN(name, _bf16)
#define ELEMENT uint16_t
#define DTYPE_ELEMENT DTYPE_BF16
#include "device/cpu/bf16_vector.h"
#include "device/cpu/activation.h"
#include "device/cpu/elementwise.h"
#include "device/cpu/norm.h"
#include "device/cpu/token.h"
#include "device/cpu/bf16_tile.h"
#define FEW_PAIRS
#define ROW uint16_t
#define WIDEN_ROW(x) bf16_to_float(x)
#include "device/cpu/few_rows.h"
#include "device/cpu/bf16_gemm.h"
#include "device/cpu/bf16_groups.h"
#include "device/cpu/bf16_matmul.h"
#include "device/cpu/bf16_cross_entropy.h"
#include "device/cpu/attention_tiles.h"
#include "device/cpu/bf16_attention.h"
#include "device/cpu/bf16_cache_attention.h"
#include "device/cpu/merge.h"
#include "device/cpu/experts.h"
#include "device/cpu/bf16_grouped.h"

// Calls with other dtypes than a kernel is written for go to the reference.
#define no_workspace NULL
#define ENTRY(op, kernel, workspace, inputs, outputs)                                                                  \
  static void checked_##kernel(const KernelCall *call) {                                                               \
    (cpu_dtypes_fit(call, inputs, outputs) ? kernel : op_def(op)->reference)(call);                                    \
  }
#include "device/cpu/bf16_entries.def"
#undef ENTRY

const KernelEntry JOIN(cpu_bf16_, LEVEL)[] = {
#define ENTRY(op, kernel, workspace, inputs, outputs) {op, DTYPE_BF16, checked_##kernel, workspace},
#include "device/cpu/bf16_entries.def"
#undef ENTRY
    {OP_COUNT, DTYPE_COUNT, NULL, NULL},
};

#if LEVEL_BYTES > 16 && defined(__clang__)
#pragma clang attribute pop
#endif
