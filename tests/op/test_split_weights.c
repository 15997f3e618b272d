// Split weights: every fp32 number comes back from its bf16 and the rest, and an update of them gives the bits of one
// of fp32 weights, on every SIMD level.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "device/cpu/split.h"
#include "op/optimizer.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 1 << 12 };

static uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

// What is wrong with one of the numbers from..from + n (bits); NULL: nothing.
static const char *check_patterns(const SplitLoops *loops, uint32_t from, int n) {
  float x[AT_ONCE] = {0}, back[AT_ONCE];
  uint16_t high[AT_ONCE], low[AT_ONCE];
  unsigned lost = 0, not_nearest = 0, not_away = 0, no_nan = 0;
  for (int i = 0; i < n; i++) {
    uint32_t u = from + (uint32_t)i;
    memcpy(&x[i], &u, sizeof u);
  }
  loops->split(high, low, x, n);
  loops->join(back, high, low, n);
  for (int i = 0; i < n; i++) {
    uint32_t u = from + (uint32_t)i, nan = (u & 0x7fffffffu) > 0x7f800000u, rest = u & 0xffffu;
    uint32_t is_nan = (high[i] & 0x7fffu) > 0x7f80u && (bits_of(back[i]) & 0x7fffffffu) > 0x7f800000u;
    no_nan |= nan & !is_nan;
    lost |= !nan & (bits_of(back[i]) != u);
    not_nearest |= !nan & (rest != 0x8000u) & (high[i] != bf16_from_float(x[i]));
    not_away |= !nan & (rest == 0x8000u) & (high[i] != (u >> 16) + 1);
  }
  return no_nan        ? "a NaN is a number afterwards"
         : lost        ? "another number comes back"
         : not_nearest ? "the bf16 is not the nearest"
         : not_away    ? "a half was rounded towards zero"
                       : NULL;
}

// The upper halves of every pattern, with lower halves from `low` on.
typedef struct Range { const SplitLoops *loops; uint32_t first, last, low, count; const char *wrong; } Range;

static void *check_range(void *argument) {
  Range *r = argument;
  for (uint32_t high = r->first; high <= r->last && !r->wrong; high++)
    for (uint32_t low = r->low; low < r->low + r->count && !r->wrong; low += AT_ONCE) {
      uint32_t left = r->low + r->count - low;
      r->wrong = check_patterns(r->loops, high << 16 | low, (int)(left < AT_ONCE ? left : AT_ONCE));
    }
  return NULL;
}

static void check_all(CpuLevel level, uint32_t low, uint32_t count) {
  if (!cpu_level_available(level)) return;
  Range half[2] = {{cpu_split_loops(level), 0, 0x7fff, low, count, NULL},
                   {cpu_split_loops(level), 0x8000, 0xffff, low, count, NULL}};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, check_range, &half[1]), 0);
  check_range(&half[0]);
  pthread_join(thread, NULL);
  for (int i = 0; i < 2; i++)
    if (half[i].wrong) fail_msg("%s: %s", cpu_level_name(level), half[i].wrong);
}

// All 2^32 where PLAIT_TEST_WHOLE asks for it; else, of every upper half, the lower ones at both ends and in the
// middle.
static void every_number_comes_back(void **state) {
  for (int level = CPU_PORTABLE; level <= CPU_AVX2; level++) {
    if (getenv("PLAIT_TEST_WHOLE")) {
      check_all((CpuLevel)level, 0, 0x10000);
      continue;
    }
    check_all((CpuLevel)level, 0, 32);
    check_all((CpuLevel)level, 0x8000 - 32, 64);
    check_all((CpuLevel)level, 0x10000 - 32, 32);
  }
}

// ---- updates

enum { N = 3 * 4096 + 100, OPERANDS = OPTIMIZER_OPERANDS };

typedef struct Update {
  Op op;
  int states, scalars;
  OptimizerAttr attr;
} Update;

static float random_float(uint32_t i, uint32_t stream) { return (float)sin(12.9898 * i + 78.233 * stream); }

static Operand vector(void *data, Dtype dtype) {
  return (Operand){.data = data, .dtype = dtype, .rank = 1, .size = {N}, .map = {index_whole(N)}};
}

// One step of fp32 weights (plain) and of the same split, with a gradient of bf16 numbers, and their bits after it.
static void check_update(CpuLevel level, const Update *u, int gradient_is_bf16, double skip) {
  static float w[N], g[N], state[OPTIMIZER_STATES][N], split_state[OPTIMIZER_STATES][N];
  static uint16_t high[N], low[N], narrow[N];
  double scalar[] = {0.01, 0.5, skip, 3};
  for (uint32_t i = 0; i < N; i++) {
    w[i] = random_float(i, 1);
    narrow[i] = bf16_from_float(random_float(i, 2));
    g[i] = bf16_to_float(narrow[i]);
    for (uint32_t s = 0; s < OPTIMIZER_STATES; s++) split_state[s][i] = state[s][i] = fabsf(random_float(i, 3 + s));
    high[i] = bf16_split(w[i], &low[i]);
  }
  Operand plain[OPERANDS], split[OPERANDS];
  int n = 0;
  plain[n] = vector(w, DTYPE_F32), split[n++] = vector(high, DTYPE_BF16);
  for (int s = 0; s < u->states; s++, n++)
    plain[n] = vector(state[s], DTYPE_F32), split[n] = vector(split_state[s], DTYPE_F32);
  plain[n] = vector(g, DTYPE_F32);
  split[n] = gradient_is_bf16 ? vector(narrow, DTYPE_BF16) : plain[n];
  n++;
  for (int s = 0; s < u->scalars; s++, n++) plain[n] = split[n] = (Operand){.data = &scalar[s], .dtype = DTYPE_F64};
  if (u->op == OP_MUON) plain[n - 1].data = split[n - 1].data = &scalar[2];
  split[n] = vector(low, DTYPE_U16);
  Operand split_output[OPERANDS];
  memcpy(split_output, split, sizeof split);
  split_output[1 + u->states] = split[n];
  KernelCall one = {.ninput = n, .noutput = 1 + u->states, .input = plain, .output = plain, .attr = &u->attr},
             two = {.ninput = n + 1, .noutput = 2 + u->states, .input = split, .output = split_output,
                    .attr = &u->attr};
  cpu_find(level, u->op, DTYPE_F32)->kernel(&one);
  cpu_find(level, u->op, DTYPE_BF16)->kernel(&two);
  for (int i = 0; i < N; i++)
    if (bits_of(w[i]) != bits_of(bf16_join(high[i], low[i])))
      fail_msg("%s %s: weight %d is %a, split %a", cpu_level_name(level), op_name(u->op), i, (double)w[i],
               (double)bf16_join(high[i], low[i]));
  for (int s = 0; s < u->states; s++) assert_memory_equal(state[s], split_state[s], sizeof state[s]);
}

static void updates_have_the_bits_of_fp32(void **test) {
  static const Update updates[] = {
      {OP_ADAMW, 2, 4, {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1}},
      {OP_SGD, 1, 4, {.momentum = 0.9, .decay = 0.1}},
      {OP_LION, 1, 4, {.beta1 = 0.9, .beta2 = 0.99, .decay = 0.1}},
      {OP_MUON, 0, 2, {.beta1 = 0, .beta2 = 0.1, .epsilon = 0.5}}, // MuonAttr: momentum, decay, scale
  };
  for (int level = 0; level <= CPU_AVX512; level++)
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++)
      for (int bf16 = 0; bf16 < 2; bf16++)
        for (int skip = 0; skip < 2; skip++)
          if (cpu_level_available((CpuLevel)level)) check_update((CpuLevel)level, &updates[i], bf16, skip);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_number_comes_back),
                                     cmocka_unit_test(updates_have_the_bits_of_fp32)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
