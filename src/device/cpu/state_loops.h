// Loops of one level over fp32 elements of moments of 8 bits (StateLoops). They give the bits of op/state_code.h.
#include "device/cpu/states.h"

static void JOIN(state_random_, LEVEL)(PhiloxKey key, uint32_t stream, uint64_t index, int64_t n, uint32_t *out) {
  for (int64_t i = 0; i < n; i += 4 * PHILOX_BATCH)
    philox_inline(key, (index + (uint64_t)i) / 4, 1, stream, 0, 0, 0, out + i);
}
_Static_assert(4 * PHILOX_BATCH <= STATE_RANDOM_ROOM, "room for a batch");

#if LEVEL_BYTES >= 32

#if LEVEL_BYTES == 64
typedef __m512i StateVector;
typedef __m512 StateReals;
#define STATE(name) _mm512_##name
#define STATE_LOAD(p) _mm512_loadu_si512((const void *)(p))
#define STATE_STORE(p, v) _mm512_storeu_si512((void *)(p), v)
#define STATE_BYTES(p) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))) // one for each lane
#define STATE_CAST(v) _mm512_castps_si512(v)
#define STATE_REALS(v) _mm512_castsi512_ps(v)
#define STATE_SHUFFLE(table) _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)(table)))
#define STATE_LOOK_UP(table, i) _mm512_permutexvar_epi32(i, table)
#define STATE_AND(a, b) _mm512_and_si512(a, b)
#define STATE_OR(a, b) _mm512_or_si512(a, b)
#define STATE_ZEROES(v) _mm512_movm_epi8(_mm512_testn_epi8_mask(v, v)) // bytes
#define STATE_IN_ORDER _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)
#else
typedef __m256i StateVector;
typedef __m256 StateReals;
#define STATE(name) _mm256_##name
#define STATE_LOAD(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define STATE_STORE(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define STATE_BYTES(p) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p)))
#define STATE_CAST(v) _mm256_castps_si256(v)
#define STATE_REALS(v) _mm256_castsi256_ps(v)
#define STATE_SHUFFLE(table) _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(table)))
#define STATE_LOOK_UP(table, i) _mm256_permutevar8x32_epi32(table, i)
#define STATE_AND(a, b) _mm256_and_si256(a, b)
#define STATE_OR(a, b) _mm256_or_si256(a, b)
#define STATE_ZEROES(v) _mm256_cmpeq_epi8(v, _mm256_setzero_si256())
#define STATE_IN_ORDER _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)
#endif
#define STATE_SPLAT(x) STATE(set1_epi32)((int)(x))
enum { STATE_LANES = LEVEL_BYTES / 4, STATE_STEP = LEVEL_BYTES }; // elements of a vector, and of one step below

// Codes of STATE_STEP elements become values.
INLINE void state_decode_step(float *to, const uint8_t *from, const StateTables *t, float scale, int positive) {
  uint8_t segment[STATE_STEP];
  StateVector code = STATE_LOAD(from), size = positive ? code : STATE_AND(code, STATE(set1_epi8)(0x7f)),
              eighth = STATE_AND(STATE(srli_epi16)(STATE(adds_epu8)(size, STATE(set1_epi8)(1)), 3),
                                 STATE(set1_epi8)(0x1f));
  eighth = STATE(shuffle_epi8)(STATE_SHUFFLE(t->by_code), STATE(min_epu8)(eighth, STATE(set1_epi8)(15)));
  STATE_STORE(segment, STATE_OR(eighth, STATE_AND(STATE_ZEROES(size), STATE(set1_epi8)(STATE_ZERO))));
  StateVector bases = STATE_LOAD(t->base);
  UNROLL for (int k = 0; k < 4; k++) {
    StateVector c = STATE_BYTES(from + k * STATE_LANES), s = STATE_BYTES(segment + k * STATE_LANES),
                number = positive ? c : STATE_AND(c, STATE_SPLAT(0x7f)),
                bits = STATE(sllv_epi32)(STATE(sub_epi32)(number, STATE_LOOK_UP(bases, s)),
                                         STATE(sub_epi32)(STATE_SPLAT(23), s));
    if (!positive) bits = STATE_OR(bits, STATE(slli_epi32)(STATE(srli_epi32)(c, 7), 31));
    STATE(storeu_ps)(to + k * STATE_LANES, STATE(mul_ps)(STATE_REALS(bits), STATE(set1_ps)(scale)));
  }
}

// The code of each lane. As state_encode, whose names it has.
INLINE StateVector state_encode_lanes(const float *from, const StateTables *t, StateReals inverse,
                                      const uint32_t *random, int positive, int half) {
  StateVector y = STATE_CAST(STATE(mul_ps)(STATE(loadu_ps)(from), inverse)),
              size = STATE(min_epu32)(STATE_AND(y, STATE_SPLAT(0x7fffffff)), STATE_SPLAT(0x3f800000)),
              least = STATE_SPLAT(t->code.least[STATE_SEGMENTS - 1]), u, code;
#if LEVEL_BYTES == 64
  __mmask16 below = _mm512_cmplt_epi32_mask(size, least);
  u = STATE_CAST(_mm512_mask_add_ps(STATE_REALS(size), below, STATE_REALS(size), STATE_REALS(least)));
#else
  StateVector below = _mm256_cmpgt_epi32(least, size);
  u = STATE_CAST(_mm256_add_ps(STATE_REALS(size), STATE_REALS(STATE_AND(below, least))));
#endif
  // The segment counted from the last, s: values of it are 23 - s bits apart.
  StateVector index = STATE(max_epi32)(STATE(add_epi32)(u, STATE_SPLAT(STATE_BITS_OFFSET)), STATE_SPLAT(0)),
              s = STATE(shuffle_epi8)(STATE_SHUFFLE(t->by_bits), STATE(srli_epi32)(index, STATE_BITS_SHIFT)),
              word = STATE_LOAD(random);
  word = FAULT(halves_are_exchanged, half, !half) ? STATE_AND(word, STATE_SPLAT(0xffff0000u))
                                                  : STATE(slli_epi32)(word, 16);
  u = STATE(add_epi32)(u, STATE(srlv_epi32)(word, STATE(add_epi32)(s, STATE_SPLAT(9))));
  code = STATE(add_epi32)(STATE_LOOK_UP(STATE_LOAD(t->base), s),
                          STATE(srlv_epi32)(u, STATE(sub_epi32)(STATE_SPLAT(23), s)));
#if LEVEL_BYTES == 64
  code = _mm512_mask_sub_epi32(code, below, code, STATE_SPLAT(1));
#else
  code = _mm256_add_epi32(code, below);
#endif
  if (positive) return STATE(max_epu32)(code, STATE(min_epu32)(size, STATE_SPLAT(FAULT(vectors_lose_squares, 1, 0))));
  StateVector sign = STATE_AND(STATE(srli_epi32)(y, 24), STATE_SPLAT(0x80)); // of codes other than 0
  return STATE_OR(code, STATE_AND(sign, STATE(add_epi32)(code, STATE_SPLAT(0x7f))));
}

INLINE void state_encode_step(uint8_t *to, const float *from, const StateTables *t, float inverse,
                              const uint32_t *random, int positive, int half) {
  StateVector c[4];
  UNROLL for (int k = 0; k < 4; k++)
    c[k] = state_encode_lanes(from + k * STATE_LANES, t, STATE(set1_ps)(inverse), random + k * STATE_LANES, positive,
                              half);
  // Packing works on 16 bytes at a time: four codes of each vector, then the next four.
  StateVector packed = STATE(packus_epi16)(STATE(packus_epi32)(c[0], c[1]), STATE(packus_epi32)(c[2], c[3]));
  STATE_STORE(to, STATE_LOOK_UP(packed, STATE_IN_ORDER));
}

INLINE void state_decode_all(float *restrict to, const uint8_t *restrict from, int64_t n, const StateTables *t,
                             float scale, int positive) {
  int64_t i = 0;
  for (; i + STATE_STEP <= n; i += STATE_STEP) state_decode_step(to + i, from + i, t, scale, positive);
  if (i == n) return;
  uint8_t code[STATE_STEP] = {0};
  float value[STATE_STEP];
  memcpy(code, from + i, (size_t)(n - i));
  state_decode_step(value, code, t, scale, positive);
  memcpy(to + i, value, sizeof *to * (size_t)(n - i));
}

INLINE void state_encode_all(uint8_t *restrict to, const float *restrict from, int64_t n, const StateTables *t,
                             float inverse, const uint32_t *restrict random, int positive, int half) {
  int64_t i = 0;
  for (; i + STATE_STEP <= n; i += STATE_STEP)
    state_encode_step(to + i, from + i, t, inverse, random + i, positive, half);
  if (i == n) return;
  uint8_t code[STATE_STEP];
  float value[STATE_STEP] = {0};
  uint32_t word[STATE_STEP] = {0};
  memcpy(value, from + i, sizeof *from * (size_t)(n - i));
  memcpy(word, random + i, sizeof *random * (size_t)(n - i));
  state_encode_step(code, value, t, inverse, word, positive, half);
  memcpy(to + i, code, (size_t)(n - i));
}

// Loops know at compile time what they are of.
static void JOIN(state_decode_, LEVEL)(float *to, const uint8_t *from, int64_t n, const StateTables *t, float scale) {
  if (t->code.positive) state_decode_all(to, from, n, t, scale, 1);
  else state_decode_all(to, from, n, t, scale, 0);
}

static void JOIN(state_encode_, LEVEL)(uint8_t *to, const float *from, int64_t n, const StateTables *t, float inverse,
                                       const uint32_t *random, int half) {
  if (t->code.positive && half) state_encode_all(to, from, n, t, inverse, random, 1, 1);
  else if (t->code.positive) state_encode_all(to, from, n, t, inverse, random, 1, 0);
  else if (half) state_encode_all(to, from, n, t, inverse, random, 0, 1);
  else state_encode_all(to, from, n, t, inverse, random, 0, 0);
}

#else

static void JOIN(state_decode_, LEVEL)(float *to, const uint8_t *from, int64_t n, const StateTables *t, float scale) {
  for (int64_t i = 0; i < n; i++) to[i] = state_decode(&t->code, from[i], scale);
}

static void JOIN(state_encode_, LEVEL)(uint8_t *to, const float *from, int64_t n, const StateTables *t, float inverse,
                                       const uint32_t *random, int half) {
  for (int64_t i = 0; i < n; i++) to[i] = state_encode(&t->code, from[i], inverse, random[i] >> 16 * half & 0xffff);
}

#endif

INLINE uint32_t state_larger(uint32_t most, float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  u &= 0x7fffffffu;
  return u > most ? u : most;
}

static uint32_t JOIN(state_most_, LEVEL)(const float *x, int64_t n) {
  uint32_t most = 0;
  int64_t i = 0;
#if LEVEL_BYTES >= 32
  StateVector lane[4] = {STATE_SPLAT(0), STATE_SPLAT(0), STATE_SPLAT(0), STATE_SPLAT(0)};
  float all[STATE_LANES];
  for (; i + STATE_STEP <= n; i += STATE_STEP)
    UNROLL for (int k = 0; k < 4; k++)
      lane[k] = STATE(max_epu32)(lane[k], STATE_AND(STATE_LOAD(x + i + k * STATE_LANES), STATE_SPLAT(0x7fffffff)));
  lane[0] = STATE(max_epu32)(STATE(max_epu32)(lane[0], lane[1]), STATE(max_epu32)(lane[2], lane[3]));
  STATE_STORE(all, lane[0]);
  for (int k = 0; k < STATE_LANES; k++) most = state_larger(most, all[k]);
#endif
  for (; i < n; i++) most = state_larger(most, x[i]);
  return most;
}

const StateLoops JOIN(state_loops_, LEVEL) = {
    JOIN(state_random_, LEVEL),
    JOIN(state_decode_, LEVEL),
    JOIN(state_most_, LEVEL),
    JOIN(state_encode_, LEVEL),
};
