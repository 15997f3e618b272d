// Time of an AdamW update with moments in fp32 and in 8 bits: bench_states [ELEMENTS [ROUNDS]]. One thread; at each
// level of instructions that the machine has, the two run in turn, and the best time of each counts, as core seconds:
// what else runs on the machine does not count, except for caches and memory. Without ELEMENTS: once with what fits
// into the cache of second level, once with what does not fit into any.
#include "base/clock.h"
#include "device/cpu/cpu.h"
#include "op/state_update.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { KINDS = 3, COLUMNS = 1024, BLOCK = 256 };
static const char *const kinds[KINDS] = {"fp32", "8 bits", "8 bits, scales only"};

// Weights, gradients and both kinds of moments of one matrix, (rows, COLUMNS).
typedef struct Memory {
  int64_t rows;
  float *w, *g, *moment[2], *scales[2], *new_scales[2];
  uint8_t *code[2];
} Memory;

static Memory memory_of(int64_t n) {
  Memory m = {.rows = n / COLUMNS};
  m.w = xcalloc((size_t)n, sizeof *m.w);
  m.g = xcalloc((size_t)n, sizeof *m.g);
  for (int i = 0; i < 2; i++) {
    m.moment[i] = xcalloc((size_t)n, sizeof *m.moment[i]);
    m.code[i] = xcalloc((size_t)n, 1);
    m.scales[i] = xcalloc((size_t)(n / BLOCK), sizeof *m.scales[i]);
    m.new_scales[i] = xcalloc((size_t)(n / BLOCK), sizeof *m.new_scales[i]);
  }
  for (int64_t i = 0; i < n; i++) {
    uint32_t random = (uint32_t)i * 2654435761u;
    m.w[i] = (float)(random >> 8) * 0x1p-24f - 0.5f;
    random = (random ^ random >> 15) * 2246822519u;
    m.g[i] = ((float)(random >> 8) * 0x1p-24f - 0.5f) * 0.01f;
  }
  return m;
}

static void memory_free(Memory *m) {
  free(m->w);
  free(m->g);
  for (int i = 0; i < 2; i++) {
    free(m->moment[i]);
    free(m->code[i]);
    free(m->scales[i]);
    free(m->new_scales[i]);
  }
}

static Operand matrix(void *data, Dtype dtype, int64_t rows, int64_t columns) {
  return (Operand){.data = data, .dtype = dtype, .rank = 2, .size = {rows, columns},
                   .map = {index_whole(rows), index_whole(columns)}};
}

// One update; kind: as in `kinds`.
static void update(const Memory *m, CpuLevel level, int kind, uint64_t step) {
  double scalar[] = {1e-3, 1, 0, (double)step};
  OptimizerAttr adamw = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .decay = 0.1};
  StateAttr attr = {.op = OP_ADAMW, .dtype = DTYPE_F32, .encoding = ENCODING_8BIT, .ninput = 8, .noutput = 3,
                    .attr.optimizer = adamw};
  Operand in[10], out[5];
  in[0] = out[0] = matrix(m->w, DTYPE_F32, m->rows, COLUMNS);
  in[3] = matrix(m->g, DTYPE_F32, m->rows, COLUMNS);
  for (int i = 0; i < 4; i++) in[4 + i] = (Operand){.data = &scalar[i], .dtype = DTYPE_F64};
  for (int i = 0; i < 2; i++) {
    void *moment = kind ? (void *)m->code[i] : (void *)m->moment[i];
    in[1 + i] = out[1 + i] = matrix(moment, kind ? DTYPE_U8 : DTYPE_F32, m->rows, COLUMNS);
    in[8 + i] = out[3 + i] = matrix(m->scales[i], DTYPE_F32, m->rows, COLUMNS / BLOCK);
    if (kind == 2) out[i] = matrix(m->new_scales[i], DTYPE_F32, m->rows, COLUMNS / BLOCK);
  }
  CallParameters parameters = {.seed = 1, .step = step};
  KernelCall call = {.ninput = kind ? 10 : 8, .noutput = kind == 0 ? 3 : kind == 1 ? 5 : 2, .input = in, .output = out,
                     .attr = kind ? (const void *)&attr : (const void *)&adamw, .parameters = &parameters};
  cpu_find(level, kind == 0 ? OP_ADAMW : kind == 1 ? OP_STATE_UPDATE : OP_STATE_SCALES, DTYPE_F32)->kernel(&call);
}

static void measure(int64_t n, int rounds) {
  Memory m = memory_of(n);
  int repeats = n < 1 << 17 ? (int)((1 << 17) / n) : 1;
  for (int level = 0; level < CPU_LEVELS; level++) {
    if (!cpu_level_available((CpuLevel)level)) continue;
    double best[KINDS] = {1e9, 1e9, 1e9};
    uint64_t step = 0;
    for (int round = 0; round <= rounds; round++) // the first warms up
      for (int kind = 0; kind < KINDS; kind++) {
        double begin = clock_thread_seconds();
        for (int i = 0; i < repeats; i++) update(&m, (CpuLevel)level, kind, ++step);
        double took = (clock_thread_seconds() - begin) / repeats / (double)n * 1e9;
        if (round && took < best[kind]) best[kind] = took;
      }
    printf("%9" PRId64 " elements, %-8s", n, cpu_level_name((CpuLevel)level));
    for (int kind = 0; kind < KINDS; kind++) printf("  %s: %6.3f ns", kinds[kind], best[kind]);
    printf("  (%.2f of fp32)\n", best[1] / best[0]);
  }
  memory_free(&m);
}

int main(int argc, char **argv) {
  int64_t n = argc > 1 ? strtoll(argv[1], NULL, 10) / COLUMNS * COLUMNS : 0;
  int rounds = argc > 2 ? atoi(argv[2]) : 200;
  if (argc > 1 && n <= 0) return fprintf(stderr, "usage: bench_states [ELEMENTS [ROUNDS]], at least 1024\n"), 2;
  if (n) return measure(n, rounds), 0;
  measure(1 << 15, rounds);
  measure(1 << 24, rounds > 10 ? 10 : rounds);
  return 0;
}
