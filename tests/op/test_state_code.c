// Moments of 8 bits: the codes and their values, rounding, scales, and where blocks lie in a rank's memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "op/state_code.h"
#include "op/state_update.h"
#include "device/cpu/cpu.h"
#include <math.h>
#include <stdlib.h>

static float scale_up(float x) { return state_scale(x); }

static void codes_are_their_values(void **state) {
  for (int positive = 0; positive < 2; positive++) {
    StateCode c;
    state_code(positive, &c);
    int top = positive ? 255 : 127;
    assert_true(c.value[0] == 0 && c.value[top] == 1);
    for (int i = 0; i < top; i++) assert_true(c.value[i] < c.value[i + 1]);
    for (int i = 1; !positive && i <= top; i++) assert_true(c.value[0x80 | i] == -c.value[i]);
    // With any scale and any random bits a value is coded as itself.
    const float scales[] = {0x1p-92f, 1, 0x1p100f};
    for (int s = 0; s < 3; s++)
      for (int i = 0; i < 256; i++) {
        if (!positive && i == 0x80) continue;
        float x = state_decode(&c, (uint8_t)i, scales[s]);
        assert_true(i == 0 || fabsf(x) >= 0x1p-126f);
        for (uint32_t random = 0; random <= 0xffff; random += 0xffff / 5)
          assert_int_equal(state_encode(&c, x, state_inverse(scales[s]), random), i);
      }
  }
}

// Why a checkpoint need not hold scales.
static void a_smaller_scale_has_the_same_values(void **state) {
  for (int positive = 0; positive < 2; positive++) {
    StateCode c;
    state_code(positive, &c);
    for (int i = 0; i < 256; i++)
      for (int k = 1; k < 40; k++) {
        float x = c.value[i], scale = ldexpf(1, -k);
        if (fabsf(x) > scale) continue;
        uint8_t code = state_encode(&c, x, state_inverse(scale), STATE_NEAREST);
        assert_true(state_decode(&c, code, scale) == x);
      }
  }
}

// Between two values: one of them, the nearest, or on the average of all random bits x itself.
static void rounding_is_right_on_the_average(void **state) {
  for (int positive = 0; positive < 2; positive++) {
    StateCode c;
    state_code(positive, &c);
    for (int i = positive; i < (positive ? 255 : 127); i += 3) // a mean of squares does not go below its least value
      for (int part = 1; part < 16; part++) {
        float low = c.value[i], high = c.value[i + 1], x = low + (high - low) * (float)part / 16;
        double sum = 0;
        for (uint32_t r = 0; r < 1 << 16; r += 64) {
          float y = c.value[state_encode(&c, x, 1, r)];
          assert_true(y == low || y == high);
          sum += y;
        }
        double mean = sum / 1024;
        if (fabs(mean - x) > (double)(high - low) / 512) fail_msg("%d: %g becomes %g", i, (double)x, mean);
        float nearest = c.value[state_encode(&c, x, 1, STATE_NEAREST)];
        assert_true(part == 8 || nearest == (part < 8 ? low : high));
        if (!positive) assert_true(c.value[state_encode(&c, -x, 1, STATE_NEAREST)] == -nearest);
      }
  }
  StateCode c;
  state_code(1, &c);
  for (uint32_t r = 0; r < 1 << 16; r += 255) { // nothing but 0 becomes 0
    assert_int_equal(state_encode(&c, 0x1p-120f, 1, r), 1);
    assert_int_equal(state_encode(&c, 0, 1, r), 0);
  }
}

static void scales_are_powers_of_two(void **state) {
  assert_true(scale_up(0) == 0 && scale_up(1) == 1 && scale_up(-1.0001f) == 2 && scale_up(0.75f) == 1);
  assert_true(scale_up(0x1p-140f) == 0x1p-92f && scale_up(0x1p-92f) == 0x1p-92f && scale_up(0x1.8p-92f) == 0x1p-91f);
  assert_true(isinf(scale_up(INFINITY)) && isinf(scale_up(NAN)) && isinf(scale_up(-0x1.8p127f)));
  StateCode c;
  state_code(0, &c);
  // What is not finite is not hidden: neither of the block's elements is finite.
  for (int i = 0; i < 4; i++) {
    float x = (const float[]){0, 1, NAN, INFINITY}[i];
    assert_false(isfinite(state_decode(&c, state_encode(&c, x, state_inverse(INFINITY), 77), INFINITY)));
  }
}

static void blocks_are_counted_through_the_matrix(void **state) {
  StateBlocks b = state_blocks(3, (int64_t[]){7, 4, 512});
  assert_true(b.lead == 2 && b.tail == 512 && b.blocks == 2);
  b = state_blocks(3, (int64_t[]){7, 4, 192});
  assert_true(b.lead == 1 && b.tail == 768 && b.blocks == 3);
  b = state_blocks(2, (int64_t[]){7, 100});
  assert_true(b.lead == 0 && b.tail == 700 && b.blocks == 3);
  // A shard of rows 4 … 6 and columns 60 … 99 of 7 × 100, one row of padding: its runs have the global indices.
  Operand x = {.rank = 2, .size = {4, 40}, .map = {index_range(4, 4, 7), index_range(60, 40, 100)}};
  x.map[0].valid = 3;
  StateRuns runs = state_runs(&x, 0, 160);
  int64_t seen = 0;
  while (state_next_run(&runs))
    for (int64_t i = 0; i < runs.run.n; i++, seen++) {
      int64_t at = runs.run.at + i, global = (4 + at / 40) * 100 + 60 + at % 40;
      assert_int_equal(at, seen);
      assert_int_equal(runs.run.index + (uint64_t)i, global);
      assert_int_equal(runs.run.scale, global / 256);
    }
  assert_int_equal(seen, 120);
}

// ---- updates: every level has the reference's codes, but where one rounds to the other side

enum { ROWS = 37, COLUMNS = 300, N = ROWS * COLUMNS, BLOCKS = (N + 255) / 256 };

typedef struct Numbers {
  double w[N], other[N];
  uint8_t moment[2][N];
  float g[N], scales[2][BLOCKS];
} Numbers;

static Operand matrix(void *data, Dtype dtype) {
  return (Operand){.data = data, .dtype = dtype, .rank = 2, .size = {ROWS, COLUMNS},
                   .map = {index_whole(ROWS), index_whole(COLUMNS)}};
}

static void fill(Numbers *m) {
  for (int i = 0; i < N; i++) {
    ((float *)m->w)[i] = (float)sin(12.9898 * i);
    m->g[i] = (float)(sin(78.233 * i) * exp(-3 * fabs(sin(0.001 * i)) - (i % 256 == 7) * 12.0));
    m->moment[0][i] = (uint8_t)(i * 7919 % 256);
    m->moment[1][i] = (uint8_t)(i * 104729 % 256);
  }
  for (int i = 0; i < BLOCKS; i++) m->scales[0][i] = ldexpf(1, -3 - i % 5), m->scales[1][i] = ldexpf(1, -9 - i % 7);
}

static void update(Numbers *m, Kernel kernel, uint64_t step, double skip) {
  double scalar[] = {0.01, 0.5, skip, (double)step};
  StateAttr attr = {.op = OP_ADAMW, .dtype = DTYPE_F32, .ninput = 8, .noutput = 3, .stream = 9,
                    .attr.optimizer = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .decay = 0.1}};
  Operand scales[2], in[10], out[5];
  for (int i = 0; i < 2; i++)
    scales[i] =
        (Operand){.data = m->scales[i], .dtype = DTYPE_F32, .rank = 1, .size = {BLOCKS}, .map = {index_whole(BLOCKS)}};
  in[0] = out[0] = matrix(m->w, DTYPE_F32);
  for (int i = 0; i < 2; i++) in[1 + i] = out[1 + i] = matrix(m->moment[i], DTYPE_U8);
  in[3] = matrix(m->g, DTYPE_F32);
  for (int i = 0; i < 4; i++) in[4 + i] = (Operand){.data = &scalar[i], .dtype = DTYPE_F64};
  for (int i = 0; i < 2; i++) in[8 + i] = out[3 + i] = scales[i];
  CallParameters parameters = {.seed = 1, .step = step};
  KernelCall call = {.ninput = 10, .noutput = 5, .input = in, .output = out, .attr = &attr, .parameters = &parameters};
  kernel(&call);
}

static double decoded(const Numbers *m, int k, int i) {
  StateCode c;
  state_code(k, &c);
  return (double)state_decode(&c, m->moment[k][i], m->scales[k][i / 256]);
}

static void levels_have_the_codes_of_the_reference(void **state) {
  static Numbers before, slow, fast;
  fill(&before);
  for (int level = 0; level < CPU_LEVELS; level++) {
    if (!cpu_level_available((CpuLevel)level)) continue;
    for (int skip = 0; skip < 2; skip++) {
      slow = fast = before;
      update(&slow, op_def(OP_STATE_UPDATE)->reference, 4, skip);
      update(&fast, cpu_find((CpuLevel)level, OP_STATE_UPDATE, DTYPE_F32)->kernel, 4, skip);
      int other = 0;
      assert_memory_equal(slow.scales, fast.scales, sizeof slow.scales);
      for (int k = 0; k < 2; k++)
        for (int i = 0; i < N; i++) {
          other += slow.moment[k][i] != fast.moment[k][i];
          if (abs(slow.moment[k][i] - fast.moment[k][i]) > 1)
            fail_msg("%s: moment %d of %d", cpu_level_name((CpuLevel)level), k, i);
          if (skip) assert_true(decoded(&before, k, i) == decoded(&fast, k, i));
        }
      if (other > (skip ? 0 : 4)) fail_msg("%s: %d of %d codes differ", cpu_level_name((CpuLevel)level), other, 2 * N);
      for (int i = 0; i < N; i++)
        assert_true(fabsf(((float *)slow.w)[i] - ((float *)fast.w)[i]) <= 1e-5f * fabsf(((float *)slow.w)[i]) + 1e-6f);
    }
  }
}

// A mean of squares whose gradients have become small follows them, although each step changes it by less than the
// distance of two values.
static void means_of_squares_decay(void **state) {
  static Numbers m;
  fill(&m);
  for (int i = 0; i < N; i++) m.moment[1][i] = 254;
  double begin = 0, end = 0;
  for (int i = 0; i < N; i++) begin += decoded(&m, 1, i), m.g[i] *= 1e-6f;
  for (uint64_t step = 1; step <= 1000; step++)
    update(&m, cpu_find(CPU_PORTABLE, OP_STATE_UPDATE, DTYPE_F32)->kernel, step, 0);
  for (int i = 0; i < N; i++) end += decoded(&m, 1, i);
  print_message("1000 steps of 0.999: %.4f of what it was, e^-1 = 0.368\n", end / begin);
  assert_true(fabs(end / begin - pow(0.999, 1000)) < 0.01);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(codes_are_their_values),
      cmocka_unit_test(a_smaller_scale_has_the_same_values),
      cmocka_unit_test(rounding_is_right_on_the_average),
      cmocka_unit_test(scales_are_powers_of_two),
      cmocka_unit_test(blocks_are_counted_through_the_matrix),
      cmocka_unit_test(levels_have_the_codes_of_the_reference),
      cmocka_unit_test(means_of_squares_decay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
