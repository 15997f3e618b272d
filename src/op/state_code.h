// The moments of an optimizer in a few bits: codes, which are rows of ir/encodings.def (optimizer.states: 8bit; after
// Dettmers et al., "8-bit optimizers via block-wise quantization", ICLR 2022, with a code of our own).
//
// The elements of a moment, numbered by their index in the whole (global) matrix, are cut into blocks of equal length
// (ir/encoding.h). A block has a scale, the least power of 2 that is not below its largest absolute value, and each
// element a code: the number of a value between 0 and 1, by which the scale is multiplied. Values between 2^-k-1 and
// 2^-k (an octave) are evenly spaced; the largest octaves have the most of them (`octaves` of the row). In 8 bits a
// moment of either sign has 127 values over 22 octaves and a sign, a mean of squares 255 over 34.
//
// As scales are powers of 2 and an octave has no more values than the one above it, every value of a block is also a
// value of the same block with a smaller scale that still covers it. So scales need not be kept with what is decoded:
// fp32 moments that came from codes become codes of the same values again, whichever part of a block is encoded at a
// time. A checkpoint holds fp32, and a run that resumes from it has the same moments to the bit.
//
// An element that lies between two values becomes one of them by chance, so that it is right on the average: a mean of
// squares that shrinks by 0.1 % a step would otherwise stay as it is, since its neighbours are 3 % away. The random
// bits are addressed (base/philox.h) by the run's seed, the step, the moment and the element's global index. So neither
// the mesh nor a resumed run changes them. An element that already is such a value stays as it is.
#pragma once
#include "ir/encoding.h"
#include "op/op.h"

enum { STATE_BLOCK_MOST = 256, STATE_SEGMENTS = ENCODING_SEGMENTS, STATE_NEAREST = 0x8000 };

// Octaves with equally many values are a segment; segment 0 is the largest values and 1.0. The octaves of segment s
// have 2^(4-s) values, and the last segment has one octave at least. So within a segment the bits of an fp32 number,
// shifted right by 19 + s, count the values: the number of a value is that plus `base`. Kernels encode and decode by
// shifts and need no table of values.
typedef struct StateCode {
  float value[256];               // by code
  uint32_t least[STATE_SEGMENTS]; // fp32 bits of a segment's least value
  uint32_t base[STATE_SEGMENTS];  // modulo 2^32
  uint8_t segment[128];           // by the exponent of an fp32 number up to 1; below the least value, the last one
  uint32_t positive;
  int bits;
} StateCode;
void state_code(Encoding encoding, StateCode *code);
static inline uint32_t state_shift(uint32_t segment) { return 19 + segment; }

// The least power of 2 that is not below a largest absolute value, given and returned as the bits of an fp32 number: 0
// for 0, infinity for what is not finite, and at least 2^-92, so that all values are normal fp32 numbers.
static inline uint32_t state_scale_bits(uint32_t most) {
  if (!most) return 0;
  if (most >= 0x7f800000u) return 0x7f800000u;
  if (most < 35u << 23) return 35u << 23;
  return (most + 0x7fffffu) & 0x7f800000u;
}
static inline float state_scale(float most) {
  uint32_t bits;
  memcpy(&bits, &most, 4);
  bits = state_scale_bits(bits & 0x7fffffffu);
  memcpy(&most, &bits, 4);
  return most;
}
// By what elements are multiplied to be encoded.
static inline float state_inverse(float scale) { return scale > 0 && scale <= 0x1p127f ? 1 / scale : 0; }

// The code of x, of which x · inverse is between -1 and 1. random: 16 bits, or STATE_NEAREST for the nearest value.
//
// 16 bits, not 8: a mean of squares with beta2 = 0.999 moves by 1/1000 of a value's distance in the octaves that have
// one value. That must happen once in 1000 steps. With 8 bits it would happen never or once in 256 steps.
static inline uint8_t state_encode(const StateCode *c, float x, float inverse, uint32_t random) {
  float y = x * inverse, least, z;
  uint32_t sign, size, u;
  random = FAULT(codes_are_the_nearest, random, STATE_NEAREST);
  memcpy(&u, &y, 4);
  sign = u >> 31;
  size = u & 0x7fffffffu;
  size = size > 0x3f800000u ? 0x3f800000u : size; // NaN: its block's scale is infinite
  memcpy(&y, &size, 4);
  // Below the least value numbers are as in the octave above it, which has one value.
  u = c->least[STATE_SEGMENTS - 1];
  memcpy(&least, &u, 4);
  uint32_t below = size < u;
  z = y + (below ? least : 0);
  memcpy(&u, &z, 4);
  uint32_t segment = c->segment[u >> 23], shift = state_shift(segment), add = (random << 16) >> (32 - shift);
  uint32_t code = c->base[segment] + ((u + add) >> shift) - below, zero = code == 0;
  // A mean of squares that became 0 would let its weight move without bound.
  uint32_t kept = c->positive & zero & (size != 0);
  return (uint8_t)(code | FAULT(squares_become_zero, kept, 0) |
                   (sign & (zero ^ 1) & (c->positive ^ 1)) << (c->bits - 1));
}
static inline float state_decode(const StateCode *c, uint8_t code, float scale) { return c->value[code] * scale; }

// 16 random bits for the element with this global index of moment number `moment`.
static inline uint32_t state_random(PhiloxKey key, int moment, uint64_t index) {
  uint32_t word[4];
  philox4x32(key, (uint32_t)(index >> 2), (uint32_t)(index >> 34), (uint32_t)moment >> 1, 0, word);
  return word[index & 3] >> (moment & 1 ? 16 : 0) & 0xffff;
}

// Goes through a rank's elements of a moment from `from` to `to` (of its memory) in runs of one block whose global
// indices follow each other; padding is left out.
typedef struct StateRun { int64_t at, n, scale; uint64_t index; } StateRun; // scale: of the rank's scales
typedef struct StateRuns {
  const Operand *x;
  EncodingBlocks blocks;
  int row; // the dims after this one are whole on this rank: what follows each other in memory is cut by this dim only
  int64_t inner, local_tail, at, to;
  int64_t left, tail, scale; // what follows the run in memory and by index: elements, place in the tail; its scales
  StateRun run;
} StateRuns;
StateRuns state_runs(Encoding encoding, const Operand *x, int64_t from, int64_t to);
int state_next_run(StateRuns *runs); // 0: that was the last one
