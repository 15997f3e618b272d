// The folder of a run: created, locked while in use, holding the effective recipe, metrics and checkpoints.
#pragma once
#include "recipe/recipe.h"

typedef struct RunFolder { char *path; int lock; } RunFolder; // lock: file descriptor, -1 when closed

// Under plait launch the lock file says the job and the number of the round as well ("PID JOB ROUND"). A later round of
// the same job takes the lock over from processes of an earlier one that may be stopped (SIGSTOP) or on a machine that
// is cut off; from then on run_folder_fence tells these that they may not write any more.

// Creates recipe->run.dir and takes its lock. PLAIT_BAD_INPUT: another run has it (the sentence names its process), or
// the folder cannot be created or written (folder_create_given). Its contents stay as they are: a run that is refused
// later must not have changed an earlier one's recipe.
int run_folder_open(RunFolder *folder, const Recipe *recipe, Error *error);
int run_folder_write_recipe(const RunFolder *folder, const Recipe *recipe, Error *error); // DIR/recipe.yaml
// PLAIT_FAILED: another round of plait launch than this process's has run.dir now. Before each file that others may
// read: what is left to a process that stops just after it is the time of one write. `path`: run.dir.
int run_folder_fence(const char *path, Error *error);
void run_folder_close(RunFolder *folder); // safe on a zeroed or failed one

// DIR/NAME; the caller frees.
char *run_folder_file(const RunFolder *folder, const char *name);
