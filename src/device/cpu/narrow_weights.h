// A matrix in bf16 that fp32 products read: each number is widened, which is exact, when it is loaded. Included once
// for each SIMD level, between few_rows.h of fp32 and gemm.h.
#undef TYPED
#undef MATH
#undef ELEMENT
#define TYPED(name) JOIN(name, _narrow)
#define MATH(name) JOIN(name, _f32)
#define ELEMENT uint16_t
#define FEW_PAIRS
INLINE float widen_narrow(uint16_t x) { return bf16_to_float(x); }
#include "device/cpu/bf16_load.h"
#include "device/cpu/few_rows.h"
#include "device/cpu/panels.h"
#undef FEW_PAIRS
#undef TYPED
#undef MATH
#undef ELEMENT
#define TYPED(name) JOIN(name, _f32)
#define MATH(name) TYPED(name)
#define ELEMENT REAL

// As pack_b_f32 (gemm.h): B (depth × up to `all` columns) → panel (depth, all), zero padded. row, column: strides of B.
static void pack_b_narrow(float *restrict to, const uint16_t *restrict b, int64_t row, int64_t column, int64_t depth,
                          int64_t columns, int64_t all) {
  int64_t k = 0, whole = row == 1 ? columns / WIDTH * WIDTH : 0;
  for (; k + FEW_LINE_narrow <= (whole ? depth : 0); k += FEW_LINE_narrow)
    for (int64_t j = 0; j < whole; j += WIDTH)
      for (int64_t i = k; i < k + FEW_LINE_narrow; i += FEW_DEPTH_narrow) {
        V line[FEW_DEPTH_narrow];
        few_lines_narrow(line, b + j * column + i, column);
        UNROLL for (int x = 0; x < FEW_DEPTH_narrow; x++) store_f32(to + (i + x) * all + j, line[x]);
      }
  for (int64_t i = 0; i < depth; i++) // what is left
    for (int64_t j = i < k ? whole + FAULT(packing_skips_a_narrow_column, 0, 1) : 0; j < all; j++)
      to[i * all + j] = j < columns ? bf16_to_float(b[j * column + i * row]) : 0;
}

// n elements of a panel, which are whole vectors.
INLINE void widen_panel(float *restrict to, const uint16_t *restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i += WIDTH) store_f32(to + i, load_narrow(from + i));
}
