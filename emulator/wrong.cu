// Kernels that break rules, one each, for tests/device/test_emulator.c; right_kernel breaks none.
#include "device/cuda/kernels/kernel.h"

typedef struct Two { const float *x; float *y; } Two;
enum { COUNT = 100 };
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
