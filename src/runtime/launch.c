// Finds and joins the world that a launcher has made; agreements of its ranks.
#include "runtime/launch.h"
#include "base/cores.h"
#include "base/signals.h"
#include "comm/comm.h"
#include "comm/launcher.h"
#include "worker/page.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int join(Launch *l, WorldKind kind, double silence, NetWireChoice wire, Error *error) {
  int code = world_launched_create(kind, silence, wire, &l->world, error);
  if (code) return code;
  l->rank = plait_world_rank(l->world);
  l->ranks = plait_world_size(l->world);
  check_set_rank(l->rank);
  return plait_comm_world(l->world, l->rank, &l->comm, error);
}

static WorldKind kind_of(LaunchComm comm) {
  return comm == LAUNCH_MPI ? WORLD_MPI : comm == LAUNCH_NET ? WORLD_NET : WORLD_AUTO;
}

// One task has a world only where MPI may know more of it than its variables say.
int launch_begin(Launch *l, LaunchWish wish, Error *error) {
  Launcher launcher = launcher_find();
  char version[1 << 14];
  *l = (Launch){.ranks = 1};
  worker_enter(WORKER_PHASE_LOADING, 0);
  if (!launcher.variable) return launcher_check(error);
  if (launcher.tasks <= 1 && (!launcher.mpi || wish.comm == LAUNCH_NET || !launcher_mpi_version(version)))
    return launcher_check(error);
  int code = join(l, kind_of(wish.comm), wish.silence, wish.wire, error);
  if (!code || l->world) return code;
  error_prefix(error, "started as one of %d tasks (%s)", launcher.tasks, launcher.variable);
  if (code == PLAIT_BAD_INPUT) launcher_rank_0_says(&launcher, error);
  return code;
}

int launch_use(Launch *l, int ranks, Error *error) {
  if (!l->world || ranks >= l->ranks) return PLAIT_OK;
  int *members = xcalloc((size_t)ranks, sizeof *members), code = PLAIT_OK;
  for (int r = 0; r < ranks; r++) members[r] = r;
  l->all = l->comm;
  l->idle = l->rank >= ranks;
  l->ranks = ranks;
  if (l->idle) signals_install(NULL); // a launcher sends them to all; the end is the others' to decide
  else code = plait_comm_create(l->all, members, ranks, &l->comm, error);
  if (code) l->comm = l->all;
  free(members);
  return code;
}

// How the others end, and by which signal.
static int meet(Launch *l, int32_t *signal, int32_t *failed) {
  int32_t mine[2] = {signals_number(), l->outcome && l->outcome != PLAIT_INTERRUPTED};
  int code = plait_all_reduce(l->all, &(PlaitBuffer){mine, mine, 2}, 1, PLAIT_INT32, PLAIT_MAX, NULL, NULL);
  *signal = mine[0];
  *failed = mine[1];
  return code;
}

int launch_wait(Launch *l, Error *error) {
  int32_t signal, failed;
  int code = meet(l, &signal, &failed);
  l->all = NULL; // met already
  if (code) return plait_comm_failure(l->comm, error);
  if (failed) return error_set(error, PLAIT_FAILED, "%s", "");
  if (signal) signals_request_stop(signal);
  return signal ? PLAIT_INTERRUPTED : PLAIT_OK;
}

static void leave(Launch *l) {
  int32_t signal, failed;
  if (l->all) meet(l, &signal, &failed);
  if (l->all && l->all != l->comm) plait_comm_destroy(l->all);
  plait_comm_destroy(l->comm);
  plait_world_destroy(l->world);
  *l = (Launch){.ranks = 1};
}

void launch_end(Launch *l) {
  if (l) leave(l);
}

int launch_choose(Launch *l, LaunchComm comm, int64_t ranks, const char *mesh, Error *error) {
  int code = PLAIT_OK;
  const char *name = comm == LAUNCH_MPI ? "mpi" : comm == LAUNCH_NET ? "net" : NULL;
  if (name && !l->world) code = join(l, kind_of(comm), 0, NET_WIRE_AUTO, error);
  if (code && error && !*error->key) error_prefix(error, "run.comm: %s", name);
  if (code) return code;
  if (name && strcmp(name, world_name(l->world)))
    return error_set(error, PLAIT_BAD_INPUT, "run.comm: %s, but these processes are ranks of %s", name,
                     world_name(l->world));
  if (comm == LAUNCH_LOCAL && l->ranks > 1)
    return error_set(error, PLAIT_BAD_INPUT,
                     "run.comm: local makes ranks threads of one process, but %d processes were started, each of which "
                     "would work alone; start one, or set run.comm: auto",
                     l->ranks);
  // One process with a mesh of many ranks is a local run, also where a launcher has started it.
  if (l->world && l->ranks == 1 && (comm == LAUNCH_LOCAL || (comm == LAUNCH_AUTO && ranks > 1))) leave(l);
  if (!l->world && ranks > LAUNCH_MOST_THREADS)
    return error_set(
        error, PLAIT_BAD_INPUT,
        "mesh: %lld ranks, but one process runs at most %d, as threads; start it under mpirun or srun",
        (long long)ranks, LAUNCH_MOST_THREADS);
  if (!l->world || l->ranks == ranks) return PLAIT_OK;
  return error_set(
      error, PLAIT_BAD_INPUT,
      "mesh: %s is %lld rank%s, but %d process%s started; start %lld (as in mpirun -n %lld), or change the mesh", mesh,
      (long long)ranks, ranks == 1 ? "" : "s", l->ranks, l->ranks == 1 ? " was" : "es were", (long long)ranks,
      (long long)ranks);
}

// Agreements --------------------------------------------------------------------------------------------------------

static int world_failed(const Launch *l, Error *error) {
  return plait_comm_failure(l->comm, error);
}

static void name_rank(const Launch *l, Error *error) {
  char host[64] = "";
  if (l->rank == 0) return;
  gethostname(host, sizeof host - 1);
  error_name_rank(error, l->rank, host);
}

int launch_agree(const Launch *l, int code, Error *error) {
  if (!l || !l->world) return code;
  int32_t who = code ? l->rank : l->ranks;
  if (plait_all_reduce(l->comm, &(PlaitBuffer){&who, &who, 1}, 1, PLAIT_INT32, PLAIT_MIN, NULL, NULL))
    return world_failed(l, error);
  if (who == l->ranks) return PLAIT_OK;
  if (who == l->rank) name_rank(l, error);
  Error first = *error;
  if (plait_broadcast(l->comm, &(PlaitBuffer){&first, &first, sizeof first}, 1, PLAIT_UINT8, who, NULL, NULL))
    return world_failed(l, error);
  *error = first;
  if (l->rank) error->message[0] = 0;
  return error->code;
}

int launch_tell(const Launch *l, char **text, Error *error) {
  if (!l || !l->world) return PLAIT_OK;
  int64_t bytes = *text && l->rank == 0 ? (int64_t)strlen(*text) + 1 : 0;
  if (plait_broadcast(l->comm, &(PlaitBuffer){&bytes, &bytes, 1}, 1, PLAIT_INT64, 0, NULL, NULL))
    return world_failed(l, error);
  if (l->rank) {
    free(*text);
    *text = bytes ? xcalloc((size_t)bytes, 1) : NULL;
  }
  if (!bytes) return PLAIT_OK;
  if (plait_broadcast(l->comm, &(PlaitBuffer){*text, *text, (size_t)bytes}, 1, PLAIT_UINT8, 0, NULL, NULL))
    return world_failed(l, error);
  return PLAIT_OK;
}

// Where a rank may run.
typedef struct Seat { char host[64]; cpu_set_t cores; } Seat;

static int overlap(const Seat *a, const Seat *b) {
  cpu_set_t both;
  CPU_AND(&both, &a->cores, &b->cores);
  return !strcmp(a->host, b->host) && CPU_COUNT(&both) > 0;
}

static int at_least_1(int n) { return n > 0 ? n : 1; }

int launch_threads(const Launch *l, int given, int64_t ranks, int *threads, Error *error) {
  int cores = cores_available();
  char lacks[300];
  if (l && l->world && l->rank == 0 && launcher_lacks_cores(cores, lacks, sizeof lacks))
    fprintf(stderr, "note: %s\n", lacks);
  if (!l || !l->world) return *threads = at_least_1((int)((given > 0 ? given : cores) / ranks)), PLAIT_OK;
  Seat *places = xcalloc((size_t)l->ranks, sizeof *places), *mine = &places[l->rank];
  gethostname(mine->host, sizeof mine->host - 1);
  int bound = sched_getaffinity(0, sizeof mine->cores, &mine->cores) == 0, sharing = 0;
  int code = plait_all_gather(l->comm, &(PlaitBuffer){mine, places, sizeof *mine}, 1, PLAIT_UINT8, NULL, NULL);
  for (int r = 0; r < l->ranks; r++) sharing += overlap(mine, &places[r]);
  free(places);
  if (code) return world_failed(l, error);
  int local = plait_world_local_size(l->world);
  *threads = at_least_1(given > 0 ? given / local : cores / (bound && sharing ? sharing : local));
  return PLAIT_OK;
}
