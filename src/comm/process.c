// The back end whose ranks are processes. Elements travel by point-to-point messages of a wire straight between the
// callers' memory, in a pattern of our own (process_collective.c, process_reduction.c): so reductions have the order
// and the bits of `local`, lists of buffers need no copy, a mismatch is found, and a world that fails can end its
// calls.
#include "comm/process.h"
#include "base/thread.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Handles -----------------------------------------------------------------------------------------------------------

PlaitComm *process_handle_create(ProcessWorld *w, WireContext context, uint64_t id, const int *ranks, int n) {
  ProcessComm *c = xcalloc(1, sizeof *c);
  size_t count = (size_t)n;
  int *list = xcalloc(count, sizeof *list);
  memcpy(list, ranks, count * sizeof *list);
  c->base = (PlaitComm){.backend = w->base.backend, .world = &w->base, .size = n, .ranks = list};
  while (list[c->base.rank] != w->rank) c->base.rank++;
  c->context = context;
  c->id = id;
  c->group = process_machine_group(w, list, n);
  c->next = w->handles;
  w->handles = c;
  c->queues = xcalloc(count, sizeof *c->queues);
  for (int p = 0; p < n; p++) message_queue_init(&c->queues[p], c, p);
  c->left = xcalloc(count, sizeof *c->left);
  c->count = xcalloc(count, sizeof *c->count);
  c->sent = xcalloc(count, sizeof *c->sent);
  c->got = xcalloc(count, sizeof *c->got);
  c->inputs = xcalloc(count, sizeof *c->inputs);
  RequestBatch *batches[] = {&c->headers, &c->first[0], &c->first[1], &c->second[0], &c->second[1]};
  for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
    batch_reserve(batches[i], 3 * n); // a header and two parts for each peer
  for (int i = 0; i < 2; i++) batch_reserve(&c->chain.passed[i], 1);
  monitor_init(&c->turn, &w->base.abort);
  return &c->base;
}

static void process_comm_destroy(PlaitComm *base) {
  ProcessComm *c = (ProcessComm *)base;
  ProcessWorld *w = (ProcessWorld *)base->world;
  process_lock(w);
  for (MessageQueue **link = &w->pending; *link;) { // with all sends copied, or a world that has failed
    if (*link >= c->queues && *link < c->queues + base->size) *link = (*link)->next;
    else link = &(*link)->next;
  }
  departure_send(c);
  if (c->id && !abort_code(&w->base.abort)) w->wire->context_free(w, &c->context); // 0: everyone
  process_unlock(w);
  for (int p = 0; p < base->size; p++) message_queue_free(&c->queues[p]);
  for (int i = 0; i < 2; i++) {
    batch_free(&c->first[i]);
    batch_free(&c->second[i]);
    free(c->staging[i]);
  }
  batch_free(&c->headers);
  process_chain_free(&c->chain);
  monitor_destroy(&c->turn);
  free(c->queues);
  free(c->left);
  free(c->count);
  free(c->sent);
  free(c->got);
  free(c->inputs);
  free((int *)(uintptr_t)base->ranks);
  free(c);
}

static int process_comm_world(PlaitWorld *base, int rank, PlaitComm **comm, Error *error) {
  ProcessWorld *w = (ProcessWorld *)base;
  if (rank != w->rank)
    return error_set(error, PLAIT_BAD_INPUT, "rank %d is another process: this one is rank %d", rank, w->rank);
  if (w->taken++) return error_set(error, PLAIT_BAD_INPUT, "rank %d has its communicator of all ranks already", rank);
  process_lock(w);
  *comm = process_handle_create(w, w->everyone, 0, w->ranks, base->ranks);
  process_unlock(w);
  return PLAIT_OK;
}

// Calls -------------------------------------------------------------------------------------------------------------

static void process_issue(PlaitComm *base, CommCall *call, PlaitEvent *sent) {
  ProcessComm *c = (ProcessComm *)base;
  if (call->kind == COMM_SEND || call->kind == COMM_RECV) message_issue(c, call, sent);
  else call->ticket = c->issued++;
}

static int process_run(PlaitComm *base, const CommCall *call) {
  ProcessComm *c = (ProcessComm *)base;
  if (call->kind == COMM_SEND) return message_send(c, call);
  if (call->kind == COMM_RECV) return message_receive(c, call);
  return process_collective(c, call);
}

// World -------------------------------------------------------------------------------------------------------------

static void process_aborted(PlaitWorld *base) { process_notify((ProcessWorld *)base); }
static int process_own_rank(const PlaitWorld *base) { return ((const ProcessWorld *)base)->rank; }

static int process_rank_is_gone(const PlaitWorld *base, int rank) {
  const ProcessWorld *w = (const ProcessWorld *)base;
  return w->wire->rank_is_gone && w->wire->rank_is_gone(w, rank);
}

// From a watchdog's thread, while others of this process may be inside the wire.
static void process_end(PlaitWorld *base, int status, const Error *error) {
  ProcessWorld *w = (ProcessWorld *)base;
  process_lock_within(w, 1000000000);
  w->wire->end(w, status, error);
}

void process_leave_together(ProcessWorld *w) {
  int n = w->base.ranks, code = abort_code(&w->base.abort);
  for (int step = 1; step < n && !code; step *= 2) {
    char word = 0;
    code = control_wait(w, &word, 1, (w->rank + step) % n, TAG_LEAVE, 0);
    if (!code) code = control_wait(w, &word, 1, (w->rank - step + n) % n, TAG_LEAVE, 1);
  }
}

static void process_world_destroy(PlaitWorld *base) {
  ProcessWorld *w = (ProcessWorld *)base;
  w->wire->leave(w); // sends that nobody waits for still move
  process_lock(w);
  w->stop = 1;
  pthread_cond_signal(&w->work);
  process_unlock(w);
  pthread_join(w->progress_thread, NULL);
  w->wire->world_destroy(w);
}

static const CommBackend process_backend = {
    .name = "process",
    .world_destroy = process_world_destroy,
    .comm_world = process_comm_world,
    .comm_create = process_comm_create,
    .comm_destroy = process_comm_destroy,
    .reserve_messages = message_reserve,
    .reserve_collective = process_reserve_collective,
    .issue = process_issue,
    .run = process_run,
    .aborted = process_aborted,
    .own_rank = process_own_rank,
    .end = process_end,
    .heartbeat = process_heartbeat,
    .rank_is_gone = process_rank_is_gone,
};

ProcessCount process_count(const PlaitComm *base, int peer) {
  if (base->backend != &process_backend) return (ProcessCount){0};
  ProcessWorld *w = (ProcessWorld *)base->world;
  process_lock(w);
  ProcessCount count = ((const ProcessComm *)base)->count[peer];
  process_unlock(w);
  return count;
}

void process_set_chain(PlaitWorld *world, int group) {
  if (world->backend == &process_backend) ((ProcessWorld *)world)->chain = group;
}

void process_world_init(ProcessWorld *w, const Wire *wire, int rank, int ranks, int local_ranks) {
  world_init(&w->base, &process_backend, ranks, local_ranks, rank);
  w->base.name = wire->name;
  w->base.ends = wire->ends;
  w->wire = wire;
  w->rank = rank;
  w->gone = xcalloc((size_t)ranks, 1);
  w->ranks = xcalloc((size_t)ranks, sizeof *w->ranks);
  for (int r = 0; r < ranks; r++) w->ranks[r] = r;
  if (gethostname(w->host, sizeof w->host - 1)) strcpy(w->host, "unknown host");
  w->spin = w->base.abort.spin;
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->work, NULL);
}

int process_world_start(ProcessWorld *w, Error *error) {
  return thread_start(&w->progress_thread, message_progress, w, error, "a communication thread");
}

void process_world_free(ProcessWorld *w) {
  pthread_cond_destroy(&w->work);
  pthread_mutex_destroy(&w->lock);
  world_free(&w->base);
  record_queue_free(&w->departures);
  free(w->gone);
  free(w->machines);
  free(w->pieces);
  free(w->ranks);
}
