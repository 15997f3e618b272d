// The client of a store that a supervisor serves, and finding or becoming that one.
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/fault.h"
#include "base/hash.h"
#include "net/channel.h"
#include "net/socket.h"
#include "elastic/store_protocol.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double usual_patience = 10, retry_seconds = 0.05, usual_greeting = 2;

typedef struct Client { Store base; Channel *channel; char where[80]; } Client; // channel NULL: lost

uint64_t store_job(const char *id) { return hash_text(id); }

// A call that fails half way leaves bytes that nobody reads: all later ones fail, too.
static int lost(Client *c, const char *how, Error *error) {
  channel_close(c->channel);
  c->channel = NULL;
  return error_set(error, PLAIT_FAILED, "the store at %s %s", c->where, how);
}

static int call(Store *store, StoreRequest r, const char *key, const void *data, StoreReply *reply, StoreValue *now,
                Error *error) {
  static const char silent[] = "does not answer";
  Client *c = (Client *)store;
  double until = clock_seconds() + store->patience + r.seconds * (r.call == STORE_WAIT);
  r.key_bytes = (uint32_t)strlen(key);
  if (r.key_bytes > STORE_KEY || r.value_bytes > STORE_VALUE)
    return error_set(error, PLAIT_BAD_INPUT, "the store takes keys of %d and values of %d bytes at most", STORE_KEY,
                     STORE_VALUE);
  if (!c->channel || !channel_write(c->channel, &r, sizeof r, until) ||
      !channel_write(c->channel, key, r.key_bytes, until) || !channel_write(c->channel, data, r.value_bytes, until) ||
      !channel_read(c->channel, reply, sizeof *reply, until))
    return lost(c, silent, error);
  if (!store_reply_is_valid(reply)) return lost(c, "has sent what is not a reply, so the connection was closed", error);
  StoreValue value = {reply->version ? xcalloc(reply->value_bytes + 1, 1) : NULL, reply->value_bytes, reply->version};
  if (value.data && !channel_read(c->channel, value.data, value.bytes, until))
    return free(value.data), lost(c, silent, error);
  if (now) *now = value;
  else store_value_free(&value);
  return PLAIT_OK;
}

static int get(Store *s, const char *key, StoreValue *now, Error *error) {
  StoreReply reply;
  return call(s, (StoreRequest){.call = STORE_GET}, key, NULL, &reply, now, error);
}

static int compare_and_set(Store *s, const char *key, uint64_t version, const void *data, size_t bytes, uint64_t lease,
                           bool *done, StoreValue *now, Error *error) {
  StoreReply reply;
  StoreRequest r = {.call = STORE_SET, .version = version, .lease = lease,
                    .value_bytes = bytes > STORE_VALUE ? STORE_VALUE + 1 : (uint32_t)bytes};
  int code = call(s, r, key, data, &reply, now, error);
  if (!code) *done = reply.done;
  return code;
}

static int wait_for(Store *s, const char *key, uint64_t version, double seconds, StoreValue *now, Error *error) {
  StoreReply reply;
  return call(s, (StoreRequest){.call = STORE_WAIT, .version = version, .seconds = seconds}, key, NULL, &reply, now,
              error);
}

static int renew(Store *s, uint64_t *lease, double seconds, Error *error) {
  StoreReply reply;
  int code = call(s, (StoreRequest){.call = STORE_LEASE, .lease = *lease, .seconds = seconds}, "", NULL, &reply, NULL,
                  error);
  if (!code) *lease = reply.lease;
  return code;
}

static void close_client(Store *s) {
  Client *c = (Client *)s;
  channel_close(c->channel);
  free(c);
}

// Finding it ---------------------------------------------------------------------------------------------------------

// 1: connected; 0: nobody answers; PLAIT_BAD_INPUT: somebody else does.
static int greet(const NetAddress *at, uint64_t job, const char *id, double seconds, Channel **channel, bool *refused,
                 Error *error) {
  StoreGreeting mine = STORE_GREETING(job), theirs;
  double until = clock_seconds() + seconds;
  char text[80];
  Secret secret;
  bool given;
  net_describe(at, text, sizeof text);
  int code = secret_of_environment(&secret, &given, error), fd = code ? -1 : net_connect(at, until);
  if (refused) *refused = fd == -ECONNREFUSED;
  if (fd < 0) return code;
  *channel = channel_open(fd, false, given ? &secret : NULL);
  if (!*channel) return 0;
  int met = channel_meet(*channel, until);
  bool is_refused = !met && errno == FAULT(lost_connections_lack_the_secret, EPROTO, ECONNRESET);
  if (met && channel_write(*channel, &mine, sizeof mine, until) &&
      channel_read(*channel, &theirs, sizeof theirs, until)) {
    StoreAnswerer who = store_who_answers(&mine, &theirs);
    if (who == STORE_OURS) return 1;
    channel_close(*channel);
    if (who == STORE_NOT_PLAIT)
      return error_set(error, PLAIT_BAD_INPUT, "--rdzv: what listens at %s is not plait launch; choose another port",
                       text);
    if (who == STORE_OTHER_VERSION)
      return error_set(error, PLAIT_BAD_INPUT, "--rdzv: at %s is another version of plait", text);
    return error_set(error, PLAIT_BAD_INPUT, "--rdzv: at %s is another job than --rdzv-id %.60s; give another port",
                     text, id);
  }
  channel_close(*channel);
  if (!is_refused) return 0;
  return error_set(error, PLAIT_BAD_INPUT, "--rdzv: what listens at %s does not have the secret of %s", text,
                   getenv("PLAIT_SECRET"));
}

static int read_endpoint(const char *list, int i, Endpoint *e, NetAddress *at, Error *error) {
  for (; i > 0; i--) {
    list += strcspn(list, ",");
    if (!*list++) return 0;
  }
  size_t length = strcspn(list, ",");
  if (!endpoint_parse(list, length, true, e))
    return error_set(error, PLAIT_BAD_INPUT, "--rdzv: \"%.*s\" is not HOST:PORT, as in hostA:29400 or [fd00::1]:29400",
                     (int)(length < 100 ? length : 100), list);
  return net_resolve(e->host, e->port, at, error) ? error_prefix(error, "--rdzv") : 1;
}

int store_endpoint(const char *list, int i, NetAddress *at, Error *error) {
  Endpoint e;
  return read_endpoint(list, i, &e, at, error);
}

int store_check_endpoint(const char *list, int i, Error *error) {
  Endpoint e;
  NetAddress at;
  int found = read_endpoint(list, i, &e, &at, error);
  return found > 0 && net_check_name(e.host, &at, error) ? error_prefix(error, "--rdzv") : found;
}

static void own_address(const Store *store, char *text, size_t size) {
  NetAddress own = {.length = sizeof own.storage};
  snprintf(text, size, "127.0.0.1");
  const Client *c = (const Client *)store;
  if (!c->channel || getsockname(channel_fd(c->channel), (struct sockaddr *)&own.storage, &own.length)) return;
  net_describe_host(&own, text, size);
}

static Store *make_client(Channel *channel, const NetAddress *at) {
  Client *c = xcalloc(1, sizeof *c);
  *c = (Client){{get, compare_and_set, wait_for, renew, own_address, close_client, usual_patience}, channel, ""};
  net_describe(at, c->where, sizeof c->where);
  return &c->base;
}

int store_connect(const NetAddress *at, const char *id, double seconds, Store **store, bool *refused, Error *error) {
  Channel *channel = NULL;
  int found = greet(at, store_job(id), id, seconds, &channel, refused, error);
  if (found > 0) *store = make_client(channel, at);
  return found;
}

int store_check_address(const NetAddress *at, bool insecure, Error *error) {
  char text[80];
  if (insecure || secret_lets_listen() || net_is_loopback(at)) return PLAIT_OK;
  net_describe(at, text, sizeof text);
  return error_set(error, PLAIT_BAD_INPUT,
                   "--rdzv: the store at %s would be where others could reach it, and what goes through it is neither "
                   "encrypted nor authenticated; give --secret, or in a network that you trust --insecure",
                   text);
}

int store_serve(const NetAddress *at, const char *id, bool insecure, StoreServer **server, Error *error) {
  int code = store_server_start(at, store_job(id), server, error);
  if (code || insecure || secret_lets_listen() || net_is_loopback(at)) return code;
  store_server_stop(*server);
  *server = NULL;
  return store_check_address(at, insecure, error);
}

static double network_now(StoreNetwork *network) { return clock_seconds(); }
static void network_rest(StoreNetwork *network, double seconds) { poll(NULL, 0, (int)(1000 * seconds)); }

static int network_connect(StoreNetwork *network, const NetAddress *at, const char *id, double seconds, Store **store,
                           bool *refused, Error *error) {
  return store_connect(at, id, seconds, store, refused, error);
}

static int network_listen(StoreNetwork *network, const NetAddress *at) {
  NetAddress there = *at;
  int fd = net_listen(&there);
  if (fd >= 0) close(fd);
  return fd < 0 ? fd : 0;
}

static int network_serve(StoreNetwork *network, const NetAddress *at, const char *id, bool insecure,
                         StoreServer **server, Error *error) {
  return store_serve(at, id, insecure, server, error);
}

static void network_stop(StoreNetwork *network, StoreServer *server) { store_server_stop(server); }

StoreNetwork store_network = {network_now, network_rest, network_connect, network_listen, network_serve, network_stop};

int store_open(const char *endpoints, const char *id, bool insecure, double patience, StoreServer **server,
               Store **store, Error *error) {
  NetAddress at;
  char text[80];
  double until = clock_seconds() + patience;
  *server = NULL;
  *store = NULL;
  int found = store_endpoint(endpoints, 0, &at, error);
  if (found < 0) return found;
  net_describe(&at, text, sizeof text);
  for (;;) {
    Error unused = {0};
    found = store_connect(&at, id, usual_greeting, store, NULL, error);
    if (found) return found < 0 ? found : PLAIT_OK;
    if (!*server && store_serve(&at, id, insecure, server, &unused) == PLAIT_BAD_INPUT) {
      *error = unused;
      return PLAIT_BAD_INPUT;
    }
    if (*server) continue;
    if (clock_seconds() >= until)
      return error_set(error, PLAIT_FAILED, "no store answers at %s within %.0f s; is plait launch running there?",
                       text, patience);
    poll(NULL, 0, (int)(1000 * retry_seconds));
  }
}
