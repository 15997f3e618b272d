// Updates that write a Copy: on every SIMD level all they write has the bits of an update and a CAST after it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/team.h"
#include "device/cpu/cpu.h"
#include "op/optimizer.h"
#include <math.h>
#include <string.h>

enum { N = 3 * 16384 + 100, OPERANDS = OPTIMIZER_OPERANDS, MOST_VALUES = 1 + OPTIMIZER_STATES };

// `copy` of the attribute is set for the second call.
typedef struct Update {
  Op op;
  int states, scalars;
  OptimizerAttr attr;
  MuonAttr muon;
} Update;

static float random_float(uint32_t i, uint32_t stream) { return (float)sin(12.9898 * i + 78.233 * stream); }

static Operand vector(void *data, Dtype dtype) {
  return (Operand){.data = data, .dtype = dtype, .rank = 1, .size = {N}, .map = {index_whole(N)}};
}

static void check_update(CpuLevel level, Update u, Dtype dtype, double skip, DeviceQueue *queue) {
  static float value[2][MOST_VALUES][N], g[N];
  static uint16_t copy[2][N];
  double scalar[] = {0.01, 0.5, skip, 3};
  int n = 0, values = 1 + u.states;
  Operand one[OPERANDS], two[OPERANDS], output[OPERANDS];
  for (uint32_t i = 0; i < N; i++) {
    for (uint32_t k = 0; k < (uint32_t)values; k++) {
      float x = random_float(i, k);
      value[0][k][i] = value[1][k][i] = k ? fabsf(x) : x;
    }
    g[i] = random_float(i, 9);
  }
  memset(copy, 0xff, sizeof copy);
  for (; n < values; n++) one[n] = vector(value[0][n], DTYPE_F32), output[n] = two[n] = vector(value[1][n], DTYPE_F32);
  one[n] = two[n] = vector(g, DTYPE_F32), n++;
  for (int s = 0; s < u.scalars; s++, n++) one[n] = two[n] = (Operand){.data = &scalar[s], .dtype = DTYPE_F64};
  if (u.op == OP_MUON) one[n - 1].data = two[n - 1].data = &scalar[2];
  output[values] = vector(copy[1], dtype);
  OptimizerAttr attr = u.attr;
  MuonAttr muon = u.muon;
  attr.copy = muon.copy = 1 + (int32_t)dtype;
  int is_muon = u.op == OP_MUON;
  Operand to = vector(copy[0], dtype);
  KernelCall plain = {.ninput = n, .noutput = values, .input = one, .output = one,
                      .attr = is_muon ? (const void *)&u.muon : &u.attr, .queue = queue},
             cast = {.ninput = 1, .noutput = 1, .input = one, .output = &to, .queue = queue},
             both = {.ninput = n, .noutput = values + 1, .input = two, .output = output,
                     .attr = is_muon ? (const void *)&muon : &attr, .queue = queue};
  cpu_find(level, u.op, DTYPE_F32)->kernel(&plain);
  cpu_find(level, OP_CAST, DTYPE_F32)->kernel(&cast);
  cpu_find(level, u.op, DTYPE_F32)->kernel(&both);
  for (int k = 0; k < values; k++)
    if (memcmp(value[0][k], value[1][k], sizeof g))
      fail_msg("%s %s: output %d has other bits", cpu_level_name(level), op_name(u.op), k);
  if (memcmp(copy[0], copy[1], sizeof copy[0]))
    fail_msg("%s %s: the Copy in %s has other bits", cpu_level_name(level), op_name(u.op), dtype_name(dtype));
}

static void copies_have_the_bits_of_a_cast(void **state) {
  static const Update updates[] = {
      {OP_ADAMW, 2, 4, .attr = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1}},
      {OP_SGD, 1, 4, .attr = {.momentum = 0.9, .decay = 0.1}},
      {OP_LION, 1, 4, .attr = {.beta1 = 0.9, .beta2 = 0.99, .decay = 0.1}},
      {OP_MUON, 0, 2, .muon = {.decay = 0.1, .scale = 0.5}},
  };
  Team *team;
  Error error = {0};
  assert_int_equal(team_create(2, &team, &error), 0);
  DeviceQueue queue = {.team = team};
  for (int level = 0; level <= CPU_AVX512; level++)
    for (size_t i = 0; i < sizeof updates / sizeof *updates && cpu_level_available((CpuLevel)level); i++)
      for (int skip = 0; skip < 2; skip++) {
        check_update((CpuLevel)level, updates[i], DTYPE_BF16, skip, &queue);
        check_update((CpuLevel)level, updates[i], DTYPE_F16, skip, NULL);
      }
  team_destroy(team);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(copies_have_the_bits_of_a_cast)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
