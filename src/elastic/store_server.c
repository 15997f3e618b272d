// The server of a store: one thread, one poll, a buffer in and one out for each connection.
#include "base/clock.h"
#include "base/thread.h"
#include "base/vec.h"
#include "net/channel.h"
#include "net/socket.h"
#include "elastic/store_protocol.h"
#include "elastic/store_table.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNECTIONS = 1024, PIECE = 1 << 14 };
static const double greeting_seconds = 5, longest_wait = 3600, dropped_seconds = 0.3;

typedef Vec(uint8_t) Bytes;

typedef struct Connection {
  Channel *channel;
  bool met, greeted, refused; // met: it has the secret; refused: closed when all is written
  double greet_until;
  Bytes in, out;
  int written;            // of out
  bool waiting;           // in a WAIT
  char key[STORE_KEY + 1];
  uint64_t version;
  double wait_until;
  uint64_t lease;         // that it has made or renewed last
} Connection;

struct StoreServer {
  pthread_t thread;
  int listener, stop[2];
  uint64_t job;
  StoreTable *table;
  Secret secret;
  bool is_secret;
  Vec(Connection *) connections;
};

static void append(Bytes *b, const void *data, size_t bytes) {
  vec_reserve(b, b->count + (int)bytes);
  if (bytes) memcpy(b->data + b->count, data, bytes);
  b->count += (int)bytes;
}

static void take(Bytes *b, size_t bytes) {
  memmove(b->data, b->data + bytes, (size_t)b->count - bytes);
  b->count -= (int)bytes;
}

static void reply(const StoreServer *s, Connection *c, const char *key, uint32_t done, uint64_t lease) {
  const StoreValue *v = key ? store_table_get(s->table, key) : NULL;
  StoreReply head = {done, v ? (uint32_t)v->bytes : 0, v ? v->version : 0, lease};
  append(&c->out, &head, sizeof head);
  if (v) append(&c->out, v->data, v->bytes);
}

static void answer(StoreServer *s, Connection *c, const StoreRequest *r, const char *key, const uint8_t *value) {
  double now = clock_seconds(), seconds = fmin(fmax(r->seconds, 0), longest_wait); // a NaN is 0
  if (r->call == STORE_GET) reply(s, c, key, 1, 0);
  else if (r->call == STORE_SET)
    reply(s, c, key, (uint32_t)store_table_set(s->table, key, r->version, value, r->value_bytes, r->lease), 0);
  else if (r->call == STORE_LEASE)
    reply(s, c, NULL, 1, c->lease = store_table_lease(s->table, r->lease, now + seconds));
  else {
    c->waiting = true;
    memcpy(c->key, key, strlen(key) + 1);
    c->version = r->version;
    c->wait_until = now + seconds;
  }
}

// 0: not one of this job's; it is told this side's greeting, and closed.
static int greet(const StoreServer *s, Connection *c) {
  StoreGreeting mine = STORE_GREETING(s->job);
  bool good;
  int bytes = store_take_greeting(c->in.data, (size_t)c->in.count, s->job, &good);
  if (!bytes) return 1;
  c->greeted = true;
  append(&c->out, &mine, sizeof mine);
  c->refused = !good;
  take(&c->in, (size_t)bytes);
  return good;
}

// Whole requests, one after the other; not while one waits. 0: the bytes received are not a valid request.
static int serve(StoreServer *s, Connection *c) {
  if (!c->greeted && !greet(s, c)) return 1;
  while (c->greeted && !c->waiting) {
    StoreRequest r;
    char key[STORE_KEY + 1];
    const uint8_t *value;
    int bytes = store_take_request(c->in.data, (size_t)c->in.count, &r, key, &value);
    if (bytes <= 0) return bytes == 0;
    answer(s, c, &r, key, value);
    take(&c->in, (size_t)bytes);
  }
  return 1;
}

// 0: the connection has ended, or is a stranger's.
static int receive(StoreServer *s, Connection *c) {
  uint8_t piece[PIECE];
  if (!c->met) {
    int met = channel_greet(c->channel);
    if (met <= 0) return met == 0;
    c->met = true;
  }
  do {
    ssize_t n = channel_receive(c->channel, piece, sizeof piece);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    append(&c->in, piece, (size_t)n);
    if (c->in.count > 2 * STORE_VALUE) return 0; // a client sends one request at a time
    if (n == 0 || !serve(s, c)) return 0;
  } while (channel_has_more(c->channel));
  return 1;
}

static int send_rest(Connection *c) {
  while (c->written < c->out.count) {
    ssize_t n = channel_send(c->channel, c->out.data + c->written, (size_t)(c->out.count - c->written));
    if (n < 0 && errno == EAGAIN) return 1;
    if (n < 0 && errno != EINTR) return 0;
    if (n > 0) c->written += (int)n;
  }
  c->out.count = c->written = 0;
  return !c->refused;
}

// A process that dies closes its connections: its lease need not run out. One that lives connects again, and renews it.
static void drop(StoreServer *s, int i) {
  Connection *c = s->connections.data[i];
  if (c->lease) store_table_lease(s->table, c->lease, clock_seconds() + dropped_seconds);
  channel_close(c->channel);
  vec_free(&c->in);
  vec_free(&c->out);
  free(c);
  s->connections.data[i] = s->connections.data[--s->connections.count];
}

// What nobody asked for now: leases that lapse, waits that are over, greetings that do not come.
static void pass_time(StoreServer *s) {
  double now = clock_seconds();
  store_table_lapse(s->table, now);
  for (int i = s->connections.count - 1; i >= 0; i--) {
    Connection *c = s->connections.data[i];
    if (c->waiting) {
      const StoreValue *v = store_table_get(s->table, c->key);
      uint64_t version = v ? v->version : 0;
      if (version != c->version || now >= c->wait_until) {
        c->waiting = false;
        reply(s, c, c->key, version != c->version, 0);
      }
    }
    if ((!c->greeted && now >= c->greet_until) || !serve(s, c) || !send_rest(c)) drop(s, i);
  }
}

static int until_next(const StoreServer *s) {
  double next = store_table_next_lapse(s->table);
  for (int i = 0; i < s->connections.count; i++) {
    const Connection *c = s->connections.data[i];
    if (c->waiting) next = fmin(next, c->wait_until);
    if (!c->greeted) next = fmin(next, c->greet_until);
  }
  double left = next - clock_seconds();
  return isinf(next) ? -1 : left > 0 ? (int)(1000 * fmin(left, longest_wait)) + 1 : 0;
}

static void welcome(StoreServer *s) {
  int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0) return;
  if (s->connections.count == CONNECTIONS) {
    close(fd);
    return;
  }
  Connection *c = xcalloc(1, sizeof *c);
  *c = (Connection){.channel = channel_open(fd, true, s->is_secret ? &s->secret : NULL),
                    .greet_until = clock_seconds() + greeting_seconds};
  if (c->channel) vec_push(&s->connections, c);
  else free(c);
}

static void *run(void *argument) {
  StoreServer *s = argument;
  for (;;) {
    int count = s->connections.count;
    struct pollfd fd[count + 2];
    fd[0] = (struct pollfd){s->stop[0], POLLIN, 0};
    fd[1] = (struct pollfd){s->listener, POLLIN, 0};
    for (int i = 0; i < count; i++) {
      const Connection *c = s->connections.data[i];
      fd[2 + i] = (struct pollfd){channel_fd(c->channel), (short)(POLLIN | (c->out.count ? POLLOUT : 0)), 0};
    }
    poll(fd, (nfds_t)count + 2, until_next(s));
    if (fd[0].revents) return NULL;
    for (int i = count - 1; i >= 0; i--)
      if (fd[2 + i].revents & (POLLIN | POLLHUP | POLLERR) && !receive(s, s->connections.data[i])) drop(s, i);
    if (fd[1].revents) welcome(s);
    pass_time(s); // after all requests: whoever waits learns of them at once
  }
}

int store_server_start(const NetAddress *address, uint64_t job, StoreServer **server, Error *error) {
  NetAddress at = *address;
  StoreServer *s = xcalloc(1, sizeof *s);
  char text[80];
  net_describe(&at, text, sizeof text);
  *s = (StoreServer){.listener = -1, .job = job};
  int given = secret_of_environment(&s->secret, &s->is_secret, error);
  if (given) return free(s), given;
  s->listener = net_listen(&at);
  if (s->listener < 0 || pipe2(s->stop, O_CLOEXEC)) {
    int why = s->listener < 0 ? -s->listener : errno;
    if (s->listener >= 0) close(s->listener);
    free(s);
    return error_set(error, PLAIT_FAILED, "the store cannot listen at %s: %s", text, strerror(why));
  }
  s->table = store_table_create();
  int code = thread_start(&s->thread, run, s, error, "the store's thread");
  *server = s;
  if (!code) return PLAIT_OK;
  s->thread = 0;
  store_server_stop(s);
  *server = NULL;
  return code;
}

void store_server_stop(StoreServer *s) {
  if (!s) return;
  close(s->stop[1]); // the other end is ready to be read
  if (s->thread) pthread_join(s->thread, NULL);
  while (s->connections.count) drop(s, 0);
  vec_free(&s->connections);
  store_table_destroy(s->table);
  close(s->stop[0]);
  close(s->listener);
  free(s);
}
