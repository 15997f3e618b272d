// A batch script for Slurm: it starts one supervisor on each machine of the job, and requeues the job when it ends
// because its time is up. And sbatch, which takes it.
#pragma once
#include "base/words.h"
#include <stdbool.h>

typedef struct BatchScript {
  const char *name;            // of the job
  const char *folder;          // where it runs
  const char *time;            // the limit, as sbatch takes it
  const char *plait, *recipe;  // absolute paths
  const char *version;         // of plait
  int least_nodes, most_nodes; // machines
  int tasks;                   // workers of each machine
  int lead;                    // seconds from the signal to the limit
  bool requeues;               // else somebody submits the next job of a chain
  Words keys;                  // of the recipe
  Words launch;                // further options of plait launch
  Words options;               // further options of sbatch
  const Words *runs;           // keys of each task of an array, of which the first is number 1
  int run_count;               // 0: one run
} BatchScript;

// Each path and word is quoted. PLAIT_BAD_INPUT where one has a line break, which no #SBATCH line can hold.
int batch_script_write(const BatchScript *script, FILE *out, Error *error);

// Gives the script at `path` to sbatch. after: a job that must have ended before; NULL: none. id: the number of the new
// job. PLAIT_FAILED with what sbatch says.
int batch_script_submit(const char *path, const char *after, char id[static 64], Error *error);
