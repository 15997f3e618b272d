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

static void what_cannot_be_is_refused(void **state) {
  (void)state;
  ENVIRONMENT("RANK=1");
  refused("RANK is 1, but WORLD_SIZE is not set; set both for each rank, or unset RANK to start one process alone");
  ENVIRONMENT("RANK=0", "WORLD_SIZE=");
  refused("RANK is 0, but WORLD_SIZE is not set");
  ENVIRONMENT("WORLD_SIZE=4");
  refused("WORLD_SIZE is 4, but RANK is not set");
  ENVIRONMENT("WORLD_SIZE=4", "RANK=4");
  refused("RANK is 4, but WORLD_SIZE is 4: ranks are 0 to 3");
  ENVIRONMENT("WORLD_SIZE=4x", "RANK=0");
  refused("WORLD_SIZE is \"4x\"; it must be a whole number from 1");
  ENVIRONMENT("WORLD_SIZE=4", "RANK=-1");
  refused("RANK is \"-1\"; it must be a whole number from 0");
  ENVIRONMENT("WORLD_SIZE=2", "RANK=0", "LOCAL_WORLD_SIZE=4");
  refused("LOCAL_WORLD_SIZE is 4, but WORLD_SIZE is only 2");
  ENVIRONMENT("SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=2");
  refused("SLURM_PROCID is 2, but SLURM_STEP_NUM_TASKS is 2: ranks are 0 to 1");
  ENVIRONMENT("SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "RANK=0");
  refused("SLURM_STEP_NUM_TASKS says rank 1 of 2, but RANK is 0");
  ENVIRONMENT("SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "RANK=1"); // as scripts set it
  is("SLURM_STEP_NUM_TASKS", 1, 2);
  ENVIRONMENT("WORLD_SIZE=1");
  is("WORLD_SIZE", -1, 1);
  ENVIRONMENT("SLURM_JOB_ID=7", "SLURM_PROCID=0"); // a batch script
  Error error = {0};
  if (launcher_check(&error)) fail_msg("%s", error.message);
}

// What a rank prints that waits for the others; only the rank `come` comes (0: none).
static void says(int rank, int ranks, int come, const char *sentence) {
  char text[400] = "", name[] = "/tmp/plait-notice.XXXXXX";
  int file = mkstemp(name);
  unlink(name);
  pid_t pid = fork();
  if (!pid) {
    dup2(file, 2);
    PlaitWorld *world;
    Error error = {0};
    NetOptions o = {.rank = rank,
                    .ranks = ranks,
                    .host = "127.0.0.1",
                    .port = 33000 + getppid() % 1500,
                    .id = "waits",
                    .notice = come ? 0.4 : 0.1,
                    .patience = come ? 0.5 : 0.3,
                    .said = "SLURM_STEP_NUM_TASKS says 5 tasks"};
    _exit(net_world_create(&o, &world, &error) == PLAIT_FAILED ? 0 : 1);
  }
  pid_t other = come ? fork() : -1;
  if (!other) {
    PlaitWorld *world;
    Error error = {0};
    NetOptions o = {.rank = come, .ranks = ranks, .host = "127.0.0.1", .port = 33000 + getppid() % 1500, .id = "waits",
                    .patience = 0.5};
    _exit(net_world_create(&o, &world, &error) == PLAIT_FAILED ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  if (other > 0) assert_int_equal(waitpid(other, &status, 0), other);
  assert_true(pread(file, text, sizeof text - 1, 0) >= 0);
  close(file);
  char *told = strstr(text, "is waiting");
  if (!strstr(text, sentence) || strstr(told + 1, "is waiting")) fail_msg("%s: %s", sentence, text);
}

static void waiting_is_told(void **state) {
  (void)state;
  ENVIRONMENT("PATH=/bin");
  net_version(); // UCX is loaded, so that ranks that are forked are fast
  says(0, 5, 0, "plait: rank 0 is waiting for ranks 1 to 4 at 127.0.0.1:");
  says(0, 5, 2, "rank 0 is waiting for ranks 1, 3, 4 at 127.0.0.1:");
  says(0, 2, 0, "rank 0 is waiting for rank 1 at 127.0.0.1:");
  says(1, 2, 0, "plait: rank 1 is waiting for rank 0 at 127.0.0.1:");
  says(1, 2, 0, " (SLURM_STEP_NUM_TASKS says 5 tasks), for 0.3 s at most\n");
}

static void srun_takes_no_cores_from_sbatch(void **state) {
  (void)state;
  char text[300];
  ENVIRONMENT("SLURM_STEP_NUM_TASKS=8", "SLURM_PROCID=0", "SLURM_CPUS_PER_TASK=4");
  assert_true(launcher_lacks_cores(1, text, sizeof text));
  assert_string_equal(text, "each rank has 1 core, but SLURM_CPUS_PER_TASK says 4: srun of Slurm 22.05 and later does "
                            "not take --cpus-per-task from sbatch; start ranks with srun --cpus-per-task=4");
  assert_false(launcher_lacks_cores(4, text, sizeof text));
  ENVIRONMENT("SLURM_PROCID=0", "SLURM_CPUS_PER_TASK=4"); // in the batch script itself
  assert_false(launcher_lacks_cores(1, text, sizeof text));
  ENVIRONMENT("SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0", "SLURM_CPUS_PER_TASK=4", "PLAIT_RANK=0",
              "PLAIT_WORLD_SIZE=2");
  assert_false(launcher_lacks_cores(1, text, sizeof text)); // plait launch divides what there is
}

// One rank of two tasks on two machines; the status is that of the process.
static pid_t start(const char *rank, const char *port) {
  pid_t pid = fork();
  if (pid) return pid;
  Error error = {0};
  PlaitWorld *world = NULL;
  setenv("SLURM_PROCID", rank, 1);
  setenv("MASTER_PORT", port, 1);
  int code = world_launched_create(WORLD_NET, 0, NET_WIRE_AUTO, &world, &error);
  if (code) fprintf(stderr, "%s\n", error.message);
  int status = code || plait_world_size(world) != 2 || plait_world_rank(world) != atoi(rank);
  plait_world_destroy(world);
  _exit(status);
}

static void rank_0_is_on_the_first_machine(void **state) {
  (void)state;
  ENVIRONMENT("SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=127.0.0.[1-1],no.such.host");
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
  assert_int_equal(world_launched_create(WORLD_NET, 0, NET_WIRE_AUTO, &world, &error), PLAIT_BAD_INPUT);
  assert_non_null(strstr(error.message, "SLURM_STEP_NODELIST \"n[\": a number is missing"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_row_counts), cmocka_unit_test(contradictions_name_both),
                                     cmocka_unit_test(what_cannot_be_is_refused), cmocka_unit_test(waiting_is_told),
                                     cmocka_unit_test(srun_takes_no_cores_from_sbatch),
                                     cmocka_unit_test(rank_0_is_on_the_first_machine)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
