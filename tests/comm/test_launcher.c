// tier 1
// Who a process is, from the variables of launchers: which count, which contradict each other, and where srun's rank 0
// is.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "comm/launcher.h"
#include "comm/net.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// Those of this process's own launcher, if ctest runs in a job, go away; then `set` are set: "NAME=VALUE", ended by
// NULL.
static void environment(const char *const *set) {
  clearenv();
  for (; *set; set++) putenv((char *)*set);
}
#define ENVIRONMENT(...) environment((const char *const[]){__VA_ARGS__, NULL})

static void is(const char *variable, int rank, int tasks) {
  Launcher l = launcher_find();
  Error error = {0};
  assert_string_equal(l.variable, variable);
  assert_int_equal(l.rank, rank);
  assert_int_equal(l.tasks, tasks);
  if (launcher_check(&error)) fail_msg("%s", error.message);
}

static void the_first_row_counts(void **state) {
  (void)state;
  ENVIRONMENT("PLAIT_WORLD_SIZE=4", "PLAIT_RANK=3", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "WORLD_SIZE=4",
              "RANK=3");
  is("PLAIT_WORLD_SIZE", 3, 4);
  ENVIRONMENT("OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1",
              "PMIX_RANK=2"); // mpirun starts its daemons by srun
  is("OMPI_COMM_WORLD_SIZE", 2, 4);
  ENVIRONMENT("TORCHELASTIC_RUN_ID=x", "WORLD_SIZE=8", "RANK=5", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1");
  is("WORLD_SIZE", 5, 8);
  ENVIRONMENT("PMI_SIZE=2", "PMI_RANK=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1"); // srun --mpi=pmi2
  is("PMI_SIZE", 1, 2);
  ENVIRONMENT("PMI_SIZE=1", "PMI_RANK=0", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2"); // mpirun in one task
  is("OMPI_COMM_WORLD_SIZE", 2, 4);
  ENVIRONMENT("SLURM_JOB_ID=7", "SLURM_NTASKS=4"); // in a batch script nobody has started ranks
  assert_null(launcher_find().variable);
}

static void refused(const char *sentence) {
  Error error = {0};
  assert_int_equal(launcher_check(&error), PLAIT_BAD_INPUT);
  if (!strstr(error.message, sentence)) fail_msg("%s", error.message);
}

static void contradictions_name_both(void **state) {
  (void)state;
  ENVIRONMENT("OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_RANK=0", "WORLD_SIZE=2", "RANK=0");
  refused("OMPI_COMM_WORLD_SIZE says rank 0 of 3, but RANK and WORLD_SIZE say rank 0 of 2");
  ENVIRONMENT("OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=0", "PMI_SIZE=2", "PMI_RANK=1");
  refused("OMPI_COMM_WORLD_SIZE says rank 0 of 4, but PMI_SIZE says rank 1 of 2");
}

// One rank of two tasks on two machines; the status is that of the process.
static pid_t start(const char *rank, const char *port) {
  pid_t pid = fork();
  if (pid) return pid;
  Error error = {0};
  PlaitWorld *world = NULL;
  setenv("SLURM_PROCID", rank, 1);
  setenv("MASTER_PORT", port, 1);
  int code = world_launched_create(WORLD_NET, 0, &world, &error);
  if (code) fprintf(stderr, "%s\n", error.message);
  int status = code || plait_world_size(world) != 2 || plait_world_rank(world) != atoi(rank);
  plait_world_destroy(world);
  _exit(status);
}

static void rank_0_is_on_the_first_machine(void **state) {
  (void)state;
  ENVIRONMENT("SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=127.0.0.[1-1],no.such.host");
  if (!net_is_built()) skip();
  char port[16];
  snprintf(port, sizeof port, "%d", 31000 + (int)(getpid() % 1500));
  pid_t first = start("0", port), second = start("1", port);
  int status;
  assert_int_equal(waitpid(first, &status, 0), first);
  assert_int_equal(status, 0);
  assert_int_equal(waitpid(second, &status, 0), second);
  assert_int_equal(status, 0);
  setenv("SLURM_STEP_NODELIST", "n[", 1);
  setenv("SLURM_PROCID", "0", 1);
  PlaitWorld *world;
  Error error = {0};
  assert_int_equal(world_launched_create(WORLD_NET, 0, &world, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "SLURM_STEP_NODELIST \"n[\": a number is missing"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_row_counts), cmocka_unit_test(contradictions_name_both),
                                     cmocka_unit_test(rank_0_is_on_the_first_machine)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
