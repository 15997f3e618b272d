// The optimizers' kernels on fp32 weights, which may write their Copy, in bf16 or fp16, as well.
#pragma once
#include "device/cpu/cpu.h"

extern const KernelEntry cpu_copy_portable[], cpu_copy_avx2[], cpu_copy_avx512[]; // under DTYPE_F32
