// Runs of an array: a file with a line of key=value … for each.
#pragma once
#include "base/words.h"
#include "cli/options.h"
#include "recipe/recipe.h"

typedef struct SlurmArray { Words *runs; int count; } SlurmArray;

// Reads and checks all lines; empty ones and those that begin with # do not count. A run whose line does not say
// run.dir gets BASE/N, where BASE is the run.dir of `base` and N its number, from 1. operands: the recipe and keys of
// all runs, which come first. PLAIT_BAD_INPUT with the line's number, also for two runs with one run.dir.
int slurm_array_read(const char *path, const Operands *operands, const Recipe *base, SlurmArray *array, Error *error);
void slurm_array_free(SlurmArray *array); // safe on a zeroed one
