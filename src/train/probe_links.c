// Times collectives of groups of ranks and messages between pairs.
#include "train/probe_links.h"
#include "base/clock.h"
#include "base/fault.h"
#include "comm/comm.h"
#include "plan/collective_time.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_REPEAT = 5, MOST_REPEAT = 200 };

typedef struct LinkTask {
  CollectiveKind kind;
  int ranks;       // of the group: the first so many
  int message_to;  // above 0: a message from rank 0 instead
  double bytes;    // of the whole tensor, as collective_seconds counts them
  double span;     // seconds that the measurement may take
  double seconds;  // the result, by rank 0
} LinkTask;

static int call(PlaitComm *comm, const LinkTask *t, float *send, float *recv) {
  int n = t->ranks, r = plait_comm_rank(comm);
  size_t whole = (size_t)(t->bytes / sizeof(float)), part = whole / (size_t)n;
  PlaitBuffer all = {send, recv, whole}, each = {send, recv, part};
  if (t->message_to) {
    if (r == 0) return plait_send(comm, &all, 1, PLAIT_FP32, t->message_to, NULL, NULL);
    return r == t->message_to ? plait_recv(comm, &all, 1, PLAIT_FP32, 0, NULL, NULL) : 0;
  }
  switch (t->kind) {
  case COLLECTIVE_ALL_REDUCE: return plait_all_reduce(comm, &all, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL);
  case COLLECTIVE_REDUCE_SCATTER: return plait_reduce_scatter(comm, &each, 1, PLAIT_FP32, PLAIT_SUM, NULL, NULL);
  case COLLECTIVE_ALL_GATHER: return plait_all_gather(comm, &each, 1, PLAIT_FP32, NULL, NULL);
  case COLLECTIVE_ALL_TO_ALL: return plait_all_to_all(comm, &each, 1, PLAIT_FP32, NULL, NULL);
  case COLLECTIVE_BROADCAST: return plait_broadcast(comm, &all, 1, PLAIT_FP32, 0, NULL, NULL);
  case COLLECTIVE_REDUCE: return plait_reduce(comm, &all, 1, PLAIT_FP32, PLAIT_SUM, 0, NULL, NULL);
  default: return plait_shift(comm, &all, 1, PLAIT_FP32, 1, NULL, NULL);
  }
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The lower quartile on rank 0 of calls that follow a barrier each: what disturbs only makes a call longer.
static int time_calls(PlaitComm *comm, LinkTask *t, float *send, float *recv) {
  double seconds[MOST_REPEAT], end = clock_seconds() + t->span;
  int32_t go = 1, count = 0, root = plait_comm_rank(comm) == 0;
  PlaitBuffer on = {&go, &go, 1};
  for (int warm = 0; go; warm = 1) {
    if (plait_barrier(comm, NULL, NULL)) return PLAIT_FAILED;
    double start = clock_seconds();
    if (call(comm, t, send, recv)) return PLAIT_FAILED;
    seconds[count] = clock_seconds() - start;
    count += warm; // the first one warms up
    go = count < LEAST_REPEAT || (clock_seconds() < end && count < MOST_REPEAT);
    if (plait_broadcast(comm, &on, 1, PLAIT_INT32, 0, NULL, NULL)) return PLAIT_FAILED; // by rank 0's clock
  }
  qsort(seconds, (size_t)count, sizeof *seconds, by_value);
  if (root) t->seconds = seconds[count / 4];
  return PLAIT_OK;
}

static int run(Rank *r, void *context, Error *error) {
  LinkTask *t = context;
  int *ranks = xcalloc((size_t)t->ranks, sizeof *ranks), in = r->rank < t->ranks;
  for (int i = 0; i < t->ranks; i++) ranks[i] = i;
  PlaitComm *comm = NULL;
  int code = in ? plait_comm_create(r->world, ranks, t->ranks, &comm, error) : PLAIT_OK;
  size_t bytes = (size_t)t->bytes + sizeof(float);
  float *send = in ? xcalloc(bytes, 1) : NULL, *recv = in ? xcalloc(bytes, 1) : NULL;
  if (in && !code) {
    memset(send, 0, bytes); // pages are there
    memset(recv, 0, bytes);
    if (time_calls(comm, t, send, recv)) code = error_set(error, PLAIT_FAILED, "%s", plait_comm_error(r->world));
  }
  plait_comm_destroy(comm);
  free(ranks);
  free(send);
  free(recv);
  return code;
}

static int by_row(const void *a, const void *b) {
  const MeasuredCollective *x = a, *y = b;
  int kind = strcmp(x->kind, y->kind);
  if (kind) return kind;
  if (x->ranks != y->ranks) return x->ranks - y->ranks;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int measure_messages(Session *session, double span, Cluster *c, Error *error) {
  const double large = 1 << 23, small = 1 << 12, outlier = 1.5;
  double slowest = 0, latency = 0, fastest = INFINITY;
  int code = PLAIT_OK, ranks = session_ranks(session), last = session_is_local(session) ? 2 : ranks, worst = 1;
  for (int to = 1; to < last && !code; to++) {
    LinkTask task = {.ranks = ranks, .message_to = to, .bytes = small, .span = span};
    code = session_run(session, run, &task, error);
    latency = task.seconds > latency ? task.seconds : latency;
    task.bytes = large;
    if (!code) code = session_run(session, run, &task, error);
    if (task.seconds > slowest) slowest = task.seconds, worst = to;
    fastest = fmin(fastest, task.seconds);
  }
  if (slowest > outlier * fastest && session_rank(session, 0))
    fprintf(stderr, "note: messages from rank 0 to rank %d take %.1f times as long as those to the fastest rank\n",
            worst, slowest / fastest);
  c->level[0].latency = latency;
  c->level[0].bandwidth = slowest > latency ? large / (slowest - latency) : large / slowest;
  return code;
}

int probe_links(Session *session, int local, bool quick, Cluster *c, Error *error) {
  const double span = quick ? 0.01 : 0.04, largest = 1 << 26;
  int code = PLAIT_OK, ranks = session_ranks(session);
  if (ranks < 2) return PLAIT_OK;
  for (int n = 2; n <= ranks && !code; n = n == ranks ? ranks + 1 : 2 * n < ranks ? 2 * n : ranks)
    for (int kind = 0; kind < COLLECTIVE_KINDS && !code; kind++)
      for (double bytes = 1 << 10; bytes <= largest && !code; bytes *= 8) {
        LinkTask task = {.kind = (CollectiveKind)kind, .ranks = n, .bytes = bytes, .span = span};
        code = session_run(session, run, &task, error);
        vec_push(&c->measured,
                 ((MeasuredCollective){collective_kind_name((CollectiveKind)kind), n, (n + local - 1) / local, bytes,
                                                     task.seconds}));
      }
  if (c->measured.count) qsort(c->measured.data, (size_t)c->measured.count, sizeof *c->measured.data, by_row);
  return code ? code : measure_messages(session, span, c, error);
}
