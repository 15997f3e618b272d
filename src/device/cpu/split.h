// The optimizers' kernels on split weights: w is bf16 and, in the last operand, the 16 bits that make fp32 of it.
#pragma once
#include "device/cpu/cpu.h"

// Arrays of fp32 ↔ bf16 and the rest (base/dtype.h), and of bf16 → fp32.
typedef struct SplitLoops {
  void (*join)(float *to, const uint16_t *high, const uint16_t *low, int64_t n);
  void (*split)(uint16_t *high, uint16_t *low, const float *from, int64_t n);
  void (*widen)(float *to, const uint16_t *from, int64_t n);
} SplitLoops;
const SplitLoops *cpu_split_loops(CpuLevel level);

extern const KernelEntry cpu_split_portable[], cpu_split_avx2[], cpu_split_avx512[]; // under DTYPE_BF16
