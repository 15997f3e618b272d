// Heartbeats arrive whatever the other threads of a process do in MPI, and who receives now and then has the newest of
// each rank. Who took one a look would need as many looks as there were heartbeats; rank 0 looks half as often at most,
// so that a rank that gets no processor has time to send its last ones.
#include "base/error.h"
#include "comm/comm.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { BEATS = 40, LOOKS = BEATS / 2 };

static PlaitComm *comm;
static atomic_int stop;

// Keeps MPI's lock busy: a rank waits for messages, which are many.
static void *busy(void *argument) {
  float x[1000] = {0};
  for (int done = 0; !done;) {
    int32_t go = atomic_load(&stop);
    CHECK(!plait_all_reduce(comm, &(PlaitBuffer){x, x, 1000}, 1, PLAIT_FP32, PLAIT_MAX, NULL, NULL));
    CHECK(!plait_all_reduce(comm, &(PlaitBuffer){&go, &go, 1}, 1, PLAIT_INT32, PLAIT_MIN, NULL, NULL));
    done = go;
  }
  return NULL;
}

static void receive(void *context, const Heartbeat *h) {
  int64_t *step = context;
  CHECK(h->rank > 0 && h->step > step[h->rank], "rank %d: step %lld after %lld", h->rank, (long long)h->step,
        (long long)step[h->rank]);
  step[h->rank] = h->step;
}

int main(void) {
  Error error = {0};
  PlaitWorld *world;
  pthread_t thread;
  int64_t step[64] = {0};
  CHECK(!plait_world_launched_create(&world, &error), "%s", error.message);
  int rank = plait_world_rank(world), n = plait_world_size(world), missing = 0;
  CHECK(!plait_comm_world(world, rank, &comm, &error), "%s", error.message);
  CHECK(!pthread_create(&thread, NULL, busy, NULL));
  for (int beat = 1; beat <= BEATS; beat++, usleep(5000)) {
    Heartbeat h = {.rank = rank, .step = beat};
    if (rank) world_heartbeat(world, &h, 1, receive, step);
  }
  if (!rank) {
    missing = n - 1;
    for (int look = 0; look < LOOKS && missing; look++) {
      sleep(2);
      world_heartbeat(world, &(Heartbeat){.rank = 0}, 1, receive, step);
      missing = 0;
      for (int r = 1; r < n; r++) missing += step[r] != BEATS;
    }
    printf("of %d other ranks the last heartbeats of %d are missing\n", n - 1, missing);
  }
  atomic_store(&stop, 1);
  pthread_join(thread, NULL);
  plait_comm_destroy(comm);
  plait_world_destroy(world);
  return missing > 0;
}
