// One failing case a job of three ranks (MPI does not survive it): failures NAME [FOLDER]. Each rank prints what
// plait_comm_error says, then leaves, which with MPI must end the job; with a FOLDER, which is empty, none leaves
// before all have printed. See mpi_failures.sh and net_failures.sh.
#include "base/error.h"
#include "plait/comm.h"
#ifdef PLAIT_MPI
#include <mpi.h>
#endif
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { RANKS = 3 };
static float x[60000], y[60000];

static int kind(PlaitComm *comm, int rank) {
  PlaitBuffer list = {x, y, 5};
  int code = plait_barrier(comm, NULL, NULL);
  if (code) return code;
  return rank == 1 ? plait_all_gather(comm, &list, 1, PLAIT_FP32, NULL, NULL)
                   : plait_all_reduce(comm, &list, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL);
}

static int count(PlaitComm *comm, int rank) {
  PlaitBuffer list[2] = {{x, x, 20000}, {x + 20000, x + 20000, rank == 1 ? 20001 : 20000}};
  return plait_all_reduce(comm, list, 2, PLAIT_FP32, PLAIT_SUM, NULL, NULL);
}

static int ragged(PlaitComm *comm, int rank) {
  size_t counts[4] = {1, rank ? 2 : 3, 1, 1};
  return plait_all_gather_v(comm, x, rank + 1 > 2 ? 1 : (size_t)rank + 1, y, counts, NULL, PLAIT_FP32, NULL, NULL);
}

static int distance(PlaitComm *comm, int rank) {
  return plait_shift(comm, &(PlaitBuffer){x, y, 5}, 1, PLAIT_FP32, rank == 1 ? -1 : 1, NULL, NULL);
}

static int message(PlaitComm *comm, int rank) {
  PlaitBuffer list = {x, x, rank ? 7 : 8};
  PlaitEvent sent;
  if (rank > 1) return plait_barrier(comm, NULL, NULL);
  if (rank) return plait_recv(comm, &list, 1, PLAIT_FP32, 0, NULL, NULL);
  int code = plait_send(comm, &list, 1, PLAIT_FP32, 1, NULL, &sent);
  if (!code) code = plait_event_wait(sent); // it may have been received before the receiver found that it does not fit
  return code ? code : plait_barrier(comm, NULL, NULL);
}

static int lists(PlaitComm *comm, int rank) {
  PlaitComm *made;
  if (rank > 1) return plait_barrier(comm, NULL, NULL);
  return plait_comm_create(comm, (int[]){rank, !rank}, 2, &made, NULL);
}

// Some wait in a barrier, one on a stream, one for a message; the last gives up.
static int aborted(PlaitComm *comm, int rank, PlaitWorld *world) {
  PlaitStream *stream;
  PlaitEvent event;
  PlaitBuffer list = {x, x, 50000};
  int last = plait_comm_size(comm) - 1;
  if (rank == last) {
    usleep(50000);
    plait_world_abort(world, "the disk is full");
    return -1;
  }
  if (rank == 0) return plait_recv(comm, &list, 1, PLAIT_FP32, last, NULL, NULL);
  if (plait_stream_create(comm, &stream, NULL)) return -1;
  plait_all_reduce(comm, &list, 1, PLAIT_FP32, PLAIT_SUM, stream, &event);
  int code = plait_event_wait(event);
  plait_stream_destroy(stream);
  return code;
}

static int argument(PlaitComm *comm, int rank) {
  return rank ? plait_barrier(comm, NULL, NULL)
              : plait_recv(comm, &(PlaitBuffer){NULL, x, 1}, 1, PLAIT_FP32, 99, NULL, NULL);
}

// Rank 1 destroys its handle to a communicator of all, in which the others still wait for it. It learns of it in the
// world's.
static int left(PlaitComm *world, int rank, const char *how) {
  PlaitComm *comm;
  PlaitBuffer list = {x, y, 5};
  PlaitEvent sent;
  int code = plait_comm_create(world, (int[]){2, 1, 0}, 3, &comm, NULL);
  if (!code) code = plait_barrier(comm, NULL, NULL);
  if (code) return code;
  if (rank == 1) {
    plait_comm_destroy(comm);
    return plait_barrier(world, NULL, NULL);
  }
  if (!strcmp(how, "collective")) return plait_all_reduce(comm, &list, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL);
  if (rank == 2) return plait_barrier(world, NULL, NULL);
  if (!strcmp(how, "recv")) return plait_recv(comm, &list, 1, PLAIT_FP32, 1, NULL, NULL);
  code = plait_send(comm, &list, 1, PLAIT_FP32, 1, NULL, &sent);
  return code ? code : plait_event_wait(sent);
}

// Rank 1 leaves the world's communicator at once: main destroys its handle.
static int left_world(PlaitComm *world, int rank, const char *how) {
  PlaitComm *comm;
  if (rank == 1) return 0;
  return strcmp(how, "create") ? plait_barrier(world, NULL, NULL)
                               : plait_comm_create(world, (int[]){0, 1, 2}, 3, &comm, NULL);
}

#ifdef PLAIT_MPI
// From here on there is no memory for a thread's stack.
static void forbid_threads(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file && fscanf(file, "%ld", &pages) == 1);
  fclose(file);
  rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (4 << 20);
  CHECK(!setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes}));
}
#endif

// Until all ranks have come here, at most a minute: each by a file of its number. The world has failed, so that no call
// of it can be what they meet in; and the first that ends takes the others along, whatever they have not printed yet.
static void meet(const char *folder, int rank) {
  char path[512];
  if (!folder) return;
  snprintf(path, sizeof path, "%s/%d", folder, rank);
  FILE *here = fopen(path, "w");
  CHECK(here && !fclose(here), "%s", path);
  for (int r = 0, tries = 0; r < RANKS && tries < 60000; tries++) {
    snprintf(path, sizeof path, "%s/%d", folder, r);
    if (access(path, F_OK)) usleep(1000);
    else r++;
  }
}

int main(int argc, char **argv) {
  Error error = {0};
  PlaitWorld *world;
  PlaitComm *comm;
  const char *name = argc > 1 ? argv[1] : "", *folder = argc > 2 ? argv[2] : NULL;
#ifdef PLAIT_MPI
  if (!strcmp(name, "thread")) {
    int level, own;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    if (own == 1) forbid_threads();
  }
#endif
  if (plait_world_launched_create(&world, &error)) {
    fprintf(stderr, "plait: %s\n", error.message);
    meet(folder, 1); // of the case "thread"
    return error_exit_status(error.code);
  }
  int rank = plait_world_rank(world), code = 0;
  CHECK(plait_comm_world(world, rank, &comm, &error) == 0, "%s", error.message);
  if (!strcmp(name, "kind")) code = kind(comm, rank);
  if (!strcmp(name, "count")) code = count(comm, rank);
  if (!strcmp(name, "ragged")) code = ragged(comm, rank);
  if (!strcmp(name, "distance")) code = distance(comm, rank);
  if (!strcmp(name, "message")) code = message(comm, rank);
  if (!strcmp(name, "lists")) code = lists(comm, rank);
  if (!strcmp(name, "aborted")) code = aborted(comm, rank, world);
  if (!strcmp(name, "thread")) code = plait_barrier(comm, NULL, NULL);
  if (!strcmp(name, "argument")) code = argument(comm, rank);
  if (!strncmp(name, "left-", 5)) code = left(comm, rank, name + 5);
  if (!strncmp(name, "world-", 6)) code = left_world(comm, rank, name + 6);
  printf("rank %d returns %d: %s\n", rank, code, plait_comm_error(comm));
  printf("rank %d: rank %d failed\n", rank, plait_comm_failed_rank(comm));
  fflush(stdout);
  plait_comm_destroy(comm);
  meet(folder, rank); // after that: in some cases the others wait for this handle's end
  plait_world_destroy(world);
  return error_exit_status(code);
}
