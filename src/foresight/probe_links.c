// Times collectives of groups of ranks and messages between pairs.
#include "foresight/probe_links.h"
#include "base/clock.h"
#include "comm/comm.h"
#include "machine/collective_time.h"
#include "foresight/probe_pairs.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAST_REPEAT = 5, MOST_REPEAT = 200 };

typedef struct LinkTask {
  CollectiveKind kind;
  int ranks;       // of the group: the first ones
  const LinkPair *pair; // not NULL: a message between these two instead, there and back
  double bytes;    // of the whole tensor, as collective_seconds counts them
  double span;     // seconds that the measurement may take
  int local;       // ranks are threads, which all have this task
  double seconds;  // the result, of rank 0 or the pair's first one
} LinkTask;

static int there_and_back(PlaitComm *comm, const LinkPair *pair, const PlaitBuffer *all) {
  int r = plait_comm_rank(comm), first = r == pair->a, peer = first ? pair->b : pair->a, code = 0;
  if (!first && r != pair->b) return 0;
  for (int i = 0; i < 2 && !code; i++)
    code = first == (i == 0) ? plait_send(comm, all, 1, PLAIT_FP32, peer, NULL, NULL)
                             : plait_recv(comm, all, 1, PLAIT_FP32, peer, NULL, NULL);
  return code;
}

static int call(PlaitComm *comm, const LinkTask *t, float *send, float *recv) {
  int n = t->ranks;
  size_t whole = (size_t)(t->bytes / sizeof(float)), part = whole / (size_t)n;
  PlaitBuffer all = {send, recv, whole}, each = {send, recv, part};
  if (t->pair) return there_and_back(comm, t->pair, &all);
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

// Everybody's are the seconds of one of them.
static int tell_seconds(PlaitComm *comm, LinkTask *t, double seconds) {
  double mine = plait_comm_rank(comm) == (t->pair ? t->pair->a : 0) ? seconds : 0, all;
  PlaitBuffer buffer = {&mine, &all, 1};
  if (plait_all_reduce(comm, &buffer, 1, PLAIT_FP64, PLAIT_MAX, NULL, NULL)) return PLAIT_FAILED;
  if (plait_comm_rank(comm) == 0 || !t->local) t->seconds = t->pair ? all / 2 : all;
  return PLAIT_OK;
}

// The lower quartile of calls that follow a barrier each: what disturbs only makes a call longer.
static int time_calls(PlaitComm *comm, LinkTask *t, float *send, float *recv) {
  double seconds[MOST_REPEAT], end = clock_seconds() + t->span;
  int32_t go = 1, count = 0;
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
  return tell_seconds(comm, t, seconds[count / 4]);
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
    if (time_calls(comm, t, send, recv)) code = plait_comm_failure(r->world, error);
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

static int find_hosts(Rank *r, void *context, Error *error) {
  LinkPairs *pairs = context;
  char mine[LINK_HOST] = "", (*all)[LINK_HOST] = xcalloc((size_t)pairs->ranks, sizeof *all);
  gethostname(mine, sizeof mine - 1);
  PlaitBuffer buffer = {mine, all, sizeof mine};
  int code = plait_all_gather(r->world, &buffer, 1, PLAIT_UINT8, NULL, NULL);
  if (code) code = plait_comm_failure(r->world, error);
  else if (r->rank == 0 || !pairs->local) memcpy(pairs->host, all, sizeof *all * (size_t)pairs->ranks);
  free(all);
  return code;
}

static int measure_messages(Session *session, LinkPairs *pairs, double span, Cluster *c, Error *error) {
  const double large = 1 << 23, small = 1 << 12;
  int code = PLAIT_OK;
  for (int i = 0; i < pairs->pair.count && !code; i++) {
    LinkPair *pair = &pairs->pair.data[i];
    LinkTask task = {.ranks = pairs->ranks, .pair = pair, .bytes = small, .span = span, .local = pairs->local};
    code = session_run(session, run, &task, error);
    pair->small = task.seconds;
    task.bytes = large;
    if (!code) code = session_run(session, run, &task, error);
    pair->large = task.seconds;
  }
  if (code) return code;
  link_pairs_facts(pairs, large, c);
  if (session_rank(session, 0)) link_pairs_outliers(pairs, stderr);
  return PLAIT_OK;
}

int probe_links(Session *session, bool quick, Cluster *c, Error *error) {
  const double span = quick ? 0.01 : 0.04, largest = 1 << 26;
  int ranks = session_ranks(session);
  if (ranks < 2) return PLAIT_OK;
  LinkPairs pairs = link_pairs_choose(ranks);
  pairs.local = session_is_local(session);
  int code = session_run(session, find_hosts, &pairs, error);
  for (int n = 2; n <= ranks && !code; n = n == ranks ? ranks + 1 : 2 * n < ranks ? 2 * n : ranks)
    for (int kind = 0; kind < COLLECTIVE_KINDS && !code; kind++)
      for (double bytes = 1 << 10; bytes <= largest && !code; bytes *= 8) {
        LinkTask task = {.kind = (CollectiveKind)kind, .ranks = n, .bytes = bytes, .span = span, .local = pairs.local};
        code = session_run(session, run, &task, error);
        vec_push(&c->measured, ((MeasuredCollective){collective_kind_name((CollectiveKind)kind), n,
                                                     link_hosts(&pairs, n), bytes, task.seconds}));
      }
  if (c->measured.count) qsort(c->measured.data, (size_t)c->measured.count, sizeof *c->measured.data, by_row);
  if (!code) code = measure_messages(session, &pairs, span, c, error);
  link_pairs_free(&pairs);
  return code;
}
