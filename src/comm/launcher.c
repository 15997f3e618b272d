// Finds the launcher that started this process by the variables that it sets.
#include "comm/launcher.h"
#include "base/fault.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The first that is set counts: one that was started by another comes before it. SLURM_NTASKS is not among them: Slurm
// sets it in batch scripts too, where plait may be started once, by hand.
static const struct { const char *tasks, *rank, *local; int mpi; } variables[] = {
    {"PLAIT_WORLD_SIZE", "PLAIT_RANK", "PLAIT_LOCAL_WORLD_SIZE", 0},                      // plait's own
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", 1},    // Open MPI's mpirun
    {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", 1},                                       // Hydra; srun --mpi=pmi2
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", 1},       // MVAPICH
    {"WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", 0},                                        // torchrun, or by hand
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", NULL, 1},                                    // srun
    {NULL, "PMIX_RANK", NULL, 1},                                                         // whatever speaks PMIx
};
enum { LAUNCHERS = sizeof variables / sizeof *variables };

static int number(const char *name, int otherwise) {
  const char *text = name ? getenv(name) : NULL;
  char *end;
  long value = text ? strtol(text, &end, 10) : -1;
  return text && *text && !*end && value >= 0 && value < 1 << 24 ? (int)value : otherwise;
}

static Launcher read_row(size_t i) {
  int tasks = number(variables[i].tasks, 0), rank = number(variables[i].rank, -1);
  if (variables[i].tasks ? tasks <= 0 : rank < 0) return (Launcher){NULL, 0, -1, 0, 0};
  if (tasks <= rank) tasks = rank + 1;
  int one_node =
      variables[i].tasks && !strncmp(variables[i].tasks, "SLURM", 5) && number("SLURM_STEP_NUM_NODES", 0) == 1;
  return (Launcher){variables[i].tasks ? variables[i].tasks : variables[i].rank, tasks, rank,
                    one_node ? tasks : number(variables[i].local, 0), variables[i].mpi};
}

// torchrun below srun or mpirun, one for each machine, has ranks of its own.
static int is_torchrun(Launcher l) {
  return l.variable && !strcmp(l.variable, "WORLD_SIZE") && getenv("TORCHELASTIC_RUN_ID");
}

Launcher launcher_find(void) {
  Launcher first = {NULL, 0, -1, 0, 0};
  for (size_t i = 0; i < LAUNCHERS; i++) {
    Launcher l = read_row(i);
    if (is_torchrun(l) && (!first.variable || strncmp(first.variable, "PLAIT", 5))) return l;
    if (l.variable && !first.variable) first = l;
  }
  return first;
}

// Two of the MPI's own launchers that both have many tasks: which one a rank belongs to cannot be known. srun and PMIx
// may be below an mpirun, which starts its daemons by them.
static int check_mpis(Error *error) {
  Launcher first = {NULL, 0, -1, 0, 0};
  for (size_t i = 0; i < LAUNCHERS; i++) {
    Launcher l = read_row(i);
    if (!l.mpi || !variables[i].tasks || !strncmp(l.variable, "SLURM", 5) || l.tasks < 2) continue;
    if (!first.variable) first = l;
    if (l.tasks != first.tasks || l.rank != first.rank)
      return error_set(error, PLAIT_BAD_INPUT,
                       "two launchers disagree: %s says rank %d of %d, but %s says rank %d of %d; unset those that are "
                       "not meant",
                       first.variable, first.rank, first.tasks, l.variable, l.rank, l.tasks);
  }
  return PLAIT_OK;
}

static const char *text_of(const char *name) {
  const char *text = name ? getenv(name) : NULL;
  return text && *text ? text : NULL;
}

static int check_number(const char *name, int least, Error *error) {
  const char *text = text_of(name);
  if (!text || number(name, -1) >= least) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s is \"%.40s\"; it must be a whole number from %d", name, text, least);
}

// Where one of two variables is missing, another launcher may say what it would have said.
static int check_half(size_t i, const Launcher *found, Error *error) {
  const char *tasks = variables[i].tasks, *rank = variables[i].rank, *set = text_of(tasks) ? tasks : rank;
  int value = number(set, -1), said = set == tasks ? found->tasks : found->rank;
  if ((set == tasks && value == 1) || (found->variable && found->variable != tasks && value == said)) return PLAIT_OK;
  if (found->variable && found->variable != tasks)
    return error_set(error, PLAIT_BAD_INPUT, "two launchers disagree: %s says rank %d of %d, but %s is %d; unset those "
                     "that are not meant", found->variable, found->rank, found->tasks, set, value);
  return error_set(error, PLAIT_BAD_INPUT, "%s is %d, but %s is not set; set both for each rank, or unset %s to start "
                   "one process alone", set, value, set == tasks ? rank : tasks, set);
}

// What a row says must be possible: nothing of it is repaired. Only people forget one of two variables; a batch script
// of Slurm has SLURM_PROCID alone.
static int check_row(size_t i, const Launcher *found, Error *error) {
  const char *tasks = variables[i].tasks, *rank = variables[i].rank, *local = variables[i].local;
  if (!tasks || (!text_of(tasks) && (variables[i].mpi || !text_of(rank)))) return PLAIT_OK;
  int code = check_number(tasks, 1, error);
  if (!code) code = check_number(rank, 0, error);
  if (!code) code = check_number(local, 1, error);
  if (code) return code;
  if (!variables[i].mpi && (!text_of(tasks) || !text_of(rank))) return check_half(i, found, error);
  if (text_of(rank) && number(rank, 0) >= number(tasks, 0))
    return error_set(error, PLAIT_BAD_INPUT, "%s is %d, but %s is %d: ranks are 0 to %d", rank, number(rank, 0), tasks,
                     number(tasks, 0), number(tasks, 0) - 1);
  if (text_of(local) && number(local, 0) > number(tasks, 0))
    return error_set(error, PLAIT_BAD_INPUT, "%s is %d, but %s is only %d", local, number(local, 0), tasks,
                     number(tasks, 0));
  return PLAIT_OK;
}

// The row that counts, those before it, and that of people, whose half it may contradict.
static int check_rows(const Launcher *found, Error *error) {
  bool before = true;
  for (size_t i = 0; i < LAUNCHERS; i++) {
    bool counts = before || (variables[i].tasks && !strcmp(variables[i].tasks, "WORLD_SIZE"));
    if (counts && check_row(i, found, error)) return PLAIT_BAD_INPUT;
    before = before && !read_row(i).variable;
  }
  return PLAIT_OK;
}

int launcher_check(Error *error) {
  Launcher found = launcher_find(), torch = {NULL, 0, -1, 0, 0};
  if (FAULT(environment_is_repaired, check_rows(&found, error), 0)) return PLAIT_BAD_INPUT;
  if (found.mpi && FAULT(launchers_may_disagree, check_mpis(error), 0)) return PLAIT_BAD_INPUT;
  for (size_t i = 0; i < LAUNCHERS; i++)
    if (read_row(i).variable && !strcmp(read_row(i).variable, "WORLD_SIZE")) torch = read_row(i);
  if (!torch.variable || !found.mpi || (torch.tasks == found.tasks && torch.rank == found.rank)) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "two launchers disagree: %s says rank %d of %d, but RANK and WORLD_SIZE say rank %d of %d; unset "
                   "those that are not meant",
                   found.variable, found.rank, found.tasks, torch.rank, torch.tasks);
}

bool launcher_lacks_cores(int cores, char *text, size_t size) {
  int wanted = number("SLURM_CPUS_PER_TASK", 0);
  Launcher found = launcher_find(), step = {NULL, 0, -1, 0, 0};
  for (size_t i = 0; i < LAUNCHERS; i++)
    if (variables[i].tasks && !strcmp(variables[i].tasks, "SLURM_STEP_NUM_TASKS")) step = read_row(i);
  if (!step.variable || found.rank != step.rank || found.tasks != step.tasks || cores >= wanted) return false;
  snprintf(text, size,
           "each rank has %d core%s, but SLURM_CPUS_PER_TASK says %d: srun of Slurm 22.05 and later does not "
           "take --cpus-per-task from sbatch; start ranks with srun --cpus-per-task=%d",
           cores, cores == 1 ? "" : "s", wanted, wanted);
  return true;
}

void launcher_rank_0_says(const Launcher *launcher, Error *error) {
  if (!launcher->mpi || launcher->rank <= 0) return;
  error->message[0] = 0;
  sleep(1);
}
