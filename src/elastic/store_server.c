// The server of a store: answers requests that come by connections of net/server.h.
#include "base/clock.h"
#include "elastic/store_protocol.h"
#include "elastic/store_table.h"
#include "net/server.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Of replies to one client that wait to be sent: the largest.
enum { MOST_OUT = sizeof(StoreReply) + STORE_VALUE };
static const double greeting_seconds = 5, longest_wait = 3600, dropped_seconds = 0.3;

// Of a connection that has greeted.
typedef struct Client {
  char key[STORE_KEY + 1]; // of a WAIT, while the connection pauses
  uint64_t version;
  double wait_until;
  uint64_t lease;          // that it has made or renewed last
} Client;

struct StoreServer {
  int listener;
  uint64_t job;
  StoreTable *table;
  Secret secret;
  Server *server;
};

static void reply(const StoreServer *s, Connection *c, const char *key, uint32_t done, uint64_t lease) {
  const StoreValue *v = key ? store_table_get(s->table, key) : NULL;
  StoreReply head = {done, v ? (uint32_t)v->bytes : 0, v ? v->version : 0, lease};
  connection_send(c, &head, sizeof head);
  if (v) connection_send(c, v->data, v->bytes);
}

static void answer(StoreServer *s, Connection *c, const StoreRequest *r, const char *key, const uint8_t *value) {
  double now = clock_seconds(), seconds = fmin(fmax(r->seconds, 0), longest_wait); // a NaN is 0
  Client *client = c->own;
  if (r->call == STORE_GET) reply(s, c, key, 1, 0);
  else if (r->call == STORE_SET)
    reply(s, c, key, (uint32_t)store_table_set(s->table, key, r->version, value, r->value_bytes, r->lease), 0);
  else if (r->call == STORE_LEASE)
    reply(s, c, NULL, 1, client->lease = store_table_lease(s->table, r->lease, now + seconds));
  else {
    memcpy(client->key, key, strlen(key) + 1);
    client->version = r->version;
    client->wait_until = now + seconds;
    connection_pause(c, true);
  }
}

// Who is not of this job is told this side's greeting all the same.
static int64_t greet(const StoreServer *s, Connection *c, const uint8_t *data, size_t bytes) {
  StoreGreeting mine = STORE_GREETING(s->job);
  store_take_greeting(data, bytes, s->job, &c->proven);
  connection_send(c, &mine, sizeof mine);
  if (!c->proven) return connection_finish(c, SERVER_MALFORMED), 0;
  c->own = xcalloc(1, sizeof(Client));
  c->head = sizeof(StoreRequest);
  return 0;
}

static int64_t take(void *context, Connection *c, const uint8_t *data, size_t bytes) {
  StoreRequest r;
  char key[STORE_KEY + 1];
  const uint8_t *value;
  if (!c->proven) return greet(context, c, data, bytes);
  int whole = store_take_request(data, bytes, &r, key, &value);
  if (whole == 0) return (int64_t)(sizeof r + r.key_bytes + r.value_bytes - bytes);
  if (whole > 0) answer(context, c, &r, key, value);
  return whole > 0 ? 0 : -1;
}

// After all requests, so that whoever waits learns of them at once: leases that lapse, waits that are over.
static double pass(void *context, double now) {
  StoreServer *s = context;
  double next = INFINITY;
  store_table_lapse(s->table, now);
  for (Connection *c = server_first(s->server); c; c = c->next) {
    const Client *client = c->own;
    if (!c->pauses || c->over) continue;
    const StoreValue *v = store_table_get(s->table, client->key);
    uint64_t version = v ? v->version : 0;
    if (version == client->version && now < client->wait_until) {
      next = fmin(next, client->wait_until);
      continue;
    }
    reply(s, c, client->key, version != client->version, 0);
    connection_pause(c, false);
  }
  return fmin(next, store_table_next_lapse(s->table));
}

// A process that dies closes its connections: its lease need not run out. One that lives connects again, and renews it.
static void leave(void *context, Connection *c) {
  StoreServer *s = context;
  const Client *client = c->own;
  if (client && client->lease) store_table_lease(s->table, client->lease, clock_seconds() + dropped_seconds);
  free(c->own);
}

static void tell(void *context, const char *sentence) { fprintf(stderr, "plait launch: %s\n", sentence); }

int store_server_start(const NetAddress *address, uint64_t job, StoreServer **server, Error *error) {
  NetAddress at = *address;
  StoreServer *s = xcalloc(1, sizeof *s);
  char where[80], name[100];
  bool given;
  net_describe(&at, where, sizeof where);
  snprintf(name, sizeof name, "the store at %s", where);
  *s = (StoreServer){.listener = net_listen(&at), .job = job, .table = store_table_create()};
  int code = secret_of_environment(&s->secret, &given, error);
  if (!code && s->listener < 0)
    code = error_set(error, PLAIT_FAILED, "the store cannot listen at %s: %s", where, strerror(-s->listener));
  const ServerOptions options = {.name = name, .listener = s->listener, .secret = given ? &s->secret : NULL,
                                 .meeting_seconds = greeting_seconds, .proof_seconds = greeting_seconds,
                                 .head = sizeof(StoreGreeting), .most_out = MOST_OUT, .context = s, .take = take,
                                 .pass = pass, .leave = leave, .tell = tell};
  if (!code) code = server_open(&options, &s->server, error);
  if (!code) code = server_start(s->server, error, "the store's thread");
  if (code) store_server_stop(s);
  *server = code ? NULL : s;
  return code;
}

void store_server_stop(StoreServer *s) {
  if (!s) return;
  server_close(s->server);
  store_table_destroy(s->table);
  if (s->listener >= 0) close(s->listener);
  free(s);
}
