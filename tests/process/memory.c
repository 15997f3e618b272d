// With what will be under way reserved, plait allocates nothing of its own for calls over MPI (what the MPI library
// does is its own matter): the linker puts the functions below in the place of xcalloc and xrealloc, which count.
#include "base/error.h"
#include "comm/comm.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { CALLS = 80, PIECES = 500, TOTAL = 3 << 20, MESSAGES = 40, ROUNDS = 5 };

static atomic_int allocations;

void *__real_xcalloc(size_t count, size_t size);
void *__real_xrealloc(void *old, size_t size);
void *__wrap_xcalloc(size_t count, size_t size);
void *__wrap_xrealloc(void *old, size_t size);
void *__wrap_xcalloc(size_t count, size_t size) {
  allocations++;
  return __real_xcalloc(count, size);
}
void *__wrap_xrealloc(void *old, size_t size) {
  allocations++;
  return __real_xrealloc(old, size);
}

// `pieces` of equal length but for the last.
static void cut(PlaitBuffer *list, float *send, float *recv, size_t total, size_t pieces) {
  size_t share = total / pieces;
  for (size_t p = 0; p < pieces; p++)
    list[p] = (PlaitBuffer){send + p * share, recv + p * share, p == pieces - 1 ? total - p * share : share};
}

static void collectives(PlaitComm *comm, PlaitStream *stream, int n, float *x, float *y, PlaitBuffer *list,
                        size_t pieces, size_t total) {
  cut(list, x, y, total, pieces);
  CHECK(!plait_all_reduce(comm, list, pieces, PLAIT_FP32, PLAIT_SUM, stream, NULL));
  CHECK(!plait_reduce(comm, list, pieces, PLAIT_FP32, PLAIT_SUM, n - 1, stream, NULL));
  CHECK(!plait_broadcast(comm, list, pieces, PLAIT_FP32, 0, stream, NULL));
  cut(list, x, y, total / (size_t)n, pieces);
  for (size_t p = 0; p < pieces; p++)
    list[p].send = x + (size_t)n * (size_t)((float *)list[p].recv - y); // n parts each
  CHECK(!plait_reduce_scatter(comm, list, pieces, PLAIT_FP32, PLAIT_SUM, stream, NULL));
  for (size_t p = 0; p < pieces; p++)
    list[p].recv = y + (size_t)((const float *)list[p].send - x), list[p].send = x + p;
  for (size_t p = 0; p < pieces; p++) list[p].count = total / (size_t)n / pieces;
  CHECK(!plait_all_gather(comm, list, pieces, PLAIT_FP32, stream, NULL));
  CHECK(!plait_barrier(comm, stream, NULL));
  if (stream) CHECK(!plait_stream_synchronize(stream));
}

static void messages(PlaitComm *comm, int rank, int n, float *x, float *y, PlaitBuffer *list, size_t most) {
  PlaitEvent sent[MESSAGES];
  for (size_t m = 0; m < most; m++) {
    cut(list, x, y, 1000 * (m + 1), m + 1);
    CHECK(!plait_send(comm, list, m + 1, PLAIT_FP32, (rank + 1) % n, NULL, &sent[m]));
  }
  for (size_t m = 0; m < most; m++)
    CHECK(!plait_recv(comm, &(PlaitBuffer){NULL, y, 1000 * (m + 1)}, 1, PLAIT_FP32, (rank + n - 1) % n, NULL, NULL));
  for (size_t m = 0; m < most; m++) CHECK(!plait_event_wait(sent[m]));
}

int main(int argc, char **argv) {
  Error error = {0};
  PlaitWorld *world;
  PlaitComm *comm;
  PlaitStream *stream;
  CHECK(!plait_world_launched_create(&world, &error), "%s", error.message);
  int rank = plait_world_rank(world), n = plait_world_size(world), reserves = argc == 1;
  CHECK(!plait_comm_world(world, rank, &comm, &error), "%s", error.message);
  CHECK(!plait_stream_create(comm, &stream, &error), "%s", error.message);
  float *x = xcalloc(TOTAL, sizeof *x), *y = xcalloc(TOTAL, sizeof *y);
  PlaitBuffer *list = xcalloc(PIECES, sizeof *list);
  if (reserves) {
    stream_reserve(stream, 5, 5 * PIECES);
    comm_reserve_collective(comm, PIECES, TOTAL * sizeof *x);
    comm_reserve_messages(comm, (rank + 1) % n, MESSAGES, MESSAGES * MESSAGES);
  }
  CHECK(!plait_all_reduce(comm, &(PlaitBuffer){x, x, 1}, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL)); // ranks connect now
  allocations = 0;
  for (int round = 1; round <= ROUNDS; round++) {
    size_t pieces = round == ROUNDS ? PIECES : (size_t)(7 * round),
           total = round == ROUNDS ? TOTAL : 100000 * (size_t)round;
    collectives(comm, round % 2 ? stream : NULL, n, x, y, list, pieces, total);
    messages(comm, rank, n, x, y, list, MESSAGES * (size_t)round / ROUNDS);
  }
  int made = allocations;
  printf("rank %d of %d: %d allocations\n", rank, n, made);
  free(x);
  free(y);
  free(list);
  plait_stream_destroy(stream);
  plait_comm_destroy(comm);
  plait_world_destroy(world);
  return reserves ? made > 0 : made == 0;
}
