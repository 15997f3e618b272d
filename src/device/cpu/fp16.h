// fp16 on the CPU: a level's kernels, all through fp32, and the narrow accumulators of gradients.
#pragma once
#include "device/cpu/cpu.h"

// Arrays of fp16 ↔ fp32, rounded to nearest even.
typedef struct HalfConversion {
  void (*widen)(float *to, const uint16_t *from, int64_t n);
  void (*narrow)(uint16_t *to, const float *from, int64_t n);
} HalfConversion;
extern const HalfConversion fp16_portable, fp16_f16c; // the second needs AVX2 and F16C

int fp16_has_instructions(void); // F16C; every processor with AVX2 that was ever sold has it
