// Speed of the matrix products at typical sizes: bench/gemm [threads]. Not a test.
#include "backend/cpu/cpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void measure(CpuLevel level, Dtype dtype, MatmulKind kind, int64_t m, int64_t n, int64_t k, Team *team) {
  static const char *const kinds[] = {"NT", "NN", "TN"};
  const Backend *backend = backend_cpu_at(level);
  const KernelEntry *entry = backend->find(backend, OP_MATMUL, dtype);
  MatmulAttr attr = {.kind = kind, .m = 1, .n = 1, .k = 1};
  Operand x = {.dtype = dtype, .rank = 2, .size = {m, k}}, w = {.dtype = dtype, .rank = 2, .size = {n, k}},
          y = {.dtype = dtype, .rank = 2, .size = {m, n}};
  Operand *all[] = {&x, &w, &y};
  for (int i = 0; i < 3; i++) {
    int64_t count = operand_elements(all[i]);
    all[i]->data = xcalloc((size_t)count, dtype_size(dtype));
    for (int64_t e = 0; e < count; e++) dtype_store(all[i]->data, dtype, e, (double)(e * 37 % 101) / 101 - 0.5);
  }
  Operand input[2] = {kind == MATMUL_NT ? x : y, kind == MATMUL_TN ? x : w};
  Operand output = kind == MATMUL_NT ? y : kind == MATMUL_NN ? x : w;
  size_t bytes = entry->workspace(input, &output, &attr, team_size(team));
  KernelCall call = {.ninput = 2, .noutput = 1, .input = input, .output = &output, .attr = &attr, .team = team,
                     .workspace = aligned_alloc(64, (bytes + 63) / 64 * 64), .workspace_size = bytes};
  double best = 1e9;
  entry->kernel(&call);
  for (double begin = seconds(), now = begin; now - begin < 0.15;) {
    double before = now;
    entry->kernel(&call);
    now = seconds();
    if (now - before < best) best = now - before;
  }
  printf("%-8s %s %s %5ld x %5ld x %5ld  %7.1f GF/s\n", cpu_level_name(level), dtype_name(dtype), kinds[kind], (long)m, (long)n,
         (long)k, 2e-9 * (double)m * (double)n * (double)k / best);
  for (int i = 0; i < 3; i++) free(all[i]->data);
  free(call.workspace);
}

int main(int argc, char **argv) {
  static const int64_t size[][3] = {{512, 192, 192}, {512, 768, 192}, {512, 192, 768}, {1024, 1024, 192}, {2048, 1536, 768}};
  Team *team = team_create(argc > 1 ? atoi(argv[1]) : 1);
  for (CpuLevel level = CPU_LEVELS; level-- > 0;)
    if (cpu_level_available(level))
      for (int dtype = DTYPE_F32; dtype >= DTYPE_F64; dtype--)
        for (int s = 0; s < (int)(sizeof size / sizeof *size); s++)
          for (int kind = MATMUL_NT; kind <= MATMUL_TN; kind++)
            measure(level, (Dtype)dtype, (MatmulKind)kind, size[s][0], size[s][1], size[s][2], team);
  printf("peak %.1f GF/s\n", 1e-9 * backend_peak_flops(team));
  team_destroy(team);
  return 0;
}
