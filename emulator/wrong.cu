// Kernels that break rules, one each, for tests/device/test_emulator.c; right_kernel breaks none.
#include "device/cuda/kernels/kernel.h"

typedef struct Two { const float *x; float *y; } Two;
enum { COUNT = 128 };
#define EACH for (int i = (int)BLOCK * THREADS + THREAD; i < COUNT; i += (int)BLOCKS * THREADS)

KERNEL(right_kernel, Two) {
  SHARED(float, one, 2);
  if (THREAD == 0) one[0] = 1;
  BARRIER();
  EACH a.y[i] = a.x[i] + (float)i * one[0];
}

KERNEL(wrong_barrier, Two) {
  if (THREAD < 32) BARRIER();
  else BARRIER();
  EACH a.y[i] = 0;
}

KERNEL(wrong_shuffle, Two) {
  if (THREAD % 2) return;
  const float x = SHUFFLE_FLOAT(a.x[THREAD], 16);
  EACH a.y[i] = x;
}

KERNEL(wrong_warp, Two) {
  const float x = SHUFFLE_FLOAT(a.x[THREAD], 16);
  EACH a.y[i] = x;
}

KERNEL(wrong_index, Two) { EACH a.y[i] = a.x[i + 4]; }

KERNEL(wrong_shared_index, Two) {
  SHARED(float, some, 64);
  some[THREAD + 1] = 0;
  BARRIER();
  EACH a.y[i] = some[0];
}

KERNEL(wrong_shared_size, Two) {
  SHARED(float, many, 12289);
  many[THREAD] = 0;
  EACH a.y[i] = many[THREAD];
}

KERNEL(wrong_shared_reader, Two) {
  SHARED(float, nothing, 64);
  EACH a.y[i] = nothing[THREAD];
}

// An element of a (16 x 16), or of b (16 x 8), of which no two are alike; bf16 has them exactly.
INLINE uint16_t element_of(int i, int k) { return narrow_bf16((float)(i * 16 + k - 190)); }
INLINE uint32_t two_of(int i, int k) { return element_of(i, k) | (uint32_t)element_of(i, k + 1) << 16; }

// a b of these, by fragments that are made here; y is NaN where loads of fragments, from rows of the depth or across
// them, give others.
KERNEL(right_product, Two) {
  SHARED(uint16_t, rows, 24 * 16);
  SHARED(uint16_t, depths, 16 * 24);
  const int g = THREAD % WARP / 4, t = THREAD % 4, r = THREAD % 8, m = THREAD % WARP / 8;
  uint32_t x[4], y[4], z[4], w[4];
  float c[4] = {0, 0, 0, 0};
  for (int i = THREAD; i < 24 * 16; i += THREADS) rows[i] = depths[i % 16 * 24 + i / 16] = element_of(i / 16, i % 16);
  BARRIER();
  const uint32_t a_[4] = {two_of(g, 2 * t), two_of(g + 8, 2 * t), two_of(g, 2 * t + 8), two_of(g + 8, 2 * t + 8)};
  const uint32_t b_[2] = {two_of(16 + g, 2 * t), two_of(16 + g, 2 * t + 8)};
  WARP_LOAD(x, rows + (r + m % 2 * 8) * 16 + m / 2 * 8);
  WARP_LOAD_TURNED(y, depths + (r + m / 2 * 8) * 24 + m % 2 * 8);
  WARP_LOAD(z, rows + (16 + r) * 16 + m % 2 * 8);
  WARP_LOAD_TURNED(w, depths + (r + m % 2 * 8) * 24 + 16);
  for (int i = 0; i < 4; i++)
    if (x[i] != a_[i] || y[i] != a_[i] || z[i] != b_[i % 2] || w[i] != b_[i % 2]) c[0] = (float)NAN;
  WARP_MMA_BF16(c, a_, b_);
  for (int i = 0; i < 4 && THREAD < WARP; i++) a.y[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = c[i];
}

KERNEL(wrong_product, Two) {
  const uint32_t x[4] = {0, 0, 0, 0};
  float c[4] = {0, 0, 0, 0};
  if (THREAD != 5) WARP_MMA_F16(c, x, x);
  EACH a.y[i] = c[0];
}

KERNEL(wrong_fragment, Two) {
  SHARED(uint16_t, some, 64);
  uint32_t x[4];
  some[THREAD] = 0;
  BARRIER();
  WARP_LOAD(x, some + THREAD % 8 + 4);
  EACH a.y[i] = (float)x[0];
}

// y becomes x, and 0 from the 50th on; `waits` 0: a thread reads what it has not waited for.
INLINE void copy_by_way_of_shared(const Two *a, int waits) {
  SHARED(uint16_t, some, 2 * COUNT);
  const int at = THREAD * 8, bytes = 200 - at * 2;
  if (THREAD < COUNT / 4) COPY_LATER(some + at, (const uint16_t *)(const void *)a->x + at, bytes > 16 ? 16 : bytes > 0 ? bytes : 0);
  COPIES_END();
  if (waits) COPIES_WAIT(0);
  else COPIES_WAIT(1);
  BARRIER();
  for (int i = THREAD; i < COUNT; i += THREADS) a->y[i] = ((const float *)(const void *)some)[i];
}
KERNEL(right_copy, Two) { copy_by_way_of_shared(&a, 1); }
KERNEL(wrong_copy, Two) { copy_by_way_of_shared(&a, 0); }
