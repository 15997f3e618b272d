// The training loop: everything that `plait train` does.
#pragma once
#include "runtime/launch.h"
#include "recipe/recipe.h"

// Trains as the recipe says: opens and locks the run folder, compiles, resumes or initialises, runs to the last step or
// to a signal (then saves first), writing metrics and checkpoints. Messages and progress go to `out`.
// Where ranks are processes each of them calls it, and only rank 0 speaks and opens the folder.
// Returns PLAIT_OK, PLAIT_INTERRUPTED after a signal, or an error; an empty sentence where another rank has it.
int train_run(const Recipe *recipe, FILE *out, Error *error);

// The same for a caller who has joined the launcher's world already (launch_begin): finds the ranks and, with plan:
// auto, the plan, and waits where this process is not one of the ranks. `force`, `lines`: of train_run_launched.
int train_run_joined(const Recipe *recipe, Launch *launch, bool force, FILE *lines, FILE *out, Error *error);

// The same where the mesh and the plan are known (NULL: ranks are threads).
// `force`: resumes although the recipe is another run's than the checkpoint's (train/changes.h), which is else refused.
// `lines`, where not NULL, gets every line of metrics.jsonl as it is written; who stops reading it stops the run.
int train_run_launched(const Recipe *recipe, const Launch *launch, bool force, FILE *lines, FILE *out, Error *error);

// The same, by threads of this process, for whoever wants to know how long steps take: nothing is saved, and
// run.dir/metrics.jsonl is what is left.
int train_measure(const Recipe *recipe, FILE *out, Error *error);
