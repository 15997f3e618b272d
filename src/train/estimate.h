// How long a run will take, about: before it begins, from its Program and the measured speed of one product.
#pragma once
#include "recipe/recipe.h"
#include "runtime/job.h"

typedef struct Estimate {
  double peak;          // FLOP/s of products of all ranks' threads
  int threads, cores;   // with which it was measured: of all ranks of this process; those that it may use
  double step_seconds, tokens_per_s;
  double run_seconds;   // of the steps that are asked for, and their evaluations
} Estimate;

// Of `steps` steps. processes: ranks are processes, which are taken to be as fast as this one; the network between them
// is not counted. 0: the device does not tell how fast it is.
int estimate_run(const Recipe *recipe, const Job *job, bool processes, int64_t steps, Estimate *out);
// A warning where the run takes more than a day: how long, and what would make it shorter by how much. "" else.
void estimate_warn(const Recipe *recipe, const ModelConfig *config, const Estimate *estimate, bool processes,
                   int64_t steps, FILE *out);
