// One run of a probe: some steps of a small recipe on this machine, and what each kernel and each collective of its
// Programs took in them. Kernels are timed where they stand in a step, so that their operands lie in the caches and in
// memory where they lie in any other run.
#pragma once
#include "plait/comm.h"
#include "machine/facts.h"
#include "recipe/recipe.h"

// Times to which a run adds: seconds by kind of kernel, as machine/kernel_table.h reads them.
typedef struct ProbeTimes {
  Vec(MeasuredKernel) kernel;
  Vec(MeasuredCollective) collective;
} ProbeTimes;
void probe_times_free(ProbeTimes *times);
int probe_same_kernel(const MeasuredKernel *a, const MeasuredKernel *b); // but for their seconds

typedef struct ProbeResult {
  double step;     // seconds, the median
  double kernels;  // of them, of the slowest rank: in kernels,
  double waits;    // and in collectives and messages
  double instructions; // how many there are in a step
  double skew; // seconds in which a rank waits for others that came later to a collective, on average over the ranks
} ProbeResult;

// Ranks are threads of this process. *result may be NULL.
// PLAIT_BAD_INPUT, PLAIT_INFEASIBLE, PLAIT_NO_MEMORY: as a run of the recipe.
// `cache`: bytes of the machine's last cache. `comm`: of as many processes as the recipe has ranks, each of which calls
// and gets what it has seen itself; NULL: ranks are threads of this process.
int probe_run(const Recipe *recipe, const ModelConfig *config, int64_t steps, double cache, PlaitComm *comm,
              ProbeTimes *times, ProbeResult *result, Error *error);
