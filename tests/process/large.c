// Calls of many megabytes and lists: several chunks, several pieces a message, broadcasts in shares; with all the
// messages of a run at once. Against what one rank computes alone. large BYTES sends one message of that many bytes.
#include "base/error.h"
#include "plait/comm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 70, TOTAL = 5 << 20 };

static float value(int rank, size_t i) { return (float)((i * 2654435761u >> 7 & 1023) + (size_t)rank * 3) * 0x1p-7f; }

static float summed(int ranks, size_t i) {
  float sum = value(0, i);
  for (int r = 1; r < ranks; r++) sum += value(r, i);
  return sum;
}

static void cut(PlaitBuffer *list, float *send, float *recv, size_t total) {
  size_t at = 0;
  for (int p = 0; p < PIECES; p++) { // of very different lengths; the last has what is left
    size_t count = p == PIECES - 1 ? total - at : p % 7 == 3 ? 0 : (size_t)(1 + p * p * p % 90000);
    if (at + count > total) count = total - at;
    list[p] = (PlaitBuffer){send + at, recv + at, count};
    at += count;
  }
}

static void fill(float *x, int rank, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] = value(rank, i);
}

static void expect_sum(const float *x, int ranks, size_t from, size_t n, const char *what) {
  for (size_t i = 0; i < n; i++)
    CHECK(x[i] == summed(ranks, from + i), "%s: element %zu is %g", what, from + i, (double)x[i]);
}

static void reductions(PlaitComm *comm, int rank, int n, float *x, float *y) {
  PlaitBuffer list[PIECES];
  cut(list, x, y, TOTAL);
  fill(x, rank, TOTAL);
  CHECK(!plait_all_reduce(comm, list, PIECES, PLAIT_FP32, PLAIT_SUM, NULL, NULL));
  expect_sum(y, n, 0, TOTAL, "all_reduce");
  cut(list, x, x, TOTAL);
  CHECK(!plait_all_reduce(comm, list, PIECES, PLAIT_FP32, PLAIT_SUM, NULL, NULL));
  expect_sum(x, n, 0, TOTAL, "all_reduce in place");
  fill(x, rank, TOTAL);
  cut(list, x, y, TOTAL);
  for (int p = 0; p < PIECES && rank != n - 1; p++) list[p].recv = NULL;
  CHECK(!plait_reduce(comm, list, PIECES, PLAIT_FP32, PLAIT_SUM, n - 1, NULL, NULL));
  if (rank == n - 1) expect_sum(y, n, 0, TOTAL, "reduce");
  size_t part = (size_t)TOTAL / (size_t)n;
  CHECK(!plait_reduce_scatter(comm, &(PlaitBuffer){x, y, part}, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL));
  expect_sum(y, n, (size_t)rank * part, part, "reduce_scatter");
  memset(x, 0, (size_t)TOTAL * sizeof *x);
  CHECK(!plait_all_gather(comm, &(PlaitBuffer){y, x, part}, 1, PLAIT_FP32, NULL, NULL));
  expect_sum(x, n, 0, part * (size_t)n, "all_gather");
}

static void broadcasts(PlaitComm *comm, int rank, int n, float *x) {
  PlaitBuffer list[PIECES];
  for (int root = 0; root < n; root++)
    for (size_t total = 1000; total <= TOTAL; total = total * 70 + 1) {
      fill(x, rank, total);
      cut(list, x, x, total);
      CHECK(!plait_broadcast(comm, list, PIECES, PLAIT_FP32, root, NULL, NULL));
      for (size_t i = 0; i < total; i++)
        CHECK(x[i] == value(root, i), "broadcast of %zu from %d: element %zu", total, root, i);
    }
}

// Cut in one way here, in another there; while a stream reduces.
static void messages(PlaitComm *comm, int rank, int n, float *x, float *y) {
  PlaitBuffer list[PIECES], whole = {x, y, TOTAL};
  PlaitEvent sent, reduced;
  PlaitStream *stream;
  float *z = xcalloc(TOTAL, sizeof *z);
  CHECK(!plait_stream_create(comm, &stream, NULL));
  fill(x, rank, TOTAL);
  fill(z, rank, TOTAL);
  plait_all_reduce(comm, &(PlaitBuffer){z, z, TOTAL}, 1, PLAIT_FP32, PLAIT_SUM, stream, &reduced);
  cut(list, x, y, TOTAL);
  CHECK(!plait_send(comm, list, PIECES, PLAIT_FP32, (rank + 1) % n, NULL, &sent));
  CHECK(!plait_recv(comm, &whole, 1, PLAIT_FP32, (rank + n - 1) % n, NULL, NULL));
  for (size_t i = 0; i < TOTAL; i++) CHECK(y[i] == value((rank + n - 1) % n, i), "send: element %zu", i);
  CHECK(!plait_event_wait(reduced) && !plait_event_wait(sent));
  expect_sum(z, n, 0, TOTAL, "all_reduce on a stream");
  plait_stream_destroy(stream);
  free(z);
}

static void one_message(PlaitComm *comm, int rank, size_t bytes) {
  unsigned char *x = xcalloc(bytes + 1, 1);
  PlaitBuffer pieces[3] = {{x, x, bytes / 3},
                           {x + bytes / 3, x + bytes / 3, 5},
                           {x + bytes / 3 + 5, x + bytes / 3 + 5, bytes - bytes / 3 - 5}};
  PlaitBuffer whole = {x, x, bytes};
  for (size_t i = 0; i < bytes && !rank; i += 4099) x[i] = (unsigned char)(i >> 12 | 1);
  if (rank == 0) CHECK(!plait_send(comm, pieces, 3, PLAIT_UINT8, 1, NULL, NULL));
  if (rank == 1) CHECK(!plait_recv(comm, &whole, 1, PLAIT_UINT8, 0, NULL, NULL));
  for (size_t i = 0; i < bytes && rank == 1; i += 4099) CHECK(x[i] == (unsigned char)(i >> 12 | 1), "byte %zu", i);
  free(x);
}

int main(int argc, char **argv) {
  Error error = {0};
  PlaitWorld *world;
  PlaitComm *comm;
  CHECK(!plait_world_launched_create(&world, &error), "%s", error.message);
  int rank = plait_world_rank(world), n = plait_world_size(world);
  CHECK(!plait_comm_world(world, rank, &comm, &error), "%s", error.message);
  if (argc > 1) {
    one_message(comm, rank, strtoull(argv[1], NULL, 10));
  } else {
    float *x = xcalloc(TOTAL, sizeof *x), *y = xcalloc(TOTAL, sizeof *y);
    reductions(comm, rank, n, x, y);
    broadcasts(comm, rank, n, x);
    messages(comm, rank, n, x, y);
    free(x);
    free(y);
  }
  if (rank == 0) printf("%d ranks: all as expected\n", n);
  plait_comm_destroy(comm);
  plait_world_destroy(world);
  return 0;
}
