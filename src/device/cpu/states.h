// STATE_UPDATE and STATE_SCALES: optimizers' kernels on moments of 8 bits.
#pragma once
#include "device/cpu/cpu.h"

extern const KernelEntry cpu_states_portable[], cpu_states_avx2[], cpu_states_avx512[];
