// The kernels of one SIMD level and one real type, in the order in which they use each other.
#define MATH(name) TYPED(name)
#define ELEMENT REAL
#include "device/cpu/simd.h"
#include "device/cpu/vmath.h"
#include "device/cpu/activation.h"
#define ROW REAL
#define WIDEN_ROW(x) (x)
#include "device/cpu/few_rows.h"
#include "device/cpu/panels.h"
#if BITS == 32
#include "device/cpu/narrow_weights.h"
#endif
#include "device/cpu/gemm.h"
#include "device/cpu/matmul.h"
#include "device/cpu/attention_tiles.h"
#include "device/cpu/attention.h"
#include "device/cpu/cache_attention.h"
#include "device/cpu/merge.h"
#include "device/cpu/cross_entropy.h"
#include "device/cpu/elementwise.h"
#include "device/cpu/norm.h"
#include "device/cpu/token.h"
#include "device/cpu/experts.h"
#include "device/cpu/grouped.h"
#include "device/cpu/update.h"
#include "device/cpu/orthogonalize.h"

#undef MATH
#undef ELEMENT
#undef ROW
#undef WIDEN_ROW
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
#undef QUERY_TILES
#undef PLACE
#undef SIDE
#undef KEY_TILES
#undef TOGETHER
#undef NORM
#undef HEAD
#undef CHUNK_OF
#undef INPUT
#undef OUTPUT
#undef EACH_VECTOR
#undef EACH_KIND
