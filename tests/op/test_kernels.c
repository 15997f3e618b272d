// tier 1 2; rooms device; numbers
// Fast kernels against the reference kernels: every row of the table of cases, every SIMD level of this machine, every
// floating-point dtype, sharded and padded operands, in place, and the same bits for any number of threads.
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "check/evaluate.h"
#include "check/op_variant.h"
#include "same_case.h"
#include "device/cpu/fp16.h"
#include "tier.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256 };

// Runs with just the workspace that the kernel asked for; nothing after it may be written.
static void run(const KernelEntry *entry, KernelCall *call, Team *team, const char *where) {
  DeviceQueue queue = {.team = team};
  call->queue = &queue;
  call->workspace_size =
      entry->workspace ? entry->workspace(call->input, call->output, call->attr, team_slots(team)) : 0;
  size_t bytes = (call->workspace_size + GUARD + 63) / 64 * 64;
  unsigned char *workspace = aligned_alloc(64, bytes);
  memset(workspace, 0xFF, bytes); // NaN, if read before it is written
  call->workspace = workspace;
  entry->kernel(call);
  for (size_t i = call->workspace_size; i < bytes; i++)
    if (workspace[i] != 0xFF) fail_msg("%s writes past its workspace", where);
  free(workspace);
}

// None, three threads, which part products, five, which make them together, and one that another thread helps now and
// then.
enum { TOGETHER = 2, TEAMS = 4 };

typedef struct Helper { TeamGroup *group; pthread_t thread; atomic_int stop; } Helper;
static Team *create_team(TeamGroup *group, int threads) {
  Team *team;
  CHECK(!team_create_in(group, threads, &team, NULL));
  return team;
}

static void *help(void *argument) {
  Helper *h = argument;
  Team *team = create_team(h->group, 1);
  while (!atomic_load(&h->stop))
    if (!team_help(team)) sched_yield();
  team_destroy(team);
  return NULL;
}

// What the reference makes in the memory of inputs is what it makes elsewhere.
static void check_reference_in_place(const OpCase *whole, Dtype dtype, const OpCase *slow) {
  OpCase elsewhere;
  char where[160];
  snprintf(where, sizeof where, "the reference of %s %s in place", slow->name, dtype_name(dtype));
  op_case_copy(whole, &elsewhere);
  op_case_run(&elsewhere);
  op_case_same_bits(slow, &elsewhere, where);
  op_case_free(&elsewhere);
}

// 0 when the back end has no kernel for it.
static int check_case(CpuLevel level, const OpCase *whole, Dtype dtype, Variant variant, Team **team) {
  OpCase slow, fast[TEAMS];
  char where[160];
  if (!op_case_variant(whole, variant, &slow)) return 0;
  const KernelEntry *entry = cpu_find(level, slow.op, op_case_dtype(&slow));
  snprintf(where, sizeof where, "%s %s %s%s", cpu_level_name(level), slow.name, dtype_name(dtype),
           op_variant_name[variant]);
  if (entry) {
    for (int t = 0; t < TEAMS; t++) {
      fast[t] = (OpCase){0};
      if (t == TOGETHER && !op_def(slow.op)->expensive) continue; // makes no product
      op_case_copy(&slow, &fast[t]);
    }
    op_case_run(&slow);
    if (variant >= IN_PLACE && level == CPU_PORTABLE) check_reference_in_place(whole, dtype, &slow);
    for (int t = 0; t < TEAMS; t++) {
      if (!fast[t].graph) continue;
      KernelCall call = op_case_call(&fast[t]);
      run(entry, &call, team[t], where);
      if (t == 0) op_case_compare(&fast[0], &slow, where);
      else op_case_same_bits(&fast[0], &fast[t], where); // whatever the threads
    }
    for (int t = 0; t < TEAMS; t++)
      if (fast[t].graph) op_case_free(&fast[t]);
  }
  op_case_free(&slow);
  return entry != NULL;
}

// Does make test leave the level to make check: is there a better one that has kernels of its own for the type?
static int has_better(CpuLevel level, Dtype dtype) {
  int most = dtype == DTYPE_BF16 ? CPU_AMX : CPU_AVX512, better = 0;
  for (int k = level + 1; k <= most; k++) better |= cpu_level_available((CpuLevel)k);
  return test_tier() < 2 && better;
}

static void check_level(CpuLevel level, Dtype from, Dtype to) {
  if (!cpu_level_available(level) || has_better(level, from)) skip();
  Helper helper = {.group = team_group_create(2, 2)};
  Team *team[TEAMS] = {NULL, create_team(NULL, 3), create_team(NULL, 5), create_team(helper.group, 1)};
  assert_int_equal(pthread_create(&helper.thread, NULL, help, &helper), 0);
  int done[VARIANTS] = {0};
  const char *only = getenv("CASE"); // for debugging
  int dtypes = to - from + 1;
  // make test has every row of small operands, and one in five of large ones.
  int large = test_tier() < 2 ? 5 : 1, least = test_tier() < 2 ? 4 : 1;
  for (int i = 0; i < op_cases_with_large(); i += i < op_cases_count() ? 1 : large)
    for (int dtype = from; dtype <= (int)to; dtype++) {
      if (only && !strstr(op_case_name(i), only)) continue;
      OpCase whole; // its numbers are drawn once
      op_case_get(i, (Dtype)dtype, &whole);
      for (int variant = 0; variant < VARIANTS; variant++)
        done[variant] += check_case(level, &whole, (Dtype)dtype, (Variant)variant, team);
      op_case_free(&whole);
    }
  atomic_store(&helper.stop, 1);
  pthread_join(helper.thread, NULL);
  for (int t = 0; t < TEAMS; t++) team_destroy(team[t]);
  team_group_destroy(helper.group);
  if (only) return;
  assert_true(done[WHOLE] >= 85 * dtypes / least);
  assert_true(done[SHARDED] >= 20 * dtypes / least);
  assert_true(done[EMPTY] >= 20 * dtypes / least);
  assert_true(done[EMPTY_SHARDED] >= (test_tier() < 2 ? 1 : 8 * dtypes)); // few rows can be so
  assert_true(done[EMPTY_NO_ROWS] >= 12 * dtypes / least);
  assert_true(done[IN_PLACE] >= 25 * dtypes / least);
  assert_true(done[SUM_IN_PLACE] >= 8 * dtypes / least);
}

// Keys and values in a narrower dtype than the queries.
static int check_narrow_cache(CpuLevel level, const char *name, Dtype dtype, Dtype cache) {
  OpCase whole = {0}, slow, fast;
  char where[160];
  for (int i = 0; i < op_cases_with_large(); i++)
    if (!strcmp(op_case_name(i), name)) op_case_get(i, dtype, &whole);
  assert_non_null(whole.graph);
  for (int k = 1; k < 3; k++) {
    Operand wide = whole.input[k];
    whole.input[k].dtype = cache;
    operand_allocate(&whole.input[k]);
    for (int64_t i = operand_elements(&wide) - 1; i >= 0; i--)
      operand_store(&whole.input[k], i, operand_load(&wide, i));
    free(wide.data);
  }
  snprintf(where, sizeof where, "%s %s %s, cache %s", cpu_level_name(level), name, dtype_name(dtype),
           dtype_name(cache));
  op_case_copy(&whole, &slow);
  op_case_copy(&whole, &fast);
  op_case_run(&slow);
  KernelCall call = op_case_call(&fast);
  run(cpu_find(level, OP_CACHE_ATTENTION, dtype), &call, NULL, where);
  op_case_compare(&fast, &slow, where);
  op_case_free(&slow);
  op_case_free(&fast);
  op_case_free(&whole);
  return 1;
}

static void narrow_caches_match_the_reference(void **state) {
  static const char *const names[] = {"cache_attention", "cache_attention large", "cache_attention many heads"};
  int done = 0;
  for (int level = CPU_PORTABLE; level <= CPU_AVX512; level++)
    for (size_t i = 0; i < sizeof names / sizeof *names && cpu_level_available((CpuLevel)level); i++) {
      done += check_narrow_cache((CpuLevel)level, names[i], DTYPE_F64, DTYPE_F32);
      done += check_narrow_cache((CpuLevel)level, names[i], DTYPE_F64, DTYPE_BF16);
      done += check_narrow_cache((CpuLevel)level, names[i], DTYPE_F32, DTYPE_BF16);
    }
  assert_true(done >= 9);
}

static void portable_kernels_match_the_reference(void **state) { check_level(CPU_PORTABLE, DTYPE_F64, DTYPE_F32); }
static void avx2_kernels_match_the_reference(void **state) { check_level(CPU_AVX2, DTYPE_F64, DTYPE_F32); }
static void avx512_kernels_match_the_reference(void **state) { check_level(CPU_AVX512, DTYPE_F64, DTYPE_F32); }
static void portable_bf16_kernels_match_the_reference(void **state) {
  check_level(CPU_PORTABLE, DTYPE_BF16, DTYPE_BF16);
}
static void avx2_bf16_kernels_match_the_reference(void **state) { check_level(CPU_AVX2, DTYPE_BF16, DTYPE_BF16); }
static void avx512_bf16_kernels_match_the_reference(void **state) { check_level(CPU_AVX512, DTYPE_BF16, DTYPE_BF16); }
static void avx512_dot_product_kernels_match_the_reference(void **state) {
  check_level(CPU_AVX512_BF16, DTYPE_BF16, DTYPE_BF16);
}
static void amx_kernels_match_the_reference(void **state) { check_level(CPU_AMX, DTYPE_BF16, DTYPE_BF16); }
static void portable_fp16_kernels_match_the_reference(void **state) { check_level(CPU_PORTABLE, DTYPE_F16, DTYPE_F16); }
static void avx2_fp16_kernels_match_the_reference(void **state) { check_level(CPU_AVX2, DTYPE_F16, DTYPE_F16); }
static void avx512_fp16_kernels_match_the_reference(void **state) { check_level(CPU_AVX512, DTYPE_F16, DTYPE_F16); }

// The rows of a head in two chunks, of which the last has fewer rows and therefore packs more columns. Equal logits, so
// that the gradient of a word's weights is (rows / words - how often it is the target) at every column.
static void last_chunks_fit_into_the_workspace(void **state) {
  enum { BATCH = 8, SEQ = 217, TOKENS = BATCH * SEQ, EMBED = 1250, WORDS = 5 };
  float *x = xcalloc(TOKENS * EMBED, sizeof *x), *dx = xcalloc(TOKENS * EMBED, sizeof *dx), loss;
  static float w[WORDS * EMBED], dw[WORDS * EMBED];
  static int32_t ids[TOKENS];
  double seed = 1;
  for (int i = 0; i < TOKENS * EMBED; i++) x[i] = 1;
  for (int i = 0; i < TOKENS; i++) ids[i] = i % 10 ? i % 3 : 4;
#define OPERAND(memory, type, ...)                                                                                     \
  {                                                                                                                    \
    .data = memory, .dtype = type, .rank = sizeof(int[]){__VA_ARGS__} / sizeof(int), .size = { __VA_ARGS__ }           \
  }
  Operand input[] = {OPERAND(x, DTYPE_F32, BATCH, SEQ, EMBED),
                     OPERAND(w, DTYPE_F32, WORDS, EMBED),
                     OPERAND(ids, DTYPE_I32, BATCH, SEQ),
                     {.data = &seed, .dtype = DTYPE_F64}};
  Operand output[] = {{.data = &loss, .dtype = DTYPE_F32},
                      OPERAND(dx, DTYPE_F32, BATCH, SEQ, EMBED),
                      OPERAND(dw, DTYPE_F32, WORDS, EMBED)};
#undef OPERAND
  input[1].map[0] = output[2].map[0] = index_whole(WORDS);
  CrossEntropyAttr attr = {.gradient = 1};
  for (int level = 0; level <= CPU_AVX512; level++) {
    if (!cpu_level_available((CpuLevel)level)) continue;
    KernelCall call = {.ninput = 4, .noutput = 3, .input = input, .output = output, .attr = &attr};
    run(cpu_find((CpuLevel)level, OP_LINEAR_CROSS_ENTROPY, DTYPE_F32), &call, NULL, cpu_level_name((CpuLevel)level));
    assert_true(fabs(loss / (TOKENS * log(WORDS)) - 1) < 1e-6);
    for (int word = 0; word < WORDS; word++) {
      int targets = 0;
      for (int i = 0; i < TOKENS; i++) targets += ids[i] == word;
      for (int i = 0; i < EMBED; i++)
        assert_true(fabs(dw[word * EMBED + i] - ((double)TOKENS / WORDS - targets)) < 1e-2);
    }
  }
  free(x);
  free(dx);
}

// A bias in fp16, which products expect in fp32: the workspace has no room to widen it.
static void fp16_operands_without_room_are_read_too(void **state) {
  enum { ROWS = 3, DEPTH = 7, COLUMNS = 40 };
  static uint16_t x[ROWS * DEPTH], w[COLUMNS * DEPTH], bias[COLUMNS], got[ROWS * COLUMNS], expected[ROWS * COLUMNS];
  for (int i = 0; i < COLUMNS * DEPTH; i++)
    w[i] = f16_from_float((float)sin(i)), x[i % (ROWS * DEPTH)] = w[i], bias[i % COLUMNS] = f16_from_float((float)i);
  Operand input[] = {{.data = x, .dtype = DTYPE_F16, .rank = 2, .size = {ROWS, DEPTH}},
                     {.data = w, .dtype = DTYPE_F16, .rank = 2, .size = {COLUMNS, DEPTH}},
                     {.data = bias, .dtype = DTYPE_F16, .rank = 1, .size = {COLUMNS}}};
  Operand output = {.data = expected, .dtype = DTYPE_F16, .rank = 2, .size = {ROWS, COLUMNS}};
  MatmulAttr attr = {.kind = MATMUL_NT, .m = 1, .n = 1, .k = 1, .bias = 1};
  KernelCall call = {.ninput = 3, .noutput = 1, .input = input, .output = &output, .attr = &attr};
  op_def(OP_MATMUL)->reference(&call);
  output.data = got;
  run(cpu_find(CPU_PORTABLE, OP_MATMUL, DTYPE_F16), &call, NULL, "fp16 bias");
  assert_memory_equal(got, expected, sizeof got);
}

// Every fp16 number, and of fp32 what lies at and between them, by the readable conversions of base.
static void fp16_conversions_are_exact(void **state) {
  const HalfConversion *both[] = {&fp16_portable, cpu_level_available(CPU_AVX2) ? &fp16_f16c : &fp16_portable};
  static uint16_t half[65536], back[65536];
  static float wide[65536];
  for (int way = 0; way < 2; way++) {
    for (int i = 0; i < 65536; i++) half[i] = (uint16_t)i;
    both[way]->widen(wide, half, 65536);
    for (int i = 0; i < 65536; i++) {
      float expected = f16_to_float((uint16_t)i);
      assert_true(isnan(expected) ? isnan(wide[i]) : wide[i] == expected && signbit(wide[i]) == signbit(expected));
    }
    for (int shift = -3; shift <= 3; shift++) { // at, a little beside and half way between
      for (int i = 0; i < 65536; i++) {
        float x = f16_to_float((uint16_t)i), next = f16_to_float((uint16_t)(i + 1));
        wide[i] = shift % 2 ? x + (next - x) / 2 : x;
        for (int s = 0; s < abs(shift) / 2; s++) wide[i] = nextafterf(wide[i], shift < 0 ? -INFINITY : INFINITY);
      }
      both[way]->narrow(back, wide, 65536);
      for (int i = 0; i < 65536; i++) {
        uint16_t expected = f16_from_float(wide[i]);
        if (isnan(wide[i]) ? !isnan(f16_to_float(back[i])) : back[i] != expected)
          fail_msg("way %d: %a becomes %04x, expected %04x", way, (double)wide[i], back[i], expected);
      }
    }
  }
}

// Accumulators of gradients in bf16: each addition is rounded once, sums of squares are those of what is stored.
static void bf16_accumulators_match_the_reference(void **state) {
  enum { N = 40000 };
  static const Op ops[] = {OP_ACCUMULATE, OP_FILL, OP_SUM_SQUARES, OP_ACCUMULATE, OP_ACCUMULATE,
                           OP_ACCUMULATE}; // of the last three the first and last add fp32, and two to nothing
  static uint16_t a[N], b[N], got[N], expected[N];
  static double workspace[64];
  static float wide[N];
  for (int i = 0; i < N; i++) wide[i] = (float)cos(3 * i) / 64;
  for (int i = 0; i < N; i++) a[i] = bf16_from_float((float)sin(i)), b[i] = bf16_from_float((float)cos(3 * i) / 64);
  for (int level = 0; level < CPU_LEVELS; level++)
    for (int k = 0; k < 6; k++) {
      if (!cpu_level_available((CpuLevel)level)) continue;
      double sum[2] = {0};
      FillAttr zero = {0};
      for (int fast = 0; fast < 2; fast++) {
        Operand in[2] = {{.data = a, .dtype = DTYPE_BF16, .rank = 1, .size = {N}, .map = {index_whole(N)}}},
                out = in[0];
        in[1] = in[0];
        in[1].data = k % 2 ? (void *)wide : b;
        if (k % 2) in[1].dtype = DTYPE_F32;
        if (k > 3) in[0].data = NULL;
        out.data = fast ? got : expected;
        if (ops[k] == OP_SUM_SQUARES) out = (Operand){.data = &sum[fast], .dtype = DTYPE_F64};
        KernelCall call = {.ninput = ops[k] == OP_ACCUMULATE ? 2 : 1,
                           .noutput = 1,
                           .input = in,
                           .output = &out,
                           .attr = &zero,
                           .workspace = workspace,
                           .workspace_size = sizeof workspace};
        const KernelEntry *entry = cpu_find((CpuLevel)level, ops[k], DTYPE_BF16);
        assert_non_null(entry);
        if (entry->workspace) assert_true(entry->workspace(in, &out, NULL, 1) <= sizeof workspace);
        (fast ? entry->kernel : op_def(ops[k])->reference)(&call);
      }
      assert_true(ops[k] == OP_SUM_SQUARES ? fabs(sum[0] - sum[1]) < 1e-12 * sum[0]
                                           : !memcmp(got, expected, sizeof got));
    }
}

// ---- functions over their whole range

static void check_activation(CpuLevel level, Dtype dtype, int kind) {
  enum { N = 4001 };
  double x[N], y[N];
  float xf[N], yf[N];
  ActivationAttr attr = {.kind = kind};
  for (int i = 0; i < N; i++) xf[i] = (float)(x[i] = (double)(float)((i - N / 2) * 0.0101));
  Operand in = {.data = dtype == DTYPE_F64 ? (void *)x : xf,
                .dtype = dtype,
                .rank = 1,
                .size = {N},
                .map = {index_whole(N)}},
          out = in;
  out.data = dtype == DTYPE_F64 ? (void *)y : yf;
  KernelCall call = {.ninput = 1, .noutput = 1, .input = &in, .output = &out, .attr = &attr};
  cpu_find(level, OP_ACTIVATION, dtype)->kernel(&call);
  double got[N];
  for (int i = 0; i < N; i++) got[i] = operand_load(&out, i);
  op_def(OP_ACTIVATION)->reference(&call);
  for (int i = 0; i < N; i++) {
    double expected = operand_load(&out, i), unit = dtype == DTYPE_F64 ? 0x1p-52 : 0x1p-23;
    if (!(fabs(got[i] - expected) <= 6 * unit * fabs(expected) + 6 * unit * fmin(1, fabs(x[i]))))
      fail_msg("%s activation %d of %g: %.12g, expected %.12g", dtype_name(dtype), kind, x[i], got[i], expected);
  }
}

static void activations_are_exact_to_a_few_ulp(void **state) {
  for (int level = 0; level < CPU_LEVELS; level++)
    for (int kind = ACTIVATION_GELU; kind <= ACTIVATION_SIGMOID; kind++)
      if (cpu_level_available((CpuLevel)level)) {
        check_activation((CpuLevel)level, DTYPE_F32, kind);
        check_activation((CpuLevel)level, DTYPE_F64, kind);
      }
}

// A NaN or an infinity must come out, not vanish: the skip flag depends on it.
static void not_a_number_stays(void **state) {
  for (int level = 0; level < CPU_LEVELS; level++) {
    if (!cpu_level_available((CpuLevel)level)) continue;
    float x[40], y[40];
    for (int i = 0; i < 40; i++) x[i] = NAN;
    for (int kind = ACTIVATION_GELU; kind <= ACTIVATION_SILU; kind++) {
      ActivationAttr attr = {.kind = kind};
      Operand in = {.data = x, .dtype = DTYPE_F32, .rank = 1, .size = {40}, .map = {index_whole(40)}}, out = in;
      out.data = y;
      KernelCall call = {.ninput = 1, .noutput = 1, .input = &in, .output = &out, .attr = &attr};
        cpu_find((CpuLevel)level, OP_ACTIVATION, DTYPE_F32)->kernel(&call);
      for (int i = 0; i < 40; i++) assert_true(isnan(y[i]));
      uint16_t half[40], out_half[40];
      for (int i = 0; i < 40; i++) half[i] = bf16_from_float(i % 2 ? NAN : -1e20f);
      in = (Operand){.data = half, .dtype = DTYPE_BF16, .rank = 1, .size = {40}, .map = {index_whole(40)}};
      out = in;
      out.data = out_half;
      cpu_find((CpuLevel)level, OP_ACTIVATION, DTYPE_BF16)->kernel(&call);
      for (int i = 0; i < 40; i++)
        assert_true(i % 2 ? isnan(bf16_to_float(out_half[i])) : fabsf(bf16_to_float(out_half[i])) < 1e-6f);
    }
  }
}

// ---- comparing

static void errors_are_found(void **state) {
  for (int dtype = DTYPE_F64; dtype <= DTYPE_F16; dtype++) {
    OpCase whole, right, wrong;
    char text[256];
    op_case_get(0, (Dtype)dtype, &whole);
    op_case_copy(&whole, &right);
    op_case_run(&right);
    op_case_copy(&right, &wrong);
    const Operand *y = &wrong.output[0];
    int64_t last = operand_elements(y) - 1;
    assert_true(op_case_error(&wrong, &right, text, sizeof text) == 0 && !*text);
    double was = operand_load(y, last);
    operand_store(y, last, was * 1.05);
    assert_true(op_case_error(&wrong, &right, text, sizeof text) > 1 && strstr(text, "output 0 [59]: "));
    assert_int_equal(op_case_other_bits(&wrong, &right), 0);
    operand_store(y, last, NAN);
    assert_true(isinf(op_case_error(&wrong, &right, text, sizeof text)) && strstr(text, "nan"));
    op_case_free(&wrong);
    op_case_free(&right);
    op_case_free(&whole);
  }
}

// ---- choosing

static void reference_kernels_are_a_device(void **state) {
  const Device *device = device_reference();
  Error error = {0};
  DeviceKernel kernel;
  assert_int_equal(device->find(device, OP_MATMUL, DTYPE_F32, &kernel), 1);
  assert_true(kernel.is_reference && kernel.host == op_def(OP_MATMUL)->reference);
  assert_int_equal(device_kernel(device, OP_CUSTOM, DTYPE_F32, "mine", &kernel, &error), PLAIT_INFEASIBLE);
  assert_string_equal(error.message, "mine: the device reference has no kernel for the op custom in fp32");
}

static void plait_simd_chooses_the_level(void **state) {
  setenv("PLAIT_SIMD", "reference", 1);
  assert_ptr_equal(device_cpu(), device_reference());
  setenv("PLAIT_SIMD", "portable", 1);
  assert_int_equal(cpu_simd_level(), CPU_PORTABLE);
  setenv("PLAIT_SIMD", "avx2", 1);
  assert_int_equal(cpu_simd_level(), cpu_level_available(CPU_AVX2) ? CPU_AVX2 : CPU_PORTABLE);
  setenv("PLAIT_SIMD", "amx", 1);
  CpuLevel best = CPU_AMX;
  while (!cpu_level_available(best)) best--;
  assert_int_equal(cpu_simd_level(), best);
  unsetenv("PLAIT_SIMD");
  for (int level = 0; level < CPU_LEVELS; level++) // Intel's dot products of bf16 are slow: those alone are passed over
    assert_true(!cpu_level_available((CpuLevel)level) || (int)cpu_simd_level() >= level || level == CPU_AVX512_BF16);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(portable_kernels_match_the_reference),
      cmocka_unit_test(avx2_kernels_match_the_reference),
      cmocka_unit_test(avx512_kernels_match_the_reference),
      cmocka_unit_test(portable_bf16_kernels_match_the_reference),
      cmocka_unit_test(avx2_bf16_kernels_match_the_reference),
      cmocka_unit_test(avx512_bf16_kernels_match_the_reference),
      cmocka_unit_test(avx512_dot_product_kernels_match_the_reference),
      cmocka_unit_test(amx_kernels_match_the_reference),
      cmocka_unit_test(portable_fp16_kernels_match_the_reference),
      cmocka_unit_test(avx2_fp16_kernels_match_the_reference),
      cmocka_unit_test(avx512_fp16_kernels_match_the_reference),
      cmocka_unit_test(last_chunks_fit_into_the_workspace),
      cmocka_unit_test(fp16_operands_without_room_are_read_too),
      cmocka_unit_test(fp16_conversions_are_exact),
      cmocka_unit_test(bf16_accumulators_match_the_reference),
      cmocka_unit_test(activations_are_exact_to_a_few_ulp),
      cmocka_unit_test(narrow_caches_match_the_reference),
      cmocka_unit_test(not_a_number_stays),
      cmocka_unit_test(errors_are_found),
      cmocka_unit_test(reference_kernels_are_a_device),
      cmocka_unit_test(plait_simd_chooses_the_level),
  };
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, NULL, NULL);
}
