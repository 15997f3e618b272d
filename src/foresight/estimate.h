// How long a run will take, about: before it begins, simulated where this machine was measured (plait probe), else from
// its Program and the measured speed of one product.
#pragma once
#include "recipe/recipe.h"
#include "runtime/job.h"

typedef struct Estimate {
  bool simulated;       // by what plait probe has measured of this machine and keeps; else from the peak
  double peak;          // FLOP/s of products of all ranks' threads; 0 where it is simulated
  int threads, cores;   // with which it was measured: of all ranks of this process; those that it may use
  double step_seconds, tokens_per_s;
  double run_seconds;   // of the steps that are asked for, and their evaluations
  double most;          // it may take up to this many times as long; 1 where it is simulated
} Estimate;

// Of `steps` steps. processes: 0: ranks are threads; else they are processes, this many of them on this machine, and
// all are taken to be as fast as this one; the network between them is not counted, and nothing is simulated. Returns
// 1, or 0 where the device's speed cannot be measured.
// Measurements of this machine are read, but never made here.
int estimate_run(const Recipe *recipe, const Job *job, int processes, int64_t steps, Estimate *out);
// The same of one of a job's graphs, whose products are mostly of `dtype`: only seconds of one step are filled in.
int estimate_step(const Job *job, const Compiled *of, Dtype dtype, int processes, Estimate *out);
// The same from measurements alone, where ranks are threads: false, and nothing is measured, where there are none.
bool estimate_has_measurements(void);
bool estimate_measured_step(const Job *job, const Compiled *of, double *seconds);
// A warning where the `steps` steps after step `done` take more than a day: how long, and what would make it shorter by
// how much; of a run that resumes (done > 0) only what it can still change. Nothing else.
void estimate_warn(const Recipe *recipe, const ModelConfig *config, const Estimate *estimate, int processes,
                   int64_t done, int64_t steps, FILE *out);
// Seconds of it as people read them, "about 2m 10s", or from the fewest to the most: "2m 10s to 4m 20s"; and tokens/s.
typedef struct EstimateText { char s[80]; } EstimateText; // by value
EstimateText estimate_duration(const Estimate *estimate, double seconds);
EstimateText estimate_tokens(const Estimate *estimate);
// Where `estimate` comes from, in brackets of a line: "simulated by what plait probe measured of this machine", or
// "estimated from a product at 1.2 TFLOP/s". The caller frees it.
char *estimate_source(const Estimate *estimate);
