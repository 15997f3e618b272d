// Worlds of processes in one process, over a wire in memory. A send is copied at once.
#include "wire_in_memory.h"
#include "comm/process.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct HubMessage {
  struct HubMessage *next;
  uint64_t context;
  int from, tag; // from -1: any
  size_t bytes, n;
  char *data;    // of a send
  WirePiece *pieces; // (n) of a receive
  int done;
} HubMessage;

typedef struct Hub Hub;
typedef struct HubWorld { ProcessWorld base; Hub *hub; } HubWorld;
struct Hub {
  pthread_mutex_t lock;
  int ranks, machine; // machine: ranks of each one; 0: there is one
  HubWorld **world;                // (ranks)
  HubMessage **sent, **expected;   // (ranks) by receiver, the oldest first
};

static Hub *hub_create(int ranks, int machine) {
  Hub *hub = xcalloc(1, sizeof *hub);
  pthread_mutex_init(&hub->lock, NULL);
  hub->ranks = ranks;
  hub->machine = machine;
  hub->world = xcalloc((size_t)ranks, sizeof(HubWorld *));
  hub->sent = xcalloc((size_t)ranks, sizeof(HubMessage *));
  hub->expected = xcalloc((size_t)ranks, sizeof(HubMessage *));
  return hub;
}

static void hub_message_free(HubMessage *m) {
  free(m->data);
  free(m->pieces);
  free(m);
}

static void hub_destroy(Hub *hub) {
  for (int r = 0; r < hub->ranks; r++)
    for (HubMessage *m = hub->sent[r], *next; m; m = next) { // nobody has wanted these
      next = m->next;
      hub_message_free(m);
    }
  pthread_mutex_destroy(&hub->lock);
  free(hub->world);
  free(hub->sent);
  free(hub->expected);
  free(hub);
}

static void hub_append(HubMessage **list, HubMessage *m) {
  while (*list) list = &(*list)->next;
  *list = m;
}

static HubMessage *hub_take(HubMessage **list, uint64_t context, int from, int tag) {
  for (HubMessage *m; (m = *list); list = &m->next)
    if (m->context == context && m->tag == tag && (m->from == from || m->from < 0 || from < 0)) {
      *list = m->next;
      return m;
    }
  return NULL;
}

static void hub_deliver(const char *data, size_t bytes, const WirePiece *pieces, size_t n, size_t room) {
  CHECK(bytes == room, "a message of %zu bytes where %zu are expected", bytes, room);
  for (size_t i = 0; i < n; data += pieces[i++].bytes) memcpy(pieces[i].data, data, pieces[i].bytes);
}

static char *hub_pack(const WirePiece *pieces, size_t n, size_t bytes) {
  char *data = xcalloc(bytes + 1, 1), *to = data;
  for (size_t i = 0; i < n; to += pieces[i++].bytes) memcpy(to, pieces[i].data, pieces[i].bytes);
  return data;
}

static int hub_post(ProcessWorld *base, WireKind kind, const WirePeer *peer, const WirePiece *pieces, size_t n,
                           WireRequest *request) {
  Hub *hub = ((HubWorld *)base)->hub;
  size_t bytes = 0;
  for (size_t i = 0; i < n; i++) bytes += pieces[i].bytes;
  HubMessage *m = xcalloc(1, sizeof *m), *other;
  *m = (HubMessage){.context = peer->context.handle, .tag = peer->tag, .bytes = bytes, .n = n};
  *request = (WireRequest){0};
  pthread_mutex_lock(&hub->lock);
  if (kind == WIRE_RECEIVE) {
    m->from = peer->world;
    if ((other = hub_take(&hub->sent[base->rank], m->context, m->from, m->tag))) {
      hub_deliver(other->data, other->bytes, pieces, n, bytes);
      hub_message_free(other), hub_message_free(m);
    } else {
      m->pieces = xcalloc(n + 1, sizeof *m->pieces);
      memcpy(m->pieces, pieces, n * sizeof *pieces);
      hub_append(&hub->expected[base->rank], m);
      *request = (WireRequest){(uint64_t)(uintptr_t)m, 1, 1};
    }
  } else {
    m->from = base->rank;
    m->data = hub_pack(pieces, n, bytes);
    if ((other = hub_take(&hub->expected[peer->world], m->context, m->from, m->tag))) {
      hub_deliver(m->data, bytes, other->pieces, other->n, other->bytes);
      other->done = 1;
      hub_message_free(m);
    } else {
      hub_append(&hub->sent[peer->world], m);
    }
  }
  pthread_mutex_unlock(&hub->lock);
  return 0;
}

static int hub_test(ProcessWorld *base, WireRequest *request, int *done) {
  Hub *hub = ((HubWorld *)base)->hub;
  HubMessage *m = (HubMessage *)(uintptr_t)request->handle;
  *done = 1;
  if (!request->pending) return 0;
  pthread_mutex_lock(&hub->lock);
  *done = m->done;
  pthread_mutex_unlock(&hub->lock);
  if (!*done) return 0;
  hub_message_free(m);
  *request = (WireRequest){0};
  return 0;
}

static void hub_forget(ProcessWorld *base, WireRequest *request) {
  Hub *hub = ((HubWorld *)base)->hub;
  HubMessage *m = (HubMessage *)(uintptr_t)request->handle, **list = &hub->expected[base->rank];
  pthread_mutex_lock(&hub->lock);
  while (*list && *list != m) list = &(*list)->next;
  if (*list) *list = m->next;
  pthread_mutex_unlock(&hub->lock);
  hub_message_free(m);
  *request = (WireRequest){0};
}

enum { HUB_EVERYONE = 1, HUB_CONTROL = 2 };
static int hub_context_create(ProcessWorld *world, const int *ranks, int n, uint64_t id, WireContext *context) {
  (void)world, (void)ranks, (void)n;
  context->handle = id << 2 | 3;
  return 0;
}
static void hub_context_free(ProcessWorld *world, WireContext *context) { (void)world, (void)context; }

static ErrorRank hub_explain(ProcessWorld *world, int status, char *text, size_t size) {
  snprintf(text, size, "status %d", status);
  return error_rank(world->rank, world->host);
}

// Without their locks: the others see it when they look next.
static void hub_notify(ProcessWorld *base) {
  Hub *hub = ((HubWorld *)base)->hub;
  for (int r = 0; r < hub->ranks; r++) {
    Notice notice = {.error = base->base.abort.error};
    if (r != base->rank && hub->world[r]) process_noticed(&hub->world[r]->base, &notice);
  }
}

static void hub_world_destroy(ProcessWorld *base) {
  heartbeats_forget(base);
  departures_forget(base);
  process_world_free(base);
  free(base);
}

static void hub_end(ProcessWorld *world, int status, const Error *error) {
  (void)world;
  CHECK(0, "%s (status %d)", error->message, status);
}

// The world of one rank; all ranks make theirs before any of them uses it.
static PlaitWorld *hub_world(Hub *hub, int rank) {
  static const Wire wire = {.name = "memory",
                            .post = hub_post,
                            .test = hub_test,
                            .forget = hub_forget,
                            .context_create = hub_context_create,
                            .context_free = hub_context_free,
                            .explain = hub_explain,
                            .notify = hub_notify,
                            .leave = process_leave_together,
                            .world_destroy = hub_world_destroy,
                            .end = hub_end};
  HubWorld *w = hub->world[rank] = xcalloc(1, sizeof *w);
  w->hub = hub;
  process_world_init(&w->base, &wire, rank, hub->ranks, hub->machine ? hub->machine : hub->ranks);
  w->base.everyone.handle = HUB_EVERYONE;
  w->base.control.handle = HUB_CONTROL;
  w->base.tickets = INT_MAX / 2;
  if (hub->machine) w->base.machines = xcalloc((size_t)hub->ranks, sizeof *w->base.machines);
  for (int r = 0; r < hub->ranks && hub->machine; r++) w->base.machines[r] = r / hub->machine;
  Error error = {0};
  CHECK(!process_world_start(&w->base, &error), "%s", error.message);
  return &w->base.base;
}

typedef struct HubThread {
  pthread_t thread;
  PlaitWorld *world;
  HubFunction function;
  void *context;
  int rank;
} HubThread;

static void *hub_thread(void *argument) {
  HubThread *t = argument;
  Error error = {0};
  PlaitComm *comm;
  CHECK(!plait_comm_world(t->world, t->rank, &comm, &error), "%s", error.message);
  t->function(comm, t->rank, t->context);
  plait_comm_destroy(comm);
  plait_world_destroy(t->world);
  return NULL;
}

void hub_run(int ranks, int machine, HubFunction function, void *context) {
  Hub *hub = hub_create(ranks, machine);
  HubThread *t = xcalloc((size_t)ranks, sizeof *t);
  for (int r = 0; r < ranks; r++)
    t[r] = (HubThread){.world = hub_world(hub, r), .function = function, .context = context, .rank = r};
  for (int r = 0; r < ranks; r++) CHECK(!pthread_create(&t[r].thread, NULL, hub_thread, &t[r]));
  for (int r = 0; r < ranks; r++) pthread_join(t[r].thread, NULL);
  hub_destroy(hub);
  free(t);
}
