// Measuring plans on this machine: which of the plans that a search found is the fastest here.
//
// The field is halved by measured time (successive halving: Jamieson and Talwalkar, 2016): a round measures all plans
// that are left, each with the same number of steps, and the faster half enters the next round, which has twice as many
// steps. The last round has at least two plans, if two can be run.
#pragma once
#include "recipe/recipe.h"

// seconds: the median of the measured steps without the first; 0: not measured yet. round: the last one in which the
// plan took part, from 0. failed: it could not be run; why: the sentence.
typedef struct TunePlan {
  int plan; // the caller's number of it
  double seconds;
  int steps, round;
  bool failed;
  Error why;
} TunePlan;

// Measures a plan with `steps` steps. PLAIT_INTERRUPTED ends all; another error is the plan's alone.
typedef int TuneMeasure(void *context, int plan, int steps, double *seconds, Error *error);

enum { TUNE_LEAST_STEPS = 3 }; // of a round, where the last one has as many
int tune_rounds(int plans);
// Of a round: the last has `most`, each one before it half as many.
int tune_steps(int plans, int round, int most);

// Halves `plans` (count, filled in here with numbers from 0) and sorts them, the fastest first: those that were
// measured longer come before those that left earlier, and those that failed come last. steps: of the last round, at
// least 2. PLAIT_INTERRUPTED: sorted by what is known so far.
int tune_halve(TunePlan *plans, int count, int steps, TuneMeasure *measure, void *context);

// Runs `steps` steps of a recipe with the trainer, without checkpoints and evaluations, in a separate process: a plan
// that fails, or dies of memory, harms nobody else. Its ranks are threads of that process. All that it writes is in
// `folder`, which must not exist yet and is not removed. Polls base/signals.h, and after a signal ends the run:
// PLAIT_INTERRUPTED. Other errors are those of the run.
int tune_run(const Recipe *recipe, int steps, const char *folder, double *seconds, Error *error);
