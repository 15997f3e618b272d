// Speed of the matrix products of training steps: bench_gemm [THREADS [DTYPE [LEVEL]]]; LEVEL best: those that training
// uses.
#include "device/cpu/cpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Wall time: packing, waiting and imbalance count as in training. The best of many calls is printed, so a machine that
// others share disturbs little.
static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fill(Operand *x) {
  int64_t count = operand_elements(x);
  x->data = xcalloc((size_t)count, dtype_size(x->dtype));
  for (int64_t e = 0; e < count; e++) dtype_store(x->data, x->dtype, e, (double)(e * 37 % 101) / 101 - 0.5);
}

// The best speed of calls of an op, in GF/s. Frees what the operands point at.
static double speed_of(CpuLevel level, Op op, Dtype dtype, Operand *input, int inputs, Operand *output, int outputs,
                       const void *attr, double flops, Team *team) {
  const KernelEntry *entry = cpu_find(level, op, dtype);
  size_t bytes = entry->workspace(input, output, attr, team_slots(team));
  KernelCall call = {.ninput = inputs,
                     .noutput = outputs,
                     .input = input,
                     .output = output,
                     .attr = attr,
                     .queue = &(DeviceQueue){.team = team},
                     .workspace = aligned_alloc(64, (bytes + 63) / 64 * 64),
                     .workspace_size = bytes};
  double best = 1e9;
  entry->kernel(&call);
  for (double begin = seconds(), now = begin; now - begin < 0.15;) {
    double before = now;
    entry->kernel(&call);
    now = seconds();
    if (now - before < best) best = now - before;
  }
  for (int i = 0; i < inputs; i++) free(input[i].data);
  for (int i = 0; i < outputs; i++) free(output[i].data);
  free(call.workspace);
  return 1e-9 * flops / best;
}
static double speed(CpuLevel level, Op op, Dtype dtype, Operand *input, int inputs, Operand output, const void *attr,
                    double flops, Team *team) {
  return speed_of(level, op, dtype, input, inputs, &output, 1, attr, flops, team);
}

static const char *const kinds[] = {"NT", "NN", "TN"};

static double dense(CpuLevel level, Dtype dtype, MatmulKind kind, int64_t m, int64_t n, int64_t k, Team *team) {
  MatmulAttr attr = {.kind = kind, .m = 1, .n = 1, .k = 1};
  Operand x = {.dtype = dtype, .rank = 2, .size = {m, k}}, w = {.dtype = dtype, .rank = 2, .size = {n, k}},
          y = {.dtype = dtype, .rank = 2, .size = {m, n}};
  if (kind == MATMUL_TN && dtype == DTYPE_BF16) w.dtype = DTYPE_F32; // gradients of weights stay wide
  fill(&x), fill(&w), fill(&y);
  return speed(level, OP_MATMUL, dtype, (Operand[]){kind == MATMUL_NT ? x : y, kind == MATMUL_TN ? x : w}, 2,
               kind == MATMUL_NT ? y : kind == MATMUL_NN ? x : w, &attr, 2.0 * (double)m * (double)n * (double)k, team);
}

static void measure(CpuLevel level, Dtype dtype, MatmulKind kind, int64_t m, int64_t n, int64_t k, Team *team) {
  printf("%-11s %s %s %5ld x %5ld x %5ld  %7.1f GF/s\n", cpu_level_name(level), dtype_name(dtype), kinds[kind], (long)m,
         (long)n, (long)k, dense(level, dtype, kind, m, n, k, team));
}

// Eight experts with 64 to 256 rows, beside a dense product of as many rows.
static void measure_grouped(CpuLevel level, Dtype dtype, MatmulKind kind, int64_t n, int64_t k, Team *team) {
  enum { EXPERTS = 8 };
  int64_t tokens = 0, rows[EXPERTS], at = 0;
  for (int x = 0; x < EXPERTS; x++) tokens += rows[x] = 64 + 192 * x / (EXPERTS - 1);
  GroupedAttr attr = {.kind = kind};
  Operand x = {.dtype = dtype, .rank = 4, .size = {tokens, 1, 1, k}}, w = {.dtype = dtype, .rank = 3,
          .size = {EXPERTS, n, k}}, y = {.dtype = dtype, .rank = 4, .size = {tokens, 1, 1, n}},
          mask = {.dtype = DTYPE_U8, .rank = 3, .size = {1, tokens, EXPERTS}};
  if (kind == MATMUL_TN && dtype == DTYPE_BF16) w.dtype = DTYPE_F32;
  fill(&x), fill(&w), fill(&y);
  mask.data = xcalloc((size_t)operand_elements(&mask), 1);
  for (int e = 0; e < EXPERTS; at += rows[e++])
    for (int64_t r = at; r < at + rows[e]; r++) ((uint8_t *)mask.data)[r * EXPERTS + e] = 1;
  double flops = 2.0 * (double)tokens * (double)n * (double)k,
         grouped = speed(level, kind == MATMUL_TN ? OP_GROUPED_WEIGHT : OP_GROUPED, dtype,
                         (Operand[]){kind == MATMUL_NT ? x : y, kind == MATMUL_TN ? x : w, mask}, 3,
                         kind == MATMUL_NT ? y : kind == MATMUL_NN ? x : w, &attr, flops, team),
         one = dense(level, dtype, kind, tokens, n, k, team);
  printf("%-11s %s %s %5ld x %5ld x %5ld  %7.1f GF/s in %d groups, %.0f%% of a dense product\n", cpu_level_name(level),
         dtype_name(dtype), kinds[kind], (long)tokens, (long)n, (long)k, grouped, EXPERTS, 100 * grouped / one);
}

// The head with its loss and both gradients: three products of rows × vocabulary × width, and the exponentials. dw is
// overwritten.
static void measure_head(CpuLevel level, Dtype dtype, int64_t rows, int64_t vocabulary, int64_t width, Team *team) {
  CrossEntropyAttr attr = {.gradient = 1};
  Dtype wide = dtype == DTYPE_BF16 ? DTYPE_F32 : dtype;
  Operand input[4] = {{.dtype = dtype, .rank = 3, .size = {1, rows, width}},
                      {.dtype = dtype, .rank = 2, .size = {vocabulary, width}},
                      {.dtype = DTYPE_I32, .rank = 2, .size = {1, rows}},
                      {.dtype = DTYPE_F64}};
  Operand output[3] = {{.dtype = DTYPE_F64}, input[0], {.dtype = wide, .rank = 2, .size = {vocabulary, width}}};
  for (int i = 0; i < 4; i++) fill(&input[i]);
  for (int i = 0; i < 3; i++) fill(&output[i]);
  for (int64_t row = 0; row < rows; row++) ((int32_t *)input[2].data)[row] = (int32_t)(row * 37 % vocabulary);
  input[1].map[0] = (IndexMap){.local = vocabulary, .valid = vocabulary, .global = vocabulary, .runs = 1};
  double flops = 6.0 * (double)rows * (double)vocabulary * (double)width,
         found = speed_of(level, OP_LINEAR_CROSS_ENTROPY, dtype, input, 4, output, 3, &attr, flops, team);
  printf("%-11s %s head %5ld x %5ld x %5ld  %7.1f GF/s\n", cpu_level_name(level), dtype_name(dtype), (long)rows,
         (long)vocabulary, (long)width, found);
}

// The products of a block of the shapes A and B (2048 tokens) and C (1024 tokens) of docs/performance.md, and small
// ones.
static const int64_t sizes[][3] = {{512, 192, 192},   {2048, 1152, 384}, {2048, 384, 384},  {2048, 1536, 384},
                                   {2048, 384, 1536}, {2048, 512, 384},  {1024, 2304, 768}, {1024, 768, 768},
                                   {1024, 3072, 768}, {1024, 768, 3072}, {512, 4096, 1024}, {512, 1024, 4096}};

// Rows, vocabulary and width of the heads of A, B and C.
static const int64_t heads[][3] = {{2048, 50304, 384}, {2048, 512, 384}, {1024, 50304, 768}};

// Inside and outside of an expert: shape B's with experts of 512, and back, and larger ones.
static const int64_t expert_sizes[][2] = {{512, 384}, {384, 512}, {1536, 768}};

int main(int argc, char **argv) {
  Team *team;
  if (team_create(argc > 1 ? atoi(argv[1]) : 1, &team, NULL))
    return fprintf(stderr, "so many threads cannot be started\n"), 1;
  const char *wish = argc > 3 ? argv[3] : "";
  for (CpuLevel level = CPU_LEVELS; level-- > 0;)
    for (int dtype = DTYPE_F64; dtype <= DTYPE_BF16; dtype++) {
      if (!cpu_level_available(level) || (argc > 2 && strcmp(argv[2], dtype_name((Dtype)dtype)))) continue;
      CpuLevel best = dtype != DTYPE_BF16 && cpu_simd_level() > CPU_AVX512 ? CPU_AVX512 : cpu_simd_level();
      if (!strcmp(wish, "best") ? level != best
          : *wish               ? strcmp(wish, cpu_level_name(level)) != 0
                                : level > CPU_AVX512 && dtype != DTYPE_BF16)
        continue;
      for (int s = 0; s < (int)(sizeof sizes / sizeof *sizes); s++)
        for (int kind = MATMUL_NT; kind <= MATMUL_TN; kind++)
          measure(level, (Dtype)dtype, (MatmulKind)kind, sizes[s][0], sizes[s][1], sizes[s][2], team);
      for (int s = 0; s < (int)(sizeof heads / sizeof *heads); s++)
        measure_head(level, (Dtype)dtype, heads[s][0], heads[s][1], heads[s][2], team);
      for (int s = 0; s < (int)(sizeof expert_sizes / sizeof *expert_sizes); s++)
        for (int kind = MATMUL_NT; kind <= MATMUL_TN; kind++)
          measure_grouped(level, (Dtype)dtype, (MatmulKind)kind, expert_sizes[s][0], expert_sizes[s][1], team);
    }
  printf("peak fp32 %.1f GF/s\n", 1e-9 * device_cpu()->peak_flops(device_cpu(), DTYPE_F32, team));
  team_destroy(team);
  return 0;
}
