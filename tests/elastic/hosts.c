#include "hosts.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { STACK = 1 << 18 };
static const double call_seconds = 0.001, dropped_seconds = 0.3;

// Time ----------------------------------------------------------------------------------------------------------------

static Life *earliest(Hosts *h) {
  Life *first = &h->test;
  for (Life *l = h->lives; l; l = l->next)
    if (l->runs && !l->killed && !l->host->stopped && l->now <= first->now) first = l;
  return first;
}

static void give_turn(Hosts *h, Life *to) {
  Life *me = h->turn;
  h->turn = to;
  if (to != me) swapcontext(&me->context, &to->context);
}

static void pass(Hosts *h, Life *me, double seconds) {
  if (h->over) return; // each runs to its end
  me->now += seconds;
  give_turn(h, earliest(h));
}

void hosts_pass(Hosts *h, double seconds) { pass(h, &h->test, seconds); }

// Stores --------------------------------------------------------------------------------------------------------------

typedef struct Connection {
  Store base;
  Life *from;
  Host *to;
  int served;    // of the host's stores
  uint64_t lease;
  bool lost;
  struct Connection *next;
} Connection;

static bool reaches(const Host *from, const Host *to) {
  return from == to || (!from->cut && !to->cut && from->half == to->half && !to->stopped);
}

static bool is_served(const Connection *c) { return c->to->table && c->to->served == c->served; }

static int lost(Connection *c, Error *error) {
  c->lost = true;
  return error_set(error, PLAIT_FAILED, "the store at port %d does not answer", c->to->number + 1);
}

// A call reaches the store.
static int reach(Connection *c, Error *error) {
  Hosts *h = c->to->hosts;
  pass(h, c->from, call_seconds);
  if (h->over || c->lost) return lost(c, error);
  if (!reaches(c->from->host, c->to)) {
    pass(h, c->from, c->base.patience);
    return lost(c, error);
  }
  if (!is_served(c)) return lost(c, error);
  store_table_lapse(c->to->table, c->from->now);
  return PLAIT_OK;
}

static int get(Store *store, const char *key, StoreValue *now, Error *error) {
  Connection *c = (Connection *)store;
  int code = reach(c, error);
  if (!code) store_table_copy(c->to->table, key, now);
  return code;
}

static int compare_and_set(Store *store, const char *key, uint64_t version, const void *data, size_t bytes,
                           uint64_t lease, bool *done, StoreValue *now, Error *error) {
  Connection *c = (Connection *)store;
  int code = reach(c, error);
  if (code) return code;
  *done = store_table_set(c->to->table, key, version, data, bytes, lease);
  store_table_copy(c->to->table, key, now);
  return PLAIT_OK;
}

static int await(Store *store, const char *key, uint64_t version, double seconds, StoreValue *now, Error *error) {
  Connection *c = (Connection *)store;
  int code = reach(c, error);
  if (code) return code;
  const StoreValue *v = store_table_get(c->to->table, key);
  if ((v ? v->version : 0) == version) pass(c->to->hosts, c->from, seconds);
  return get(store, key, now, error);
}

static int lease(Store *store, uint64_t *id, double seconds, Error *error) {
  Connection *c = (Connection *)store;
  int code = reach(c, error);
  if (!code) c->lease = *id = store_table_lease(c->to->table, *id, c->from->now + seconds);
  return code;
}

static void own_address(const Store *store, char *text, size_t size) { snprintf(text, size, "127.0.0.1"); }

// The server sees the end of a connection that reaches it.
static void disconnect(Connection *c) {
  if (c->lease && is_served(c) && reaches(c->from->host, c->to))
    store_table_lease(c->to->table, c->lease, c->to->hosts->test.now + dropped_seconds);
  c->lost = true;
}

static void close_connection(Store *store) {
  Connection *c = (Connection *)store, **link = &c->to->hosts->connections;
  disconnect(c);
  while (*link != c) link = &(*link)->next;
  *link = c->next;
  free(c);
}

// The network ---------------------------------------------------------------------------------------------------------

static Hosts *hosts_of(StoreNetwork *n) { return ((Life *)n)->host->hosts; }
static double now_of(StoreNetwork *n) { return ((Life *)n)->now; }
static void rest(StoreNetwork *n, double seconds) { pass(hosts_of(n), (Life *)n, seconds); }

static int connect_to(StoreNetwork *n, const NetAddress *at, const char *id, double seconds, Store **store,
                      bool *refused, Error *error) {
  Life *me = (Life *)n;
  Hosts *h = hosts_of(n);
  if (refused) *refused = false;
  pass(h, me, call_seconds);
  Host *to = &h->host[net_port(at) - 1];
  if (h->over) return 0;
  if (!reaches(me->host, to) || to->foreign) return pass(h, me, seconds), 0;
  if (refused) *refused = !to->table;
  if (!to->table) return 0;
  Connection *c = xcalloc(1, sizeof *c);
  *c = (Connection){{get, compare_and_set, await, lease, own_address, close_connection, 10}, me, to, to->served, 0,
                    false, h->connections};
  h->connections = c;
  *store = &c->base;
  return 1;
}

static int try_to_listen(StoreNetwork *n, const NetAddress *at) {
  const Host *host = ((Life *)n)->host;
  if (hosts_of(n)->over || net_port(at) != host->number + 1) return -EADDRNOTAVAIL;
  return host->foreign || host->table ? -EADDRINUSE : 0;
}

typedef struct Serving { Host *host; int served; } Serving;

static int serve(StoreNetwork *n, const NetAddress *at, const char *id, bool insecure, StoreServer **server,
                 Error *error) {
  Host *host = ((Life *)n)->host;
  if (try_to_listen(n, at)) return error_set(error, PLAIT_FAILED, "the store cannot listen");
  Serving *s = xcalloc(1, sizeof *s);
  host->table = store_table_create();
  *s = (Serving){host, ++host->served};
  *server = (StoreServer *)s;
  return PLAIT_OK;
}

void hosts_end_store(Hosts *h, int i) {
  store_table_destroy(h->host[i].table);
  h->host[i].table = NULL;
}

static void stop(StoreNetwork *n, StoreServer *server) {
  Serving *s = (Serving *)server;
  if (s && s->host->table && s->host->served == s->served) hosts_end_store(hosts_of(n), s->host->number);
  free(s);
}

static const StoreNetwork network = {now_of, rest, connect_to, try_to_listen, serve, stop};

// Machines ------------------------------------------------------------------------------------------------------------

static void ends_work(Life *l, bool tells) {
  l->working = false;
  if (tells) member_ended(l->member, &(JobRoundEnd){.round = l->begun, .failure = l->fails});
  member_set_busy(l->member, false);
}

// Of a round all see the same machines, and of the job the same start.
static void compare(Hosts *h, const JobState *s) {
  char text[JOB_ID * HOSTS + 40] = "";
  if (s->phase != JOB_RUNS || s->round >= HOSTS_ROUNDS) return;
  for (int i = 0; i < s->count; i++)
    if (s->machine[i].ranks) strcat(strcat(text, s->machine[i].id), " ");
  if (!h->round[s->round]) h->round[s->round] = xstrdup(text);
  if (!*h->job) memcpy(h->job, s->job, sizeof h->job);
  if (strcmp(h->round[s->round], text) || strcmp(h->job, s->job))
    fprintf(stderr, "round %d of %s: %s and %s of %s\n", s->round, h->job, h->round[s->round], text, s->job), abort();
}

// As a supervisor does with the news of its member (supervisor.c); its workers end as soon as they are asked to.
static void supervise(Life *l) {
  char why[300];
  Machine *here;
  free(l->state);
  l->code = member_look(l->member, &l->state, &here, &l->error);
  l->here = here != NULL;
  const JobState *s = l->state;
  if (!s) return;
  compare(l->host->hosts, s);
  bool waits = member_waits(l->member, why, sizeof why);
  if (!waits) l->cut_off_at = 0;
  else if (!l->cut_off_at) l->cut_off_at = l->now;
  if (l->working && waits && l->now - l->cut_off_at > 3 * l->options.silence) {
    if (s->round == l->begun) member_failing(l->member, l->begun);
    ends_work(l, s->round == l->begun);
  } else if (l->working && (!here || !here->ranks || s->round != l->begun || s->phase == JOB_DONE)) ends_work(l, false);
  else if (l->working && s->phase == JOB_ENDS) ends_work(l, true);
  else if (!l->working && here && here->ranks && s->round > l->begun) {
    l->begun = s->round;
    l->fails = (JobFailure){0};
    l->working = s->phase == JOB_RUNS;
    member_set_busy(l->member, l->working);
    if (!l->working) ends_work(l, true);
  }
}

static Life *begins; // makecontext's function takes no pointers

static void live(void) {
  Life *l = begins;
  Hosts *h = l->host->hosts;
  give_turn(h, &h->test);
  for (double seconds; !h->over && member_turn(l->member, &seconds);) {
    supervise(l);
    pass(h, l, seconds);
  }
  l->runs = false;
  give_turn(h, h->over ? &h->test : earliest(h));
}

MemberOptions hosts_options(const char *endpoints, const char *folder, int least) {
  return (MemberOptions){.endpoints = endpoints, .id = "job", .silence = 5, .patience = 300, .folder = folder,
                         .limits = {.least = least, .most = HOSTS, .unit = 1}, .recipe = "r", .nproc = 1,
                         .node_rank = -1};
}

Life *hosts_start(Hosts *h, int i, const MemberOptions *options) {
  Life *l = h->host[i].life = xcalloc(1, sizeof *l);
  *l = (Life){.network = network, .host = &h->host[i],
              .next = h->lives, .now = h->test.now, .runs = true, .options = *options, .begun = -1};
  l->member = member_make(&l->options, &l->network);
  h->lives = l;
  l->stack = xcalloc(1, STACK);
  getcontext(&l->context);
  l->context.uc_stack.ss_sp = l->stack;
  l->context.uc_stack.ss_size = STACK;
  makecontext(&l->context, live, 0);
  begins = l;
  give_turn(h, l); // up to its beginning
  return l;
}

void hosts_kill(Hosts *h, int i) {
  for (Connection *c = h->connections; c; c = c->next)
    if (c->from == h->host[i].life) disconnect(c);
  if (h->host[i].life) h->host[i].life->killed = true;
  h->host[i].life = NULL;
  hosts_end_store(h, i);
}

void hosts_stop(Hosts *h, int i, bool stopped) {
  Life *l = h->host[i].life;
  h->host[i].stopped = stopped;
  if (l && !stopped) l->now = fmax(l->now, h->test.now);
}

void hosts_fail(Hosts *h, int i, int weight, bool blames) {
  Life *l = h->host[i].life;
  if (!l || !l->working) return;
  l->fails = (JobFailure){.round = l->begun, .weight = weight, .rank = i, .status = 100 + i,
                          .blamed = blames ? (i + 1) % HOSTS : -1};
  snprintf(l->fails.machine, sizeof l->fails.machine, "%s", member_id(l->member));
  member_failing(l->member, l->begun);
}

void hosts_heal(Hosts *h) {
  for (int i = 0; i < HOSTS; i++) h->host[i].cut = false, h->host[i].half = 0;
}

// The test ------------------------------------------------------------------------------------------------------------

void hosts_begin(Hosts *h) {
  *h = (Hosts){.test = {.now = 1000}, .turn = &h->test};
  for (int i = 0; i < HOSTS; i++) h->host[i] = (Host){.hosts = h, .number = i};
  h->test.network = network;
  h->test.host = &h->host[HOSTS - 1];
}

void hosts_end(Hosts *h) {
  h->over = true;
  for (Life *l = h->lives, *next; l; l = next) {
    next = l->next;
    while (l->runs) give_turn(h, l);
    member_close(l->member);
    free(l->stack);
    free(l->state);
    free(l);
  }
  for (int i = 0; i < HOSTS; i++) hosts_end_store(h, i);
  for (int r = 0; r < HOSTS_ROUNDS; r++) free(h->round[r]);
}

void hosts_serve(Hosts *h, int i, const char *epoch, const char *state) {
  Host *host = &h->host[i];
  host->table = store_table_create();
  host->served++;
  store_table_set(host->table, "epoch", 0, epoch, strlen(epoch), 0);
  store_table_set(host->table, "state", 0, state, strlen(state), 0);
}

const char *hosts_value(Hosts *h, int i, const char *key) {
  const StoreValue *v = h->host[i].table ? store_table_get(h->host[i].table, key) : NULL;
  return v ? v->data : NULL;
}

int hosts_server(const Hosts *h) {
  for (int i = 0; i < HOSTS; i++)
    if (h->host[i].table) return i;
  return -1;
}
