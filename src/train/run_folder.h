// The folder of a run: created, locked while in use, holding the effective recipe, metrics and checkpoints.
#pragma once
#include "recipe/recipe.h"

typedef struct RunFolder { char *path; int lock; } RunFolder; // lock: file descriptor, -1 when closed

// Creates recipe->run.dir and takes its lock (a second run gets PLAIT_BAD_INPUT with the holder's process id). What is
// in it stays as it is: a run that is refused later must not have changed an earlier one's recipe.
int run_folder_open(RunFolder *folder, const Recipe *recipe, Error *error);
int run_folder_write_recipe(const RunFolder *folder, const Recipe *recipe, Error *error); // DIR/recipe.yaml
void run_folder_close(RunFolder *folder); // safe on a zeroed or failed one

// DIR/NAME; the caller frees.
char *run_folder_file(const RunFolder *folder, const char *name);
