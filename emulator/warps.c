// What tensor cores do with fragments, which lie in the lanes of a warp as the PTX ISA has it (mma.m16n8k16, ldmatrix).
#include "emulator.h"
#include "fibers.h"
#include <string.h>

enum { WARP = 32 };
typedef struct Here { int thread, threads; int64_t block, blocks; } Here; // as in kernel.h
extern Here emulated_here;

void emulated_mma(float c[4], const uint32_t a[4], const uint32_t b[2], float (*widen)(uint16_t), int line);
void emulated_load(uint32_t x[4], const uint16_t *row, int turned, int line);

typedef struct Fragments { uint16_t a[4][2], b[2][2]; } Fragments; // each word's low half is the first

static Fragments of_lane(const char (*all)[FIBERS_EXCHANGED], int lane) {
  Fragments f;
  memcpy(&f, all[lane], sizeof f);
  return f;
}

// The lane that has a row of a, or a column of b, at this depth, and which of its elements that is.
void emulated_mma(float c[4], const uint32_t a[4], const uint32_t b[2], float (*widen)(uint16_t), int line) {
  char mine[sizeof(Fragments)];
  memcpy(mine, a, 4 * sizeof *a);
  memcpy(mine + 4 * sizeof *a, b, 2 * sizeof *b);
  const char (*all)[FIBERS_EXCHANGED] = fibers_exchange(mine, sizeof mine, "product of a warp", line);
  const int lane = emulated_here.thread % WARP, group = lane / 4, place = lane % 4;
  float left[2][16], right[2][16];
  for (int k = 0; k < 16; k++) {
    const int holder = k % 8 / 2, half = k / 8;
    const Fragments row = of_lane(all, group * 4 + holder);
    for (int i = 0; i < 2; i++) {
      const Fragments column = of_lane(all, (place * 2 + i) * 4 + holder);
      left[i][k] = widen(row.a[half * 2 + i][k % 2]);
      right[i][k] = widen(column.b[half][k % 2]);
    }
  }
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 16; k++) c[i] += left[i / 2][k] * right[i % 2][k];
}

void emulated_load(uint32_t x[4], const uint16_t *row, int turned, int line) {
  if ((uintptr_t)row % 16) wrong("cuLaunchKernel", "line %d: a row of a fragment lies at %p, which 16 does not divide", line,
                                 (const void *)row);
  const char (*all)[FIBERS_EXCHANGED] = fibers_exchange(row, 16, "load of fragments", line);
  const int lane = emulated_here.thread % WARP, group = lane / 4, first = lane % 4 * 2;
  for (int i = 0; i < 4; i++) {
    uint16_t matrix[8][8], pair[2];
    for (int r = 0; r < 8; r++) memcpy(matrix[r], all[i * 8 + r], sizeof matrix[r]);
    for (int k = 0; k < 2; k++) pair[k] = turned ? matrix[first + k][group] : matrix[group][first + k];
    memcpy(&x[i], pair, sizeof pair);
  }
}
