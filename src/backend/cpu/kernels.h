// The kernels of one SIMD level and one real type, in the order in which they use each other.
#define MATH(name) TYPED(name)
#define ELEMENT REAL
#include "backend/cpu/simd.h"
#include "backend/cpu/vmath.h"
#include "backend/cpu/activation.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/attention_tiles.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/cross_entropy.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/norm.h"
#include "backend/cpu/token.h"
#include "backend/cpu/update.h"

#undef MATH
#undef ELEMENT
#undef V
#undef I
#undef WIDTH
#undef GEMM
#undef MR
#undef NR
#undef MC
#undef KC
#undef FEW
#undef NOINLINE
#undef PACKED_B
#undef ATTENTION
#undef TILE
#undef TILE_STATE
#undef PLACE
#undef NORM
#undef HEAD
#undef CHUNK_OF
#undef INPUT
#undef OUTPUT
#undef EACH_VECTOR
#undef EACH_KIND
