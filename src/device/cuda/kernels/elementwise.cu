// Ops that read and write each element once.
#include "device/cuda/kernels/kernel.h"
#include "op/attributes.h"

KERNEL_MARK(elementwise)

#define OF_ELEMENTS "device/cuda/kernels/elementwise.h"
#define OF_REALS "device/cuda/kernels/blend.h"
#include "device/cuda/kernels/each_real.h"

// A block a row of the part. Units of 16 bytes are moved as such.
typedef struct Sixteen { ALIGNED16 uint32_t word[4]; } Sixteen;
#define COPY_UNITS(Unit)                                                                                               \
  for (int64_t i = THREAD; i < a.bytes / (int64_t)sizeof(Unit); i += THREADS) ((Unit *)to)[i] = ((const Unit *)from)[i]
KERNEL(positions_f64, PositionsArguments) {
  const int64_t of_whole = (BLOCK * a.parts + a.part) * a.bytes, of_part = BLOCK * a.bytes;
  const char *from = (const char *)a.from + (a.joins ? of_part : of_whole);
  char *to = (char *)a.to + (a.joins ? of_whole : of_part);
  switch (a.unit) {
  case 16: COPY_UNITS(Sixteen); return;
  case 8: COPY_UNITS(uint64_t); return;
  case 4: COPY_UNITS(uint32_t); return;
  case 2: COPY_UNITS(uint16_t); return;
  default: COPY_UNITS(uint8_t); return;
  }
}
