// Training by recipe from a program of your own: what the commands `plait train`, `plan` and `recipe` do.
// docs/recipes.md lists the keys of a recipe. The collectives underneath, for parallelism by hand, are in plait/comm.h.
//
//   PlaitError error = {0};
//   const char *overrides[] = {"mesh.dp=2", "run.dir=/tmp/run"};
//   if (plait_train("recipe.yaml", 2, overrides, stdout, &error)) fprintf(stderr, "%s\n", error.message);
//
// In every function `recipe` is the path of a YAML file, and overrides are "key=value" strings that come after it, in
// order, paths in them relative to the current folder; overrides may be NULL when there are none. Text goes to `out`,
// NULL for nowhere. Errors: PLAIT_BAD_INPUT or PLAIT_INFEASIBLE with one sentence about what the user wrote,
// PLAIT_FAILED for what the machine refused; `error` may be NULL. Nothing is kept between calls.
//
// Not a sandbox: when memory is out, or an invariant of plait is broken, the process ends with a message on stderr.
#pragma once
#include "plait/api.h"
#include "plait/error.h"
#include <stdio.h>

PLAIT_API_BEGIN

// "0.1.0" of the library that runs; static memory.
const char *plait_version(void);

// Trains to schedule.steps, or to a signal (SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP or SIGXCPU): it then finishes the
// step, saves, and returns PLAIT_INTERRUPTED, and the same call resumes from there. All that results lies in the folder
// run.dir: metrics.jsonl, checkpoints, the effective recipe. When all steps are done already it only says so. A run
// that resumes prints what is not as it was; other data, seed, tokenizer or model are PLAIT_BAD_INPUT. Local
// ranks are threads of this process, which are all gone when the call returns. `out` gets progress, one line every
// run.log_every steps where it is not a terminal. It installs handlers for these signals (not where they are ignored),
// the first of which says so on stderr, ignores SIGPIPE and SIGXFSZ, and leaves them so: one call at a time in a
// process, and none after one that was interrupted.
int plait_train(const char *recipe, int override_count, const char *const *overrides, FILE *out, PlaitError *error);

// Prints what training would take: memory of each rank by category, and FLOPs. Compiles the recipe as plait_train does,
// so that it refuses what that would refuse, but takes no memory for ranks and reads no data.
int plait_plan(const char *recipe, int override_count, const char *const *overrides, FILE *out, PlaitError *error);

// Checks the recipe and prints it as it will be understood: every key, defaults filled in, absolute paths. No other
// file is opened. The output is itself a recipe.
int plait_recipe(const char *recipe, int override_count, const char *const *overrides, FILE *out, PlaitError *error);

// A plan of a recipe on a cluster, as `plait simulate` predicts it.
typedef struct PlaitPlan {
  double step_seconds;
  double tokens_per_second;
  double mfu;          // of the rate of products of all devices, 0 … 1; NaN: not known
  double memory_bytes; // of the rank that takes the most
  double room_bytes;   // that a device has for it
  char settings[512];  // of plait_search: "mesh.dp=8 parallel.zero=1", overrides that make it of the recipe; else ""
} PlaitPlan;

// Predicts a step of the recipe on a cluster: a shipped name or a file, NULL: run.cluster of the recipe, and where it
// has none this machine. The first call that asks for this machine measures it, which takes about a minute and is said
// on stderr (plait probe does it beforehand); the result is kept, and all of it holds for the calls below too. Also
// PLAIT_OK where it does not fit (memory_bytes above room_bytes).
int plait_predict(const char *recipe, int override_count, const char *const *overrides, const char *cluster,
                  PlaitPlan *plan, PlaitError *error);

// The fastest plans on `ranks` ranks of a cluster, as `plait plan --search` finds them; keys that the recipe or an
// override gives stay. Writes at most `most` of them (at least 1) to `plans`, the fastest first, and how many to
// *count. PLAIT_INFEASIBLE: nothing fits; the sentence says what is nearest.
int plait_search(const char *recipe, int override_count, const char *const *overrides, const char *cluster, int ranks,
                 int most, PlaitPlan *plans, int *count, PlaitError *error);

// A strategy of parallelism for the recipe on a cluster: a row of `plait compare`.
enum { PLAIT_LEVELS = 4 };
typedef struct PlaitStrategy {
  const char *name;     // "ZeRO 1"
  const char *settings; // "mesh.dp=64 parallel.zero=1": keys that make it of the recipe
  const char *why_not;  // why it cannot be; NULL: it can, and all that follows is known
  int pp, dp, tp, zero;
  double step_seconds, tokens_per_second;
  double bubble;        // part of the step that pipeline ranks wait for each other, the mean
  double exposed;       // part of the step that the busiest pipeline rank waits for communication
  double memory_bytes;  // of the rank that takes the most, which has these parts:
  double parameter_bytes, gradient_bytes, optimizer_bytes, activation_bytes; // the rest is workspace and buffers
  double room_bytes;    // free memory of a device: the strategy fits if memory_bytes <= room_bytes
  double sent_bytes[PLAIT_LEVELS]; // by a rank in a step, over each level of the cluster
  const char *limit;    // the resource of which a tenth more would shorten the step the most, by limit_gain (0.03: 3%);
  double limit_gain;    // NULL: none would, or not asked for
  const char *change;   // settings of the smallest single change that helps; NULL: none does, or not asked for
  double change_step_seconds, change_memory_bytes; // with it; seconds are 0 where it does not fit
} PlaitStrategy;

// A rule that is widely told, and what the rows say of it: verdict "open", "confirmed" or "contradicted".
typedef struct PlaitAdvice { const char *name, *told, *verdict, *text; } PlaitAdvice;

typedef struct PlaitComparison {
  int ranks, ranks_in_node;
  double parameters;               // of the model
  int levels;
  const char *level[PLAIT_LEVELS]; // (levels) names, from the inside out: "nvlink", "infiniband"
  int strategies;
  const PlaitStrategy *strategy;   // (strategies) in the order of `plait compare`; the last ones are not built
  int advices;
  const PlaitAdvice *advice;       // (advices)
} PlaitComparison;

// The rows that `plait compare` prints. ranks: 0: the recipe's. quick: without limits, changes and the search's best
// plan, which take most of the time.
// A strategy that the recipe cannot use is a row with its reason, not an error. The caller destroys *comparison.
int plait_compare(const char *recipe, int override_count, const char *const *overrides, const char *cluster, int ranks,
                  int quick, PlaitComparison **comparison, PlaitError *error);
void plait_comparison_destroy(PlaitComparison *comparison); // with all that it points to; NULL is fine

PLAIT_API_END
