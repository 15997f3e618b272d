// STATE_UPDATE and STATE_SCALES: optimizers' kernels on moments that are codes.
#pragma once
#include "base/philox.h"
#include "device/cpu/cpu.h"
#include "op/state_code.h"

extern const KernelEntry cpu_states_portable[], cpu_states_avx2[], cpu_states_avx512[];

// A code of 8 bits, its segments for vectors, counted from the last: 4 - s. `by_bits` is indexed by bits of a number at
// least as large as the least value ((bits + STATE_BITS_OFFSET) >> STATE_BITS_SHIFT; below 0 it is 0), by_code by (code
// + 1) / 8, 15 at most. Both fit a shuffle of bytes. base: of these numbers; number 5 is that of code 0, whose value is
// 0.
typedef struct StateTables {
  StateCode code;
  uint8_t by_bits[16], by_code[16];
  uint32_t base[16];
} StateTables;
enum { STATE_BITS_OFFSET = (1 << 23) - (49 << 24), STATE_BITS_SHIFT = 24, STATE_ZERO = STATE_SEGMENTS };
// Of codes of other sizes it has the code alone, and no loops take it.
void state_tables(Encoding encoding, StateTables *t);

enum { STATE_RANDOM_ROOM = 64 }; // words that `random` may write after the last

// The functions of a SIMD level for the fp32 elements of one run of codes of 8 bits.
typedef struct StateLoops {
  // A word for each element from global index `index`, a multiple of 4, on. out: (n + STATE_RANDOM_ROOM)
  void (*random)(PhiloxKey key, uint32_t stream, uint64_t index, int64_t n, uint32_t *out);
  void (*decode)(float *to, const uint8_t *from, int64_t n, const StateTables *t, float scale);
  uint32_t (*most)(const float *x, int64_t n); // bits of the largest absolute value
  // By the lower (half 0) or upper (1) 16 bits of each element's word.
  void (*encode)(uint8_t *to, const float *from, int64_t n, const StateTables *t, float inverse, const uint32_t *random,
                 int half);
} StateLoops;
extern const StateLoops state_loops_portable, state_loops_avx2, state_loops_avx512; // state_loops.h
