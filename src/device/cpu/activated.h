// Products that apply an activation, or its slope.
#pragma once
#include "device/cpu/cpu.h"

const KernelEntry *cpu_activated(CpuLevel level, Op op); // NULL: it is neither
