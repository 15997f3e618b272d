// Finds the launcher that started this process by the variables that it sets.
#include "comm/launcher.h"
#include <stddef.h>
#include <stdlib.h>

// SLURM_NTASKS is not among them: Slurm sets it in batch scripts too, where plait may be started once, by hand.
static const struct { const char *tasks, *rank; } variables[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, // Open MPI's mpirun
    {"PMI_SIZE", "PMI_RANK"},                         // Hydra of MPICH and Intel MPI; srun --mpi=pmi2
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},   // MVAPICH
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},         // srun
    {NULL, "PMIX_RANK"},                              // whatever speaks PMIx
};

static int number(const char *name, int otherwise) {
  const char *text = name ? getenv(name) : NULL;
  char *end;
  long value = text ? strtol(text, &end, 10) : -1;
  return text && *text && !*end && value >= 0 && value < 1 << 24 ? (int)value : otherwise;
}

Launcher launcher_find(void) {
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    int tasks = number(variables[i].tasks, 0), rank = number(variables[i].rank, -1);
    if (variables[i].tasks ? tasks <= 0 : rank < 0) continue;
    return (Launcher){variables[i].tasks ? variables[i].tasks : variables[i].rank, tasks > rank ? tasks : rank + 1,
                      rank};
  }
  return (Launcher){NULL, 0, -1};
}
