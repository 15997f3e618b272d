// Inside of the CPU back end: SIMD levels, their tables, and what all kernels share.
#pragma once
#include "backend/backend.h"

typedef enum CpuLevel { CPU_PORTABLE, CPU_AVX2, CPU_AVX512, CPU_LEVELS } CpuLevel;

// The best level of this machine that PLAIT_SIMD allows. PLAIT_SIMD=reference leaves the reference kernels: CPU_LEVELS.
CpuLevel cpu_simd_level(void);
const char *cpu_level_name(CpuLevel level);  // "portable", "avx2", "avx512"
int cpu_level_available(CpuLevel level);     // whether this machine can run it
const Backend *backend_cpu_at(CpuLevel level); // for tests: one level, whatever PLAIT_SIMD says

// Tables end with a NULL kernel.
extern const KernelEntry cpu_table_portable[], cpu_table_avx2[], cpu_table_avx512[];

// Calls body(argument, slot, unit) for every unit; units are taken off a counter by at most team_size slots, and one slot
// is never in two threads at once, so it may own a part of the workspace.
void cpu_parallel(Team *team, int64_t units, void (*body)(void *argument, int slot, int64_t unit), void *argument);
