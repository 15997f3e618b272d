// parallel.recompute: auto: the list of what blocks compute again that takes the least time within parallel.memory.
//
// Each pipeline rank has its own chain (machine/chain.h), of its blocks' times and bytes, which are read off the
// Programs of the recipe with nothing, the cheap ops, and everything recomputed. The list that the chain's dynamic
// programme finds is compiled. Its memory plan decides: where it is above the budget, the chain gets less; where it is
// below, more.
#pragma once
#include "compile/compile.h"
#include "machine/machine_times.h"
#include "recipe/recipe.h"
#include "runtime/job.h"

enum { RECOMPUTE_POINTS = 8 };

// A list that was compiled. seconds: of blocks' kernels in a step of the pipeline rank that takes the longest, or with
// no cluster a number in proportion to them.
typedef struct RecomputePoint {
  RecomputeList list;
  int64_t bytes; // of the rank that takes the most
  double seconds;
} RecomputePoint;

typedef struct RecomputeChoice {
  RecomputePoint chosen, kept; // kept: with nothing recomputed
  RecomputePoint least;        // of those that were tried the one that needs the least memory
  RecomputePoint point[RECOMPUTE_POINTS]; // more memory and less time from one to the next
  int points;
  bool by_seconds;             // of a cluster; else by FLOPs and bytes
} RecomputeChoice;

// Fills in options->step.recompute.list. options and run are of the job that would be made else. choice: NULL, or what
// plans print, with points. PLAIT_INFEASIBLE: no list that was found needs as little as parallel.memory.
int recompute_auto(const Recipe *recipe, const ModelConfig *config, const MachineTimes *times,
                   CompileOptions *options, const JobOptions *run, RecomputeChoice *choice, Error *error);
