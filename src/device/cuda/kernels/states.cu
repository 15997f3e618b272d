// Updates of parameters whose moments are codes of 8 bits (op/state_code.h). Values are computed from the numbers that
// describe a code, without a table.
#include "device/cuda/kernels/kernel.h"

KERNEL_MARK(states)

enum { STATE_BLOCK = BLOCK_THREADS, ONE = 127 << 23 };

// The number of a value, without its sign: segments from the largest values down.
INLINE float code_value(const StateNumbers *c, uint32_t code) {
  const uint32_t sign = c->positive ? 0 : code >> 7, number = c->positive ? code : code & 127u;
  uint32_t bits = 0;
#define SEGMENT(s)                                                                                                     \
  if (!bits && number >= (c->least[s] >> (19 + s)) + c->base[s]) bits = (number - c->base[s]) << (19 + s);
  if (number) {
    SEGMENT(0)
    SEGMENT(1)
    SEGMENT(2)
    SEGMENT(3)
    SEGMENT(4)
  }
#undef SEGMENT
  return float_of(bits | sign << 31);
}

// As state_encode.
INLINE uint8_t code_of(const StateNumbers *c, float x, float inverse, uint32_t random) {
  const uint32_t given = bits_of(x * inverse), sign = given >> 31;
  uint32_t size = given & 0x7fffffffu, shift = 23, base = c->base[4];
  size = size > ONE ? (uint32_t)ONE : size;
  const uint32_t below = size < c->least[4];
  const uint32_t bits = bits_of(float_of(size) + (below ? float_of(c->least[4]) : 0.0f));
#define SEGMENT(s)                                                                                                     \
  if (bits >= c->least[s]) shift = 19 + s, base = c->base[s];
  SEGMENT(3)
  SEGMENT(2)
  SEGMENT(1)
  SEGMENT(0)
#undef SEGMENT
  const uint32_t add = FAULT(kernel_codes_round_down, (random << 16) >> (32 - shift), 0u);
  const uint32_t code = base + ((bits + add) >> shift) - below, zero = code == 0;
  const uint32_t kept = (uint32_t)c->positive & zero & (size != 0); // a mean of squares never becomes 0
  return (uint8_t)(code | kept | (sign & (zero ^ 1u) & ((uint32_t)c->positive ^ 1u)) << 7);
}

// Infinite for what is not finite.
INLINE float size_of_number(float x) {
  const uint32_t size = bits_of(x) & 0x7fffffffu;
  return float_of(size > 0x7f800000u ? 0x7f800000u : size);
}
// As state_scale_bits and state_inverse.
INLINE float scale_covering(float size) {
  const uint32_t most = bits_of(size), least = 35u << 23;
  if (!most || most == 0x7f800000u) return size;
  return float_of(most < least ? least : (most + 0x7fffffu) & 0x7f800000u);
}
INLINE float inverse_of(float scale) { return scale > 0 && scale <= 1.70141183460469231732e38f ? 1 / scale : 0; }

// Where a number of the tail lies in this rank's memory, and its index in the whole matrix; -1: on another rank, or it
// is padding.
INLINE int64_t state_place(const StateArguments *a, int64_t lead, int64_t tail, uint64_t *index) {
  int64_t at = 0, step = 1, whole = 0, rest = lead, stride = 1;
  if (tail >= a->tail) return -1;
  for (int d = (int)a->leads - 1; d >= 0; d--) {
    const int64_t i = rest % a->size[d];
    if (i >= a->map[d].valid) return -1;
    whole += map_global(&a->map[d], i) * stride;
    stride *= a->global[d];
    rest /= a->size[d];
  }
  *index = (uint64_t)(whole * a->tail + FAULT(kernel_rounding_by_local_index, tail, THREAD));
  rest = tail;
  for (int d = (int)a->dims - 1; d >= (int)a->leads; d--) {
    const int64_t local = map_local(&a->map[d], rest % a->global[d]);
    if (local < 0) return -1;
    at += local * step;
    step *= a->size[d];
    rest /= a->global[d];
  }
  return lead * step + at;
}

INLINE Four no_random(void) {
  const Four four = {{0, 0, 0, 0}};
  return four;
}
// As state_random.
INLINE Four state_random_at(const StateArguments *a, uint64_t index) {
  return philox_at(a->key, (uint32_t)(index >> 2), (uint32_t)(index >> 34), 0, 0);
}

#define OF_ELEMENTS "device/cuda/kernels/states.h"
#include "device/cuda/kernels/each_real.h"
