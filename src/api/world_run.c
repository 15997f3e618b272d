// plait_world_run: one function on every rank, which are threads of this process or the processes of a launcher.
#include "plait/comm.h"
#include "runtime/launch.h"
#include "runtime/session.h"
#include <stdio.h>

typedef struct Task { PlaitRankFunction function; void *argument; } Task;

// A rank that fails without its own sentence has met the failure of the world, or gave a code alone.
static int run_rank(Rank *rank, void *context, Error *error) {
  const Task *task = context;
  Error own = {0}, failure = {0};
  int code = task->function(rank->world, task->argument, &own);
  if (code >= 0) { // whoever still waits for this rank is told, which it would not be while the handle is there
    plait_comm_destroy(rank->world);
    rank->world = NULL;
    return PLAIT_OK;
  }
  if (!own.message[0]) plait_comm_failure(rank->world, &failure), own = failure;
  if (!own.message[0]) return error_set(error, code, "its function returned %d", code);
  own.code = code;
  return error_take(error, &own);
}

// Afterwards launch->world is NULL where ranks are threads.
static int choose(Launch *launch, int *ranks, Error *error) {
  if (*ranks < 0)
    return error_set(error, PLAIT_BAD_INPUT,
                     "plait_world_run: %d ranks; allowed: 1 or more, or 0 for as many as mpirun or srun started",
                     *ranks);
  if (!*ranks) *ranks = launch->ranks;
  if (launch->ranks == 1 && *ranks > 1) launch_end(launch); // one task, whose threads are the ranks
  if (!launch->world || launch->ranks == *ranks) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "plait_world_run: %d rank%s, but the launcher started %d processes; start %d (as in mpirun -n %d)",
                   *ranks, *ranks == 1 ? " is asked for" : "s are asked for", launch->ranks, *ranks, *ranks);
}

int plait_world_run(int ranks, PlaitRankFunction function, void *argument, PlaitError *error) {
  Error unread = {0};
  if (!error) error = &unread;
  Launch launch;
  Session *session = NULL;
  Task task = {function, argument};
  int code = launch_begin(&launch, (LaunchWish){0}, error);
  if (code && !error->message[0]) snprintf(error->message, sizeof error->message, "the same failure as rank 0's");
  if (!code) code = choose(&launch, &ranks, error);
  if (!code) code = session_open(&(SessionOptions){.ranks = ranks, .comm = launch.comm}, &session, error);
  if (!code) code = session_run(session, run_rank, &task, error);
  if (!code && launch.world) launch.comm = NULL; // run_rank has destroyed it
  session_close(session);
  launch_end(&launch); // where ranks are processes and one has failed, this says so and ends them all
  return code;
}
