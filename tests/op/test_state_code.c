// rooms device
// Moments that are codes: these and their values, rounding, scales, and where blocks lie in a rank's memory; and the
// kernels of the CPU and of the emulated CUDA driver beside the reference.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "op/state_code.h"
#include "op/state_update.h"
#include "device/cpu/cpu.h"
#include "device/device.h"
#include <math.h>
#include <stdlib.h>

static const Encoding codes[] = {ENCODING_8BIT, ENCODING_8BIT_POSITIVE, ENCODING_4BIT, ENCODING_4BIT_POSITIVE};
enum { CODES = sizeof codes / sizeof *codes };
static int top_of(const StateCode *c) { return (1 << (c->bits - !c->positive)) - 1; } // the code of 1

static float scale_up(float x) { return state_scale(x); }

static void codes_are_their_values(void **state) {
  for (int k = 0; k < CODES; k++) {
    StateCode c;
    state_code(codes[k], &c);
    int positive = (int)c.positive;
    int top = top_of(&c);
    assert_true(c.value[0] == 0 && c.value[top] == 1);
    for (int i = 0; i < top; i++) assert_true(c.value[i] < c.value[i + 1]);
    for (int i = 1; !positive && i <= top; i++) assert_true(c.value[(top + 1) | i] == -c.value[i]);
    // With any scale and any random bits a value is coded as itself.
    const float scales[] = {0x1p-92f, 1, 0x1p100f};
    for (int s = 0; s < 3; s++)
      for (int i = 0; i < 1 << c.bits; i++) {
        if (!positive && i == top + 1) continue;
        float x = state_decode(&c, (uint8_t)i, scales[s]);
        assert_true(i == 0 || fabsf(x) >= 0x1p-126f);
        for (uint32_t random = 0; random <= 0xffff; random += 0xffff / 5)
          assert_int_equal(state_encode(&c, x, state_inverse(scales[s]), random), i);
      }
  }
}

// Why a checkpoint need not hold scales.
static void a_smaller_scale_has_the_same_values(void **state) {
  for (int k = 0; k < CODES; k++) {
    StateCode c;
    state_code(codes[k], &c);
    for (int i = 0; i < 1 << c.bits; i++)
      for (int down = 1; down < 40; down++) {
        float x = c.value[i], scale = ldexpf(1, -down);
        if (fabsf(x) > scale) continue;
        uint8_t code = state_encode(&c, x, state_inverse(scale), STATE_NEAREST);
        assert_true(state_decode(&c, code, scale) == x);
      }
  }
}

// Between two values: one of them, the nearest, or on the average of all random bits x itself.
static void rounding_is_right_on_the_average(void **state) {
  for (int k = 0; k < CODES; k++) {
    StateCode c;
    state_code(codes[k], &c);
    int positive = (int)c.positive;
    for (int i = positive; i < top_of(&c); i += 3) // a mean of squares does not go below its least value
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
  state_code(ENCODING_8BIT_POSITIVE, &c);
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
  state_code(ENCODING_8BIT, &c);
  // What is not finite is not hidden: neither of the block's elements is finite.
  for (int i = 0; i < 4; i++) {
    float x = (const float[]){0, 1, NAN, INFINITY}[i];
    assert_false(isfinite(state_decode(&c, state_encode(&c, x, state_inverse(INFINITY), 77), INFINITY)));
  }
}

static void blocks_are_counted_through_the_matrix(void **state) {
  EncodingBlocks b = encoding_blocks(ENCODING_8BIT, 3, (int64_t[]){7, 4, 512});
  assert_true(b.lead == 2 && b.tail == 512 && b.blocks == 2);
  b = encoding_blocks(ENCODING_8BIT, 3, (int64_t[]){7, 4, 192});
  assert_true(b.lead == 1 && b.tail == 768 && b.blocks == 3);
  b = encoding_blocks(ENCODING_8BIT, 2, (int64_t[]){7, 100});
  assert_true(b.lead == 0 && b.tail == 700 && b.blocks == 3);
  // A shard of rows 4 … 6 and columns 60 … 99 of 7 × 100, one row of padding: its runs have the global indices.
  Operand x = {.rank = 2, .size = {4, 40}, .map = {index_range(4, 4, 7), index_range(60, 40, 100)}};
  x.map[0].valid = 3;
  StateRuns runs = state_runs(ENCODING_8BIT, &x, 0, 160);
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

// Runs that are found one after the other are those that are found from each place on.
static void next_runs_are_runs(void **state) {
  Operand x[] = {
      {.rank = 2, .size = {7, 512}, .map = {index_whole(7), index_whole(512)}},
      {.rank = 2, .size = {7, 100}, .map = {index_whole(7), index_whole(100)}},
      {.rank = 3, .size = {2, 4, 192}, .map = {index_range(3, 2, 9), index_whole(4), index_whole(192)}},
      {.rank = 3, .size = {2, 2, 700}, .map = {index_whole(2), index_range(1, 2, 4), index_whole(700)}},
      {.rank = 2, .size = {5, 600}, .map = {index_range(1, 5, 8), index_range(300, 600, 2048)}},
  };
  for (int k = 0; k < (int)(sizeof x / sizeof *x); k++) {
    int64_t n = operand_elements(&x[k]), seen = 0;
    StateRuns runs = state_runs(ENCODING_8BIT, &x[k], 0, n);
    while (state_next_run(&runs)) {
      StateRuns own = state_runs(ENCODING_8BIT, &x[k], runs.run.at, n);
      assert_int_equal(state_next_run(&own), 1);
      assert_true(own.run.at == seen && runs.run.at == seen && own.run.n == runs.run.n);
      assert_true(own.run.scale == runs.run.scale && own.run.index == runs.run.index);
      seen += runs.run.n;
    }
    assert_int_equal(seen, n);
  }
}

// ---- updates: every level has the reference's codes, but where one rounds to the other side

enum { ROWS = 37, COLUMNS = 300, N = ROWS * COLUMNS, BLOCKS = (N + 255) / 256 };

typedef struct Numbers {
  double w[N], other[N];
  uint8_t moment[2][N];
  float g[N], scales[2][BLOCKS], given[2][BLOCKS];
} Numbers;

// What is updated: all of a matrix or a part of it, by which AdamW, with new scales given or not.
typedef struct Call {
  IndexMap rows, columns;
  double beta1, beta2, factor, skip;
  int given;
} Call;
static Call whole(double skip) {
  return (Call){index_whole(ROWS), index_whole(COLUMNS), 0.9, 0.999, 0.5, skip, 0};
}

static Operand matrix(void *data, Dtype dtype, const Call *c) {
  return (Operand){.data = data, .dtype = dtype, .rank = 2, .size = {c->rows.local, c->columns.local},
                   .map = {c->rows, c->columns}};
}

static void fill(Numbers *m) {
  for (int i = 0; i < N; i++) {
    ((float *)m->w)[i] = (float)sin(12.9898 * i);
    m->g[i] = (float)(sin(78.233 * i) * exp(-3 * fabs(sin(0.001 * i)) - (i % 256 == 7) * 12.0));
    m->moment[0][i] = (uint8_t)(i * 7919 % 256);
    m->moment[1][i] = (uint8_t)(i * 104729 % 256);
  }
  for (int i = 0; i < BLOCKS; i++) {
    m->scales[0][i] = ldexpf(1, -3 - i % 5), m->scales[1][i] = ldexpf(1, -9 - i % 7);
    m->given[0][i] = ldexpf(1, i % 9 - 3), m->given[1][i] = ldexpf(1, i % 7 - 4);
  }
}

static void update(Numbers *m, Kernel kernel, uint64_t step, const Call *c) {
  double scalar[] = {0.01, c->factor, c->skip, (double)step};
  StateAttr attr = {.op = OP_ADAMW,
                    .dtype = DTYPE_F32,
                    .encoding = ENCODING_8BIT,
                    .ninput = 8,
                    .noutput = 3,
                    .stream = 9,
                    .attr.optimizer = {.beta1 = c->beta1, .beta2 = c->beta2, .epsilon = 1e-8, .decay = 0.1}};
  int64_t blocks = (c->rows.global * c->columns.global + 255) / 256;
  Operand scales = {.dtype = DTYPE_F32, .rank = 1, .size = {blocks}, .map = {index_whole(blocks)}}, in[12], out[5];
  in[0] = out[0] = matrix(m->w, DTYPE_F32, c);
  for (int i = 0; i < 2; i++) in[1 + i] = out[1 + i] = matrix(m->moment[i], DTYPE_U8, c);
  in[3] = matrix(m->g, DTYPE_F32, c);
  for (int i = 0; i < 4; i++) in[4 + i] = (Operand){.data = &scalar[i], .dtype = DTYPE_F64};
  for (int i = 0; i < 2; i++) {
    in[8 + i] = in[10 + i] = scales;
    in[8 + i].data = m->scales[i];
    in[10 + i].data = m->given[i];
    out[3 + i] = in[8 + i];
  }
  CallParameters parameters = {.seed = 1, .step = step};
  KernelCall call = {.ninput = c->given ? 12 : 10, .noutput = 5, .input = in, .output = out, .attr = &attr,
                     .parameters = &parameters};
  kernel(&call);
}

// By the emulated driver, whose memory begins as each operand lies here.
static void by_cuda(const KernelCall *call) {
  enum { OPERANDS = 17, ROOM = 1 << 20, EACH = ROOM / OPERANDS / 256 * 256 };
  const Device *device;
  DeviceQueue *queue;
  DeviceBound bound;
  DeviceKernel kernel = {0};
  Arena arena = {0};
  Error error = {0};
  char *memory;
  Operand x[OPERANDS];
  KernelCall there = *call;
  int n = call->ninput + call->noutput;
  int code = device_instance(device_cuda(), 0, &device, &error);
  if (!code) code = device_allocate(device, 0, ROOM, &memory, &error);
  if (!code) code = device_queue_create(device, NULL, &queue, &error);
  if (code) fail_msg("%s", error.message);
  assert_true(n <= OPERANDS && device->find(device, OP_STATE_UPDATE, DTYPE_F32, &kernel) && !kernel.on_host);
  kernel.op = OP_STATE_UPDATE;
  kernel.dtype = DTYPE_F32;
  for (int k = 0; k < n; k++) {
    const Operand *from = k < call->ninput ? &call->input[k] : &call->output[k - call->ninput];
    int same = 0; // that is updated in place
    x[k] = *from;
    while (same < k && from->data != call->input[same < call->ninput ? same : 0].data) same++;
    x[k].data = same < k ? x[same].data : memory + k * EACH;
    int64_t bytes = operand_elements(from) * (int64_t)dtype_size(from->dtype);
    assert_true(bytes <= EACH);
    device_copy(queue, DEVICE_FROM_HOST, 0, x[k].data, from->data, bytes);
  }
  there.input = x;
  there.output = x + call->ninput;
  there.queue = queue;
  code = device->implementation->bind(device, &kernel, &there, &arena, &bound, &error);
  if (!code) device_run(queue, &bound, &there);
  for (int k = 0; k < call->noutput && !code; k++) {
    const Operand *to = &call->output[k];
    device_copy(queue, DEVICE_TO_HOST, 0, to->data, there.output[k].data,
                operand_elements(to) * (int64_t)dtype_size(to->dtype));
  }
  if (!code) code = device_drain(queue, &error);
  if (code) fail_msg("%s", error.message);
  device_queue_destroy(queue);
  device_release(device, 0, memory, ROOM);
  arena_free(&arena);
}

// All kernels of this machine.
typedef struct Way { const char *name; Kernel kernel; } Way;
enum { WAYS = CPU_LEVELS + 2 };
// After the last there is one without a kernel.
static const Way *all_ways(void) {
  static Way way[WAYS];
  int n = 0;
  for (int level = 0; level < CPU_LEVELS; level++)
    if (cpu_level_available((CpuLevel)level))
      way[n++] = (Way){cpu_level_name((CpuLevel)level), cpu_find((CpuLevel)level, OP_STATE_UPDATE, DTYPE_F32)->kernel};
  way[n] = (Way){"cuda", by_cuda};
  return way;
}

static double decoded(const Numbers *m, int k, int i) {
  StateCode c;
  state_code(k ? ENCODING_8BIT_POSITIVE : ENCODING_8BIT, &c);
  return (double)state_decode(&c, m->moment[k][i], m->scales[k][i / 256]);
}

static void levels_have_the_codes_of_the_reference(void **state) {
  static Numbers before, slow, fast;
  fill(&before);
  for (const Way *w = all_ways(); w->kernel; w++) {
    for (int skip = 0; skip < 2; skip++) {
      Call c = whole(skip);
      slow = fast = before;
      update(&slow, op_def(OP_STATE_UPDATE)->reference, 4, &c);
      update(&fast, w->kernel, 4, &c);
      int other = 0;
      assert_memory_equal(slow.scales, fast.scales, sizeof slow.scales);
      for (int k = 0; k < 2; k++)
        for (int i = 0; i < N; i++) {
          other += slow.moment[k][i] != fast.moment[k][i];
          if (abs(slow.moment[k][i] - fast.moment[k][i]) > 1)
            fail_msg("%s: moment %d of %d", w->name, k, i);
          if (skip) assert_true(decoded(&before, k, i) == decoded(&fast, k, i));
        }
      if (other > (skip ? 0 : 4)) fail_msg("%s: %d of %d codes differ", w->name, other, 2 * N);
      for (int i = 0; i < N; i++)
        assert_true(fabsf(((float *)slow.w)[i] - ((float *)fast.w)[i]) <= 1e-5f * fabsf(((float *)slow.w)[i]) + 1e-6f);
    }
  }
}

// Gradients of every kind: some blocks have numbers of all sizes, some numbers beside powers of 2, some any bits, some
// numbers too small to be normal.
static void any_gradients(Numbers *m) {
  uint32_t state = 1;
  for (int i = 0; i < N; i++) {
    uint32_t word = state = state * 1664525u + 1013904223u, other = state = state * 1664525u + 1013904223u;
    word ^= word >> 15, other ^= other >> 15;
    switch (i / 256 % 5) {
    case 0: word = (word & 0x807fffffu) | (127 - other % 45) << 23; break;
    case 1: word = (word & 0x80000000u) | (((127 - other % 25) << 23) + (other >> 9) % 3 - 1); break;
    case 2: break;
    case 3: word &= 0x80ffffffu; break;
    case 4: word = other % 3 ? (word & 0x80700000u) | (127 - other % 20) << 23 : 0; break;
    }
    memcpy(&m->g[i], &word, 4);
  }
}

// CUDA's kernel leaves padding as it is: 0.
static int is_padding(const Call *c, int i) { return i / c->columns.local >= c->rows.valid; }

// With beta 0 the moments are the gradients and their squares at every level, exactly: so codes and scales have the
// same bits whatever the gradients are, of whole matrices and of parts of blocks, whose scales are given.
static void levels_have_the_bits_of_the_reference(void **state) {
  static Numbers before, slow, fast;
  Call calls[] = {
      {index_whole(ROWS), index_whole(COLUMNS), 0, 0, 1, 0, 0},
      {index_whole(N / 37), index_range(11, 5, 37), 0, 0, 1, 0, 1},               // runs of 5
      {index_range(1, 33, ROWS), index_range(101, 130, COLUMNS), 0, 0, 1, 0, 1},  // of 130
      {index_range(24, 20, ROWS), index_range(150, 150, COLUMNS), 0, 0, 1, 0, 1}, // with padding
      {index_whole(3), index_whole(1021), 0, 0, 1, 0, 0},                          // a block that is not full
  };
  calls[3].rows.valid = 13;
  fill(&before);
  any_gradients(&before);
  for (int k = 0; k < (int)(sizeof calls / sizeof *calls); k++) {
    slow = before;
    update(&slow, op_def(OP_STATE_UPDATE)->reference, 4, &calls[k]);
    for (const Way *w = all_ways(); w->kernel; w++) {
      fast = before;
      update(&fast, w->kernel, 4, &calls[k]);
      assert_memory_equal(slow.scales, fast.scales, sizeof slow.scales);
      for (int i = 0; i < 2 * N; i++)
        if (slow.moment[i / N][i % N] != fast.moment[i / N][i % N] &&
            !(w->kernel == by_cuda && is_padding(&calls[k], i % N)))
          fail_msg("%s, call %d: moment %d of %a becomes %d, not %d", w->name, k, i,
                   (double)before.g[i % N], fast.moment[i / N][i % N], slow.moment[i / N][i % N]);
    }
  }
}

// A decoded moment has the same bits at every level: with beta 1 it stays.
static void levels_decode_the_bits_of_the_reference(void **state) {
  static Numbers before, fast;
  Call c = {index_whole(ROWS), index_whole(COLUMNS), 1, 1, 1, 0, 0};
  fill(&before);
  for (const Way *w = all_ways(); w->kernel; w++) {
    fast = before;
    for (int i = 0; i < N; i++) fast.g[i] = 0;
    update(&fast, w->kernel, 4, &c);
    for (int k = 0; k < 2; k++)
      for (int i = 0; i < N; i++)
        if (decoded(&before, k, i) != decoded(&fast, k, i))
          fail_msg("%s: code %d becomes %d", w->name, before.moment[k][i], fast.moment[k][i]);
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
  Call c = whole(0);
  for (uint64_t step = 1; step <= 1000; step++)
    update(&m, cpu_find(CPU_PORTABLE, OP_STATE_UPDATE, DTYPE_F32)->kernel, step, &c);
  for (int i = 0; i < N; i++) end += decoded(&m, 1, i);
  print_message("1000 steps of 0.999: %.4f of what it was, e^-1 = 0.368\n", end / begin);
  assert_true(fabs(end / begin - pow(0.999, 1000)) < 0.01);
}

int main(void) {
  char *driver = xformat("%s/libemulated_cuda.so", getenv("FOLDER") ? getenv("FOLDER") : ".");
  setenv("PLAIT_CUDA_DRIVER", driver, 1);
  free(driver);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(codes_are_their_values),
      cmocka_unit_test(a_smaller_scale_has_the_same_values),
      cmocka_unit_test(rounding_is_right_on_the_average),
      cmocka_unit_test(scales_are_powers_of_two),
      cmocka_unit_test(blocks_are_counted_through_the_matrix),
      cmocka_unit_test(next_runs_are_runs),
      cmocka_unit_test(levels_have_the_codes_of_the_reference),
      cmocka_unit_test(levels_have_the_bits_of_the_reference),
      cmocka_unit_test(levels_decode_the_bits_of_the_reference),
      cmocka_unit_test(means_of_squares_decay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
