// REORDER_ROWS for all levels and dtypes.
#pragma once
#include "device/cpu/cpu.h"

extern const KernelEntry cpu_reorder;
