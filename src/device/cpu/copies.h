// Kernels that only copy rows, for all levels and dtypes.
#pragma once
#include "device/cpu/cpu.h"

extern const KernelEntry cpu_copies[]; // ends with a NULL kernel
