// The kernels of one SIMD level and one real type, in the order in which they use each other.
#define no_workspace_f32 NULL
#define no_workspace_f64 NULL
#include "backend/cpu/simd.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/matmul.h"

#undef V
#undef I
#undef WIDTH
#undef GEMM
#undef MR
#undef NR
#undef MC
#undef KC
#undef KA
#undef PACKED_B
