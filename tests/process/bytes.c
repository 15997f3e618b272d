// bytes RECIPE KEYS…: trains two steps as processes and holds what each rank sends and receives over each set of axes
// to the plan, to the byte. With MPI, whose profiling layer lets a program stand before MPI_Isend and MPI_Irecv, what
// MPI itself is asked to move must be the elements and headers that were counted, on every communicator.
// See mpi_bytes.sh.
#include "base/error.h"
#include "counted_bytes.h"
#include "mpi_asked.h"
#include "setup/setup.h"
#include "runtime/session.h"
#include <stdlib.h>

enum { STEPS = 2, MOST_AHEAD = 16, MOST_SOURCES = 8 };

typedef struct Run { const Job *job; LoaderConfig data; int mpi; } Run;

static int task(Rank *r, void *context, Error *error) {
  const Run *run = context;
  Counted before[COUNTED_MOST], after[COUNTED_MOST];
  double rates[MOST_AHEAD + 1];
  char text[256];
  StepResult step;
  int code = rank_load(r, run->job, error);
  if (code) return code;
  rank_initialise(r);
  code = rank_open_data(r, &run->data, 0, error);
  for (int i = 0; i <= MOST_AHEAD; i++) rates[i] = 1e-3;
  int n = counted_of(r, before);
  for (int i = 0; i < STEPS && !code; i++) code = rank_step_on(r, i + 1, rates, 0, &step, error);
  if (!code) code = rank_barrier(r, error);
  if (code) return code;
  CHECK(counted_of(r, after) == n);
  double sum = 0;
  for (int i = 0; i < n; i++) {
    after[i].sent -= before[i].sent, after[i].received -= before[i].received;
    sum += after[i].sent;
  }
  CHECK(!counted_differ(r, after, n, STEPS, text, sizeof text), "%s", text);
  CHECK(sum > 1e4, "next to nothing was sent");
  for (int i = 0; run->mpi && i < executor_comms(r->train); i++) {
    uint32_t axes;
    const PlaitComm *comm = executor_comm(r->train, i, &axes);
    if (comm) mpi_asked_check(comm, r->rank);
  }
  if (r->rank == 0) printf("%.0f bytes of a step from rank 0, as planned%s\n", sum / STEPS, run->mpi ? ", by MPI" : "");
  return rank_barrier(r, error); // others may still look
}

int main(int argc, char **argv) {
  Error error = {0};
  Recipe recipe;
  ModelConfig config = {0};
  Job *job = NULL;
  PlaitWorld *world;
  PlaitComm *comm;
  Session *session;
  DataSource sources[MOST_SOURCES];
  CHECK(argc > 1 && !recipe_load(argv[1], argc - 2, argv + 2, &recipe, &error), "%s", error.message);
  CHECK(!model_config_load(&config, recipe.model.config, &error), "%s", error.message);
  CHECK(!plait_world_launched_create(&world, &error), "%s", error.message);
  CHECK(!plait_comm_world(world, plait_world_rank(world), &comm, &error), "%s", error.message);
  CHECK(!setup_job(&recipe, &config, NULL, &job, &error), "%s", error.message);
  Run run = {.job = job, .data = setup_loader(&recipe, &config, 0, sources), .mpi = !strcmp(world_name(world), "mpi")};
  CHECK(!session_open(&(SessionOptions){.comm = comm}, &session, &error), "%s", error.message);
  CHECK(!session_run(session, task, &run, &error), "%s", error.message);
  session_close(session);
  plait_comm_destroy(comm);
  plait_world_destroy(world);
  job_destroy(job);
  model_config_free(&config);
  recipe_free(&recipe);
  return 0;
}
