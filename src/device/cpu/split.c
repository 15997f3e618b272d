// Split weights go block by block through the level's fp32 kernel: joined on the stack, updated, split again. Blocks do
// not depend on threads, and their elements not on each other, so the bits are those of fp32 weights.
#include "device/cpu/split.h"
#include "base/fault.h"
#include "op/optimizer.h"

enum { BLOCK = 4096, MOST = OPTIMIZER_OPERANDS }; // elements at a time

#define LOOPS(level, attribute)                                                                                        \
  attribute static void join_##level(float *restrict to, const uint16_t *restrict high, const uint16_t *restrict low, \
                                     int64_t n) {                                                                      \
    for (int64_t i = 0; i < n; i++) to[i] = bf16_join(high[i], low[i]);                                                \
  }                                                                                                                    \
  attribute static void split_##level(uint16_t *restrict high, uint16_t *restrict low, const float *restrict from,    \
                                      int64_t n) {                                                                     \
    for (int64_t i = 0; i < n; i++) high[i] = bf16_split(from[i], &low[i]);                                            \
  }                                                                                                                    \
  attribute static void widen_##level(float *restrict to, const uint16_t *restrict from, int64_t n) {                 \
    for (int64_t i = 0; i < n; i++) to[i] = bf16_to_float(from[i]);                                                    \
  }                                                                                                                    \
  static const SplitLoops loops_##level = {join_##level, split_##level, widen_##level};

LOOPS(portable, )
#if defined(__x86_64__)
LOOPS(avx2, __attribute__((target("avx2"))))
#endif

const SplitLoops *cpu_split_loops(CpuLevel level) {
#if defined(__x86_64__)
  if (level != CPU_PORTABLE) return &loops_avx2;
#endif
  return &loops_portable;
}

typedef struct Split {
  const KernelCall *call;
  const SplitLoops *loops;
  Kernel kernel; // of fp32
} Split;

static void run_block(const Split *s, int64_t from, int64_t n) {
  const KernelCall *call = s->call;
  Operand input[MOST], output[MOST];
  float w[BLOCK], gradient[BLOCK];
  KernelCall wide = *call;
  wide.ninput--; // without the lower bits
  wide.noutput--;
  wide.input = input;
  wide.output = output;
  wide.queue = NULL;
  for (int k = 0; k < wide.ninput; k++) {
    input[k] = cpu_operand_part(&call->input[k], from, n);
    if (!k || !input[k].data || !input[k].rank || input[k].dtype != DTYPE_BF16) continue;
    s->loops->widen(gradient, input[k].data, n);
    input[k].data = gradient;
    input[k].dtype = DTYPE_F32;
  }
  for (int k = 0; k < wide.noutput; k++) output[k] = cpu_operand_part(&call->output[k], from, n);
  const uint16_t *low = (const uint16_t *)call->input[wide.ninput].data + from;
  uint16_t *new_low = (uint16_t *)call->output[wide.noutput].data + from, *new_high = output[0].data;
  s->loops->join(w, input[0].data, low, n);
  input[0].data = output[0].data = w;
  input[0].dtype = output[0].dtype = DTYPE_F32;
  s->kernel(&wide);
  s->loops->split(new_high, FAULT(low_bits_stay, new_low, (uint16_t *)(void *)gradient), w, n);
}

static void run_unit(void *argument, int slot, int64_t unit) {
  const Split *s = argument;
  RowRange r = chunk_range(operand_elements(&s->call->output[0]), unit);
  for (int64_t from = r.from; from < r.to; from += BLOCK)
    run_block(s, from, r.to - from < BLOCK ? r.to - from : BLOCK);
}

static int fits(const KernelCall *call) {
  int bf16 = 0;
  for (int k = 0; k < call->ninput - 1; k++) {
    const Operand *x = &call->input[k];
    if (!x->data || !x->rank) continue;
    if (x->dtype != DTYPE_BF16 && x->dtype != DTYPE_F32) return 0;
    bf16 += x->dtype == DTYPE_BF16;
  }
  return optimizer_is_split(call) && call->ninput <= MOST && call->input[0].dtype == DTYPE_BF16 && bf16 <= 2;
}

static void run(const KernelCall *call, const KernelEntry *fp32, const SplitLoops *loops, Op op) {
  while (fp32->kernel && (fp32->op != op || fp32->dtype != DTYPE_F32)) fp32++;
  Split s = {call, loops, fp32->kernel};
  if (s.kernel && fits(call)) team_each(call_team(call), chunk_units(operand_elements(call->output)), run_unit, &s);
  else op_def(op)->reference(call);
}

#define TABLE cpu_split
#define TABLE_DTYPE DTYPE_BF16
#define LEVEL portable
#define RUN(call, op) run(call, cpu_table_portable, &loops_portable, op)
#include "device/cpu/optimizer_level.h"
#if defined(__x86_64__)
#define LEVEL avx2
#define RUN(call, op) run(call, cpu_table_avx2, &loops_avx2, op)
#include "device/cpu/optimizer_level.h"
#define LEVEL avx512
#define RUN(call, op) run(call, cpu_table_avx512, &loops_avx2, op)
#include "device/cpu/optimizer_level.h"
#endif
