// The local back end: ranks are threads of one process, collectives read and write each other's memory directly.
#include "comm/local.h"
#include "base/pause.h"
#include "comm/share.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Below this it costs less that the last rank to arrive does all parts than to wake the others twice.
enum { SHARED_BYTES = 16384 };
static const uint64_t LEFT = (uint64_t)1 << 63;

// What a rank that waits in comm_create waits for; n 0: it does not.
typedef struct PendingCreate { const int *ranks; int n; } PendingCreate;

typedef struct LocalWorld {
  PlaitWorld base;
  LocalGroup *everyone;
  Monitor creation;       // guards the rest
  LocalGroup *forming; // groups that wait for ranks
  PendingCreate *pending;        // (ranks)
  char *taken;         // (ranks) who has its handle of the communicator of all
  atomic_int *handles; // (ranks) how many it has of any communicators
} LocalWorld;

// Groups and communicators ------------------------------------------------------------------------------------------

static LocalGroup *group_create(PlaitWorld *world, const int *ranks, int n) {
  LocalGroup *g = aligned_alloc(_Alignof(LocalGroup), sizeof *g);
  CHECK(g, "out of memory");
  memset(g, 0, sizeof *g);
  size_t count = (size_t)n;
  g->world = world;
  g->backend = world->backend;
  g->n = n;
  g->ranks = xcalloc(count, sizeof *g->ranks);
  for (int i = 0; i < n; i++) g->ranks[i] = ranks ? ranks[i] : i;
  g->calls = xcalloc(count, sizeof *g->calls);
  g->left = xcalloc(count, sizeof *g->left);
  g->message_monitor = xcalloc(count, sizeof *g->message_monitor);
  g->queues = xcalloc(count * count, sizeof *g->queues);
  monitor_init(&g->monitor, &world->abort);
  for (int i = 0; i < n; i++) monitor_init(&g->message_monitor[i], &world->abort);
  for (int i = 0; i < n * n; i++) local_message_queue_init(&g->queues[i], g, &g->message_monitor[i / n]);
  atomic_init(&g->handles, n);
  return g;
}

static void group_free(LocalGroup *g) {
  for (int i = 0; i < g->n * g->n; i++) local_message_queue_free(&g->queues[i]);
  for (int i = 0; i < g->n; i++) monitor_destroy(&g->message_monitor[i]);
  monitor_destroy(&g->monitor);
  free(g->queues);
  free(g->message_monitor);
  free(g->calls);
  free(g->left);
  free(g->ranks);
  free(g);
}

static PlaitComm *handle_create(LocalGroup *g, int world_rank, const CommBackend *backend) {
  LocalComm *comm = xcalloc(1, sizeof *comm);
  comm->base = (PlaitComm){.backend = backend, .world = g->world, .size = g->n, .ranks = g->ranks};
  while (g->ranks[comm->base.rank] != world_rank) comm->base.rank++;
  comm->group = g;
  atomic_fetch_add(&((LocalWorld *)g->world)->handles[world_rank], 1);
  return &comm->base;
}


static int contains(PendingCreate create, int rank) {
  for (int i = 0; i < create.n; i++)
    if (create.ranks[i] == rank) return 1;
  return 0;
}
static int same(PendingCreate a, PendingCreate b) {
  return a.n == b.n && !memcmp(a.ranks, b.ranks, (size_t)a.n * sizeof(int));
}

static void print_list(PendingCreate create, char *text, size_t size) {
  size_t used = (size_t)snprintf(text, size, "[");
  for (int i = 0; i < create.n && used + 16 < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%d", i ? " " : "", create.ranks[i]);
  snprintf(text + used, size - used, "]");
}

// A rank that has destroyed all its handles cannot create communicators any more. -1: there is none.
static int find_gone(const LocalWorld *world, PendingCreate create) {
  for (int i = 0; i < create.n; i++)
    if (world->taken[create.ranks[i]] && !atomic_load(&world->handles[create.ranks[i]])) return create.ranks[i];
  return -1;
}

// Another rank of my list that waits for another list with me in it will never come; nor shall I.
static int find_conflict(LocalWorld *world, int me, PendingCreate mine, Error *error) {
  for (int i = 0; i < mine.n; i++) {
    int rank = mine.ranks[i];
    PendingCreate other = world->pending[rank];
    if (rank == me || !other.n || same(other, mine) || !contains(other, me)) continue;
    char first[256], second[256];
    print_list(mine, first, sizeof first);
    print_list(other, second, sizeof second);
    return error_set_about(error, PLAIT_FAILED, &(ErrorFacts){.rank = error_rank(me, NULL)},
                           "rank %d creates a communicator of ranks %s while rank %d creates one of ranks %s", me,
                           first, rank, second);
  }
  return PLAIT_OK;
}

static int describe_gone(int me, PendingCreate mine, int gone, Error *error) {
  char list[256];
  print_list(mine, list, sizeof list);
  return error_set_about(
      error, PLAIT_FAILED, &(ErrorFacts){.rank = error_rank(me, NULL)},
      "rank %d creates a communicator of ranks %s, but rank %d has destroyed all its handles and cannot join", me, list,
      gone);
}

// With the creation monitor held: joins the group of my list that its first rank has created; waits until all have
// joined.
static LocalGroup *join(LocalWorld *world, int me, PendingCreate mine, const Waiter *waiter) {
  LocalGroup *g;
  for (;;) {
    for (g = world->forming; g && !same(mine, (PendingCreate){g->ranks, g->n}); g = g->next) {}
    if (g || abort_code(&world->base.abort) || find_gone(world, mine) >= 0) break;
    monitor_wait(&world->creation, waiter);
  }
  if (!g) return NULL;
  if (++g->joined == g->n) {
    LocalGroup **link = &world->forming;
    while (*link != g) link = &(*link)->next;
    *link = g->next;
    for (int i = 0; i < g->n; i++) world->pending[g->ranks[i]] = (PendingCreate){0};
    monitor_notify_all(&world->creation);
  }
  while (g->joined < g->n && !abort_code(&world->base.abort) && find_gone(world, mine) < 0)
    monitor_wait(&world->creation, waiter);
  return g->joined == g->n ? g : NULL;
}

static int local_comm_create(PlaitComm *any, const int *ranks, int n, PlaitComm **comm, Error *error) {
  LocalWorld *world = (LocalWorld *)any->world;
  int me = any->ranks[any->rank];
  PendingCreate mine = {ranks, n};
  Error why = {0};
  LocalGroup *g = me == ranks[0] ? group_create(any->world, ranks, n) : NULL; // not under the monitor
  monitor_lock(&world->creation);
  int conflict = find_conflict(world, me, mine, &why);
  if (g) {
    g->next = world->forming;
    world->forming = g;
    monitor_notify_all(&world->creation);
  }
  world->pending[me] = mine;
  g = conflict ? NULL : join(world, me, mine, &(Waiter){.alive = any->waiter.alive});
  int gone = g || conflict ? -1 : find_gone(world, mine);
  if (gone >= 0) conflict = describe_gone(me, mine, gone, &why);
  if (!g) world->pending[me] = (PendingCreate){0};
  monitor_unlock(&world->creation);
  if (conflict) abort_all(&any->world->abort, &why);
  if (!g) return error_take(error, &any->world->abort.error);
  *comm = handle_create(g, me, any->backend);
  return PLAIT_OK;
}

static int local_comm_world(PlaitWorld *base, int rank, PlaitComm **comm, Error *error) {
  LocalWorld *world = (LocalWorld *)base;
  monitor_lock(&world->creation);
  int taken = world->taken[rank];
  if (!taken) { // under the monitor: who has taken it and has no handle is gone
    world->taken[rank] = 1;
    atomic_fetch_add(&world->everyone->handles, 1);
    *comm = handle_create(world->everyone, rank, base->backend);
  }
  monitor_unlock(&world->creation);
  if (taken) return error_set(error, PLAIT_BAD_INPUT, "rank %d has its communicator of all ranks already", rank);
  return PLAIT_OK;
}

static void local_world_destroy(PlaitWorld *base) {
  LocalWorld *world = (LocalWorld *)base;
  for (LocalGroup *g = world->forming, *next; g; g = next) { // left over when the world failed
    next = g->next;
    group_free(g);
  }
  group_free(world->everyone);
  monitor_destroy(&world->creation);
  free(world->pending);
  free(world->taken);
  free(world->handles);
  world_free(base);
  free(world);
}

// Collectives -------------------------------------------------------------------------------------------------------

// A counter has grown: whoever sleeps looks again. A sleeper says so before its last look, so none is missed.
static void wake(LocalGroup *g) {
  if (!atomic_load(&g->sleepers)) return;
  monitor_lock(&g->monitor);
  monitor_notify_all(&g->monitor);
  monitor_unlock(&g->monitor);
}

// A rank of the group that will never make this call, as it has destroyed its handle. -1: there is none.
static int find_departed(LocalGroup *g, uint64_t ticket) {
  for (int r = 0; atomic_load(&g->departures) && r < g->n; r++) {
    uint64_t left = atomic_load(&g->left[r]);
    if (left && left - 1 <= ticket) return r;
  }
  return -1;
}

typedef enum Until {
  DONE,
  FAILED,
  DEPARTED
} Until; // or the world has failed; or a rank has left that call `value - 1` needs

// Waits for counter >= value: looks for a while, then sleeps. 0 if it has ended otherwise.
static int await(LocalGroup *g, _Atomic uint64_t *counter, uint64_t value, Until until, const Waiter *waiter) {
  Abort *abort = &g->world->abort;
  for (int i = 0; i < abort->spin; i++) {
    if (atomic_load_explicit(counter, memory_order_acquire) >= value) return 1;
    cpu_pause();
  }
  monitor_lock(&g->monitor);
  atomic_fetch_add(&g->sleepers, 1);
  while (atomic_load(counter) < value && !(until >= FAILED && abort_code(abort)) &&
         !(until == DEPARTED && find_departed(g, value - 1) >= 0))
    monitor_wait(&g->monitor, waiter);
  atomic_fetch_sub(&g->sleepers, 1);
  monitor_unlock(&g->monitor);
  return atomic_load(counter) >= value;
}

// By the last rank to arrive: is this one collective, and who does the work?
static void judge(LocalGroup *g, uint64_t ticket, Error *error) {
  g->verdict = share_check(g->calls, g->n, g->ranks, error);
  g->done_by_last = g->verdict < 0 || g->n == 1 || share_bytes(g->calls, g->n) <= SHARED_BYTES;
  for (int r = 0; g->verdict == PLAIT_OK && g->done_by_last && r < g->n; r++) share_run(g->calls, g->n, r);
  if (g->done_by_last) atomic_fetch_add_explicit(&g->finished, (uint64_t)g->n, memory_order_relaxed);
  atomic_store(&g->opened, ticket + 1);
  wake(g);
}

// A rank leaves without the others only before all have arrived, and then nobody comes after it: from the moment when
// all have arrived they use its memory.
static int arrive(LocalComm *comm, const CommCall *call, Error *error) {
  LocalGroup *g = comm->group;
  Abort *abort = &g->world->abort;
  uint64_t all = (uint64_t)g->n * (call->ticket + 1);
  if (!await(g, &comm->finished, call->ticket, FAILED, call->waiter) || abort_code(abort))
    return abort_code(abort); // calls on other streams first
  g->calls[comm->base.rank] = call;
  uint64_t before = atomic_fetch_add(&g->arrived, 1);
  if (before & LEFT) return abort_code(abort);
  if (before + 1 == all) judge(g, call->ticket, error);
  else if (!await(g, &g->opened, call->ticket + 1, DEPARTED, call->waiter)) {
    if (!abort_code(abort))
      comm_fail_departed(&comm->base, call, find_departed(g, call->ticket)); // before LEFT tells others to look why
    if ((atomic_fetch_or(&g->arrived, LEFT) & ~LEFT) < all) return abort_code(abort);
    await(g, &g->opened, call->ticket + 1, DONE, call->waiter);
  }
  return g->verdict;
}

// The rank that found the mismatch is about to fail the world; whoever returns an error can already read why.
static int await_abort(LocalGroup *g) {
  monitor_lock(&g->monitor);
  while (!abort_code(&g->world->abort)) monitor_wait(&g->monitor, NULL);
  monitor_unlock(&g->monitor);
  return abort_code(&g->world->abort);
}

static int collective(LocalComm *comm, const CommCall *call) {
  LocalGroup *g = comm->group;
  Error error = {0};
  int code = arrive(comm, call, &error);
  if (code == PLAIT_OK && !g->done_by_last) {
    uint64_t all = (uint64_t)g->n * (call->ticket + 1);
    share_run(g->calls, g->n, comm->base.rank);
    if (atomic_fetch_add(&g->finished, 1) + 1 == all) wake(g);
    else await(g, &g->finished, all, DONE, call->waiter); // nobody returns while another still uses its memory
  }
  atomic_store(&comm->finished, call->ticket + 1);
  if (atomic_load(&comm->issued) != call->ticket + 1) wake(g); // a later call of this rank may wait for its turn
  if (error.code) return abort_all(&g->world->abort, &error);
  return code < 0 ? await_abort(g) : code;
}

// Legal while others still finish this rank's last call. Who waits for a call that it has not made learns that it never
// will: it sees `departures` before it sleeps, or is woken by what follows.
static void local_comm_destroy(PlaitComm *base) {
  LocalComm *comm = (LocalComm *)base;
  LocalGroup *g = comm->group;
  LocalWorld *world = (LocalWorld *)g->world;
  atomic_store(&g->left[base->rank], atomic_load(&comm->issued) + 1);
  atomic_fetch_add(&g->departures, 1);
  wake(g);
  local_message_leave(comm);
  if (atomic_fetch_sub(&world->handles[g->ranks[base->rank]], 1) == 1) {
    monitor_lock(&world->creation);
    monitor_notify_all(&world->creation);
    monitor_unlock(&world->creation);
  }
  free(base);
  if (atomic_fetch_sub(&g->handles, 1) == 1) group_free(g);
}

static int local_run(PlaitComm *base, const CommCall *call) {
  LocalComm *comm = (LocalComm *)base;
  if (call->kind == COMM_SEND) return local_message_send(comm, call);
  if (call->kind == COMM_RECV) return local_message_receive(comm, call);
  return collective(comm, call);
}

static void local_issue(PlaitComm *base, CommCall *call, PlaitEvent *sent) {
  LocalComm *comm = (LocalComm *)base;
  if (call->kind == COMM_SEND || call->kind == COMM_RECV) {
    local_message_issue(comm, call, sent);
    return;
  }
  call->ticket = atomic_fetch_add(&comm->issued, 1);
}

static const CommBackend local_backend = {
    .name = "local",
    .world_destroy = local_world_destroy,
    .comm_world = local_comm_world,
    .comm_create = local_comm_create,
    .comm_destroy = local_comm_destroy,
    .reserve_messages = local_message_reserve,
    .issue = local_issue,
    .run = local_run,
};

int plait_world_local_create(int ranks, PlaitWorld **result, PlaitError *error) {
  *result = NULL;
  if (ranks < 1 || ranks > LOCAL_MOST_RANKS)
    return error_set(error, PLAIT_BAD_INPUT, "a world of %d ranks: allowed are 1 to %d", ranks, LOCAL_MOST_RANKS);
  LocalWorld *world = xcalloc(1, sizeof *world);
  world_init(&world->base, &local_backend, ranks, ranks, -1);
  monitor_init(&world->creation, &world->base.abort);
  world->pending = xcalloc((size_t)ranks, sizeof *world->pending);
  world->taken = xcalloc((size_t)ranks, 1);
  world->handles = xcalloc((size_t)ranks, sizeof *world->handles);
  world->everyone = group_create(&world->base, NULL, ranks);
  atomic_store(&world->everyone->handles, 1); // the world's own
  *result = &world->base;
  return PLAIT_OK;
}
