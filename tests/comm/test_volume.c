// tier 1; threads numbers
// What ranks that are processes give to the wire for each other is what comm_volume says, to the byte, for every kind
// of collective and every pattern; and the mean over the ranks is what comm_volume_mean says, also of rings.
#include "comm/process.h"
#include "comm/volume.h"
#include "wire_in_memory.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
// cmocka wants the four above first
#include <cmocka.h>

static const CommKind kinds[] = {COMM_ALL_REDUCE, COMM_REDUCE_SCATTER, COMM_ALL_GATHER, COMM_BROADCAST, COMM_REDUCE,
                                 COMM_GATHER,     COMM_SCATTER,        COMM_ALL_TO_ALL, COMM_SHIFT};
enum { KINDS = sizeof kinds / sizeof *kinds, MOST = 300007 };

// Elements of a call: within one hop, its last and the first beyond; of more than a broadcast's tree; of several
// chunks.
static const size_t counts[] = {1, 2048, 2049, 17001, MOST};

typedef struct Run { int machine, chain; PlaitDtype dtype; char failure[256]; pthread_mutex_t lock; } Run;

static int call(PlaitComm *comm, CommKind kind, const PlaitBuffer *list, size_t n, PlaitDtype dtype, int root) {
  switch (kind) {
  case COMM_ALL_REDUCE: return plait_all_reduce(comm, list, n, dtype, PLAIT_SUM, NULL, NULL);
  case COMM_REDUCE_SCATTER: return plait_reduce_scatter(comm, list, n, dtype, PLAIT_SUM, NULL, NULL);
  case COMM_ALL_GATHER: return plait_all_gather(comm, list, n, dtype, NULL, NULL);
  case COMM_BROADCAST: return plait_broadcast(comm, list, n, dtype, root, NULL, NULL);
  case COMM_REDUCE: return plait_reduce(comm, list, n, dtype, PLAIT_SUM, root, NULL, NULL);
  case COMM_GATHER: return plait_gather(comm, list, n, dtype, root, NULL, NULL);
  case COMM_SCATTER: return plait_scatter(comm, list, n, dtype, root, NULL, NULL);
  case COMM_ALL_TO_ALL: return plait_all_to_all(comm, list, n, dtype, NULL, NULL);
  default: return plait_shift(comm, list, n, dtype, root, NULL, NULL);
  }
}

static void fail_with(Run *run, const CommShape *s, int from, int to, double counted, const char *what) {
  pthread_mutex_lock(&run->lock);
  if (!*run->failure)
    snprintf(run->failure, sizeof run->failure,
             "%s of %.0f %zu-byte elements, %d ranks, machines of %d, chain %d, root %d: rank %d %s %d: %.0f bytes, "
             "said %.0f", comm_traits[s->kind].name, s->elements, comm_dtype_size(s->dtype), s->ranks.n,
             s->ranks.machine, s->ranks.chain, s->root, from, what, to, counted, comm_volume(s, from, to));
  pthread_mutex_unlock(&run->lock);
}

// One call, in two buffers, counted at the wire.
static void count_call(Run *run, PlaitComm *comm, const CommShape *s, char *send, char *recv) {
  int n = s->ranks.n, me = plait_comm_rank(comm);
  size_t size = comm_dtype_size(s->dtype), count = (size_t)s->elements, first = count / 3,
         parts = comm_traits[s->kind].send_parts || comm_traits[s->kind].recv_parts ? (size_t)n : 1;
  ProcessCount before[16];
  CHECK(n <= 16);
  for (int p = 0; p < n; p++) before[p] = process_count(comm, p);
  PlaitBuffer list[2] = {{send, recv, first},
                         {send + first * parts * size, recv + first * parts * size, count - first}};
  CHECK(!call(comm, s->kind, list, 2, s->dtype, s->root), "%s", plait_comm_error(comm));
  for (int p = 0; p < n; p++) {
    ProcessCount now = process_count(comm, p);
    double sent = (double)(now.sent - before[p].sent), received = (double)(now.received - before[p].received);
    if (sent != comm_volume(s, me, p)) fail_with(run, s, me, p, sent, "to");
    if (received != comm_volume(s, p, me)) fail_with(run, s, p, me, received, "received by");
    if ((now.headers_sent - before[p].headers_sent) % sizeof(Header)) fail_with(run, s, me, p, 0.5, "headers to");
  }
}

// Sums of small whole numbers, which no order of adding changes.
static void check_sum(Run *run, const CommShape *s, const float *recv) {
  for (size_t i = 0; i < (size_t)s->elements; i += 997) {
    float sum = 0;
    for (int p = 0; p < s->ranks.n; p++) sum += (float)((i + (size_t)p * 7) % 31);
    if (recv[i] != sum) fail_with(run, s, (int)i, s->root, recv[i], "is the place of a wrong sum, root");
  }
}

static void count_all(PlaitComm *comm, int rank, void *context) {
  Run *run = context;
  int n = plait_comm_size(comm);
  size_t size = comm_dtype_size(run->dtype), room = (size_t)n * (MOST + 1) * size;
  char *send = xcalloc(room, 1), *recv = xcalloc(room, 1);
  process_set_chain(comm->world, run->chain);
  for (int k = 0; k < KINDS; k++)
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
      for (int root = 0; root < n; root += n - 1) {
        CommShape s = {COMM_BY_PROCESSES, kinds[k], run->dtype, {n, run->machine, run->chain}, root, (double)counts[i]};
        if (kinds[k] == COMM_SCATTER || kinds[k] == COMM_GATHER || kinds[k] == COMM_ALL_TO_ALL)
          s.elements = (double)(counts[i] / 7 + 1); // these have no pattern
        if (run->dtype == PLAIT_FP32)
          for (size_t e = 0; e < counts[i]; e++) ((float *)(void *)send)[e] = (float)((e + (size_t)rank * 7) % 31);
        count_call(run, comm, &s, send, recv);
        if (kinds[k] == COMM_REDUCE && rank == root && run->dtype == PLAIT_FP32)
          check_sum(run, &s, (const float *)(const void *)recv);
        if (!comm_traits[kinds[k]].rooted && kinds[k] != COMM_SHIFT) break; // it has no root
      }
  free(send);
  free(recv);
}

static void hold(int ranks, int machine, int chain, PlaitDtype dtype) {
  Run run = {.machine = machine, .chain = chain, .dtype = dtype, .lock = PTHREAD_MUTEX_INITIALIZER};
  hub_run(ranks, machine, count_all, &run);
  if (*run.failure) fail_msg("%s", run.failure);
}

static void one_machine(void **state) {
  for (int n = 2; n <= 5; n++) hold(n, 0, 0, PLAIT_FP32);
  hold(3, 0, 0, PLAIT_BF16);
}

static void machines_and_chains(void **state) {
  hold(4, 2, 0, PLAIT_FP32);
  hold(6, 2, 0, PLAIT_BF16); // sums travel twice as wide
  hold(4, 0, 1, PLAIT_BF16);
  hold(6, 0, 3, PLAIT_FP32);
  hold(4, 2, -1, PLAIT_FP32);
}

// The mean that plans ask for has a formula of its own.
static void means(void **state) {
  static const Patterned ranks[] = {{1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {8, 0, 0},
                                    {8, 4, 0}, {6, 2, 0}, {6, 0, 3}, {7, 0, 1}};
  for (int by = COMM_BY_PROCESSES; by <= COMM_BY_RING; by++)
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++)
      for (int k = 0; k < KINDS; k++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
          for (int root = 0; root < ranks[r].n; root++) {
            CommShape s = {(CommCarrier)by, kinds[k], PLAIT_BF16, ranks[r], root, (double)counts[i]};
            double sent = 0, received = 0, mean = comm_volume_mean(&s);
            for (int p = 0; p < ranks[r].n; p++) {
              CommVolume v = comm_volume_of(&s, p);
              sent += v.sent / ranks[r].n, received += v.received / ranks[r].n;
            }
            if (fabs(sent - mean) > 1e-9 * mean || fabs(received - mean) > 1e-9 * mean)
              fail_msg("%s of %zu elements, %d ranks, root %d: %.1f bytes sent, %.1f received, the mean is %.1f",
                       comm_traits[kinds[k]].name, counts[i], ranks[r].n, root, sent, received, mean);
          }
}

// As published: a ring sends 2 (N − 1)/N of an all_reduce, (N − 1)/N of the others.
static void rings(void **state) {
  CommShape s = {COMM_BY_RING, COMM_ALL_REDUCE, PLAIT_FP32, {4, 0, 0}, 0, 1000};
  for (int p = 0; p < 4; p++) assert_true(comm_volume_of(&s, p).sent == 6000);
  s.kind = COMM_ALL_GATHER; // of parts
  assert_true(comm_volume_of(&s, 2).sent == 12000);
  s.kind = COMM_REDUCE;
  assert_true(comm_volume_of(&s, 0).sent == 0 && comm_volume_of(&s, 1).sent == 4000);
}

// Reductions to one rank: (1 + 1/N) times (N − 1)/N of the elements where there are more than two ranks and more than 8
// KiB.
static void reductions_to_one(void **state) {
  for (int n = 2; n <= 8; n++) {
    double bytes = 4 * 64 * 840.0, once = bytes * (n - 1) / n;
    CommShape s = {COMM_BY_PROCESSES, COMM_REDUCE, PLAIT_FP32, {n, 0, 0}, 1, bytes / 4};
    assert_true(fabs(comm_volume_mean(&s) - (n == 2 ? once : once * (1 + 1.0 / n))) < 1e-9 * bytes);
    s.elements = 2048;
    assert_true(comm_volume_mean(&s) == 8192.0 * (n - 1) / n);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(means), cmocka_unit_test(rings),
                                     cmocka_unit_test(reductions_to_one), cmocka_unit_test(one_machine),
                                     cmocka_unit_test(machines_and_chains)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY"));
  return cmocka_run_group_tests(tests, NULL, NULL);
}
