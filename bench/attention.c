// Speed of causal attention on the CPU, forward and backward: bench_attention [THREADS [DTYPE]]. One sequence of 6
// heads of width 64 (shape L of docs/attempts.md), 1,024 to 8,192 positions. A line each: dtype, positions,
// milliseconds of the best forward and of the best backward call, GF/s of both together (products of the pairs that a
// query sees). bench/attention_beside runs it beside PyTorch's scaled_dot_product_attention.
#include "base/clock.h"
#include "device/cpu/cpu.h"
#include "op/op.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 6, WIDTH = 64, Q = 0, K, V, DOCUMENTS, KEY_DOCUMENTS, OUT, LOGSUMEXP, DOUT, INPUTS };

static Operand filled(Dtype dtype, int rank, const int64_t *size) {
  Operand x = {.dtype = dtype, .rank = rank};
  for (int d = 0; d < rank; d++) x.size[d] = size[d], x.map[d] = index_range(0, size[d], size[d]);
  int64_t count = operand_elements(&x);
  x.data = xcalloc((size_t)count, dtype_size(dtype));
  if (dtype != DTYPE_I32) // documents: one, number 0
    for (int64_t e = 0; e < count; e++) dtype_store(x.data, dtype, e, (double)(e * 37 % 101) / 101 - 0.5);
  return x;
}

// Least seconds of some calls.
static double best_call(CpuLevel level, Op op, const Operand *input, int inputs, Operand *output, int outputs,
                        const AttentionAttr *attr, Team *team) {
  const KernelEntry *entry = cpu_find(level, op, input[0].dtype);
  size_t bytes = entry->workspace ? entry->workspace(input, output, attr, team_slots(team)) : 0;
  CallParameters parameters = {0};
  DeviceQueue queue = {.team = team};
  KernelCall call = {.ninput = inputs,
                     .noutput = outputs,
                     .input = input,
                     .output = output,
                     .attr = attr,
                     .parameters = &parameters,
                     .queue = &queue,
                     .workspace = aligned_alloc(64, (bytes + 127) / 64 * 64),
                     .workspace_size = bytes};
  double best = INFINITY;
  entry->kernel(&call);
  for (double begin = clock_seconds(), now = begin; now - begin < 1;) {
    double before = now;
    entry->kernel(&call);
    now = clock_seconds();
    if (now - before < best) best = now - before;
  }
  free(call.workspace);
  return best;
}

static void measure(CpuLevel level, Dtype dtype, int64_t s, Team *team) {
  Dtype wide = op_statistics_dtype(dtype);
  int64_t queries[] = {1, s, HEADS, 1, WIDTH}, keys[] = {1, s, HEADS, WIDTH}, rows[] = {1, HEADS, 1, s}, all[] = {1, s};
  AttentionAttr attr = {.scale = 1 / sqrt(WIDTH), .causal = 1};
  Operand input[INPUTS] = {filled(dtype, 5, queries), filled(dtype, 4, keys), filled(dtype, 4, keys),
                           filled(DTYPE_I32, 2, all), filled(DTYPE_I32, 2, all), filled(dtype, 5, queries),
                           filled(wide, 4, rows), filled(dtype, 5, queries)};
  Operand output[2] = {input[OUT], input[LOGSUMEXP]};
  Operand gradient[3] = {filled(dtype, 5, queries), filled(dtype, 4, keys), filled(dtype, 4, keys)};
  double pairs = (double)HEADS * (double)s * (double)(s + 1) / 2;
  double forward = best_call(level, OP_ATTENTION, input, 5, output, 2, &attr, team);
  double backward = best_call(level, OP_ATTENTION_GRAD, input, INPUTS, gradient, 3, &attr, team);
  printf("%s %ld forward %.2f ms backward %.2f ms %.1f GF/s\n", dtype_name(dtype), (long)s, 1e3 * forward,
         1e3 * backward, 1e-9 * pairs * 14 * WIDTH / (forward + backward)); // 2 products forward, 5 backward
  fflush(stdout);
  for (int i = 0; i < INPUTS; i++) free(input[i].data);
  for (int i = 0; i < 3; i++) free(gradient[i].data);
}

int main(int argc, char **argv) {
  Team *team;
  if (team_create(argc > 1 ? atoi(argv[1]) : 1, &team, NULL))
    return fprintf(stderr, "that many threads cannot be started\n"), 1;
  for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
    if (dtype == DTYPE_F16 || (argc > 2 && strcmp(argv[2], dtype_name((Dtype)dtype)))) continue;
    CpuLevel level = dtype != DTYPE_BF16 && cpu_simd_level() > CPU_AVX512 ? CPU_AVX512 : cpu_simd_level();
    for (int64_t s = 1024; s <= 8192; s *= 2) measure(level, (Dtype)dtype, s, team);
  }
  team_destroy(team);
  return 0;
}
