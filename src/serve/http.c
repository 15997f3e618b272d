// libmicrohttpd, and what a build without it says.
#include "serve/http.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/thread.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

HttpWait http_wait(int socket, int wake, double seconds) {
  struct pollfd on[2] = {{.fd = socket, .events = POLLRDHUP}, {.fd = wake, .events = POLLIN}};
  uint64_t count;
  int n = poll(on, 2, (int)(1e3 * seconds) + 1);
  if (n > 0 && on[0].revents) return HTTP_CLIENT_LEFT;
  if (n <= 0 || !on[1].revents) return HTTP_WAITED;
  return read(wake, &count, sizeof count) == sizeof count ? HTTP_WOKEN : HTTP_WAITED;
}

#ifdef PLAIT_MICROHTTPD
#include <dlfcn.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

enum { STACK = 1 << 20, PIECE = 16 << 10, SWALLOWED = 4, BACKLOG = 1024, OTHER_FILES = 64 };

typedef struct Functions {
#define HTTP_FUNCTION(name) __typeof__(&name) name;
#include "serve/http.def"
#undef HTTP_FUNCTION
} Functions;

static Functions lib;
static char problem[256];

static void load(void) {
  void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(problem, sizeof problem, "%s", dlerror());
    return;
  }
  static const struct { const char *name; size_t place; } functions[] = {
#define HTTP_FUNCTION(name) {#name, offsetof(Functions, name)},
#include "serve/http.def"
#undef HTTP_FUNCTION
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions && !*problem; i++) {
    void *function = dlsym(library, functions[i].name);
    if (!function) snprintf(problem, sizeof problem, "%s", dlerror());
    memcpy((char *)&lib + functions[i].place, &function, sizeof function);
  }
}

static bool is_loaded(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return !*problem;
}

bool http_is_built(void) { return true; }
const char *http_version(void) { return is_loaded() ? lib.MHD_get_version() : NULL; }

int http_check(Error *error) {
  if (is_loaded()) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "plait serve needs libmicrohttpd, which cannot be loaded (%s); install libmicrohttpd12", problem);
}

// ---- connections

typedef enum Phase { PHASE_HEADERS, PHASE_IDLE, PHASE_BODY, PHASE_ANSWER, PHASES } Phase;

typedef struct Connection {
  struct Connection *before, *after;
  int socket;
  Phase phase;
  double since;
} Connection;

struct Http {
  HttpLimits limits;
  HttpHandler handler;
  struct MHD_Daemon *daemon;
  int socket, port;
  pthread_mutex_t mutex; // guards what follows
  Connection *connections;
  bool closes;
  pthread_cond_t closing;
  pthread_t guard;
  bool guarded;
  _Atomic size_t bodies; // bytes
};

static void enter_phase(Http *h, Connection *c, Phase phase) {
  if (!c) return;
  pthread_mutex_lock(&h->mutex);
  c->phase = phase;
  c->since = clock_seconds();
  pthread_mutex_unlock(&h->mutex);
}

static Connection *connection_of(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info =
      lib.MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return info ? info->socket_context : NULL;
}

static int socket_of(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info = lib.MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info ? info->connect_fd : -1;
}

static void notify_connection(void *http, struct MHD_Connection *connection, void **context,
                              enum MHD_ConnectionNotificationCode code) {
  Http *h = http;
  Connection *c = *context;
  pthread_mutex_lock(&h->mutex);
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    *context = c = xcalloc(1, sizeof *c);
    *c = (Connection){.after = h->connections, .socket = socket_of(connection), .since = clock_seconds()};
    if (h->connections) h->connections->before = c;
    h->connections = c;
  } else if (c) {
    if (c->before) c->before->after = c->after;
    else h->connections = c->after;
    if (c->after) c->after->before = c->before;
    free(c);
    *context = NULL;
  }
  pthread_mutex_unlock(&h->mutex);
}

// Ends the connections whose requests take too long to come: libmicrohttpd's own limit begins anew with each byte.
static void *guard(void *http) {
  Http *h = http;
  const double limit[PHASES] = {h->limits.header_seconds, h->limits.idle_seconds, h->limits.body_seconds, 0};
  pthread_mutex_lock(&h->mutex);
  while (!h->closes) {
    double now = clock_seconds();
    for (Connection *c = h->connections; c; c = c->after)
      if (c->phase != PHASE_ANSWER && now - c->since > limit[c->phase]) shutdown(c->socket, SHUT_RDWR);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 250000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&h->closing, &h->mutex, &until);
  }
  pthread_mutex_unlock(&h->mutex);
  return NULL;
}

// ---- requests

const char *http_header(const HttpExchange *x, const char *name) {
  return lib.MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static void drop_body(Http *h, HttpExchange *x) {
  atomic_fetch_sub(&h->bodies, x->room);
  free(x->body);
  x->body = NULL;
  x->bytes = x->room = 0;
  x->keeps = false;
}

static bool make_room(Http *h, HttpExchange *x, size_t bytes) {
  size_t room = x->room ? x->room : 4096;
  while (room < bytes + 1) room *= 2;
  if (room == x->room) return true;
  if (atomic_fetch_add(&h->bodies, room - x->room) + room - x->room > h->limits.bodies) {
    atomic_fetch_sub(&h->bodies, room - x->room);
    return false;
  }
  x->body = xrealloc(x->body, room);
  x->room = room;
  return true;
}

static void take_piece(Http *h, HttpExchange *x, const char *data, size_t bytes) {
  if (!x->keeps) return;
  if (x->bytes + bytes > h->limits.body) x->too_large = true;
  else if (!make_room(h, x, x->bytes + bytes)) x->too_busy = true;
  if (x->too_large || x->too_busy) {
    drop_body(h, x);
    return;
  }
  memcpy(x->body + x->bytes, data, bytes);
  x->body[x->bytes += bytes] = 0;
}

static void answer(Http *h, HttpExchange *x) {
  struct MHD_Connection *c = x->connection;
  enter_phase(h, connection_of(c), PHASE_ANSWER);
  lib.MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, 0u); // the answer may take longer to compute
  h->handler.answer(h->handler.context, x);
  CHECK(x->status);
  lib.MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)h->limits.read_seconds);
}

static size_t bytes_of_headers(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info =
      lib.MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
  return info ? info->header_size : 0;
}

static enum MHD_Result begin(Http *h, struct MHD_Connection *c, const char *path, const char *method, void **exchange) {
  HttpExchange *x = *exchange = xcalloc(1, sizeof *x);
  *x = (HttpExchange){.method = method, .path = path, .connection = c, .http = h, .socket = socket_of(c)};
  enter_phase(h, connection_of(c), PHASE_BODY);
  x->headers_too_large = bytes_of_headers(c) > HTTP_HEADERS;
  const char *length = http_header(x, "Content-Length");
  double bytes = length ? strtod(length, NULL) : 0;
  x->keeps = h->handler.wants(h->handler.context, x);
  if (bytes > (double)h->limits.body) {
    x->too_large = true;
    x->keeps = false;
  }
  if (bytes > SWALLOWED * (double)h->limits.body) answer(h, x); // libmicrohttpd then closes the connection
  return MHD_YES;
}

static enum MHD_Result take_request(void *http, struct MHD_Connection *c, const char *path, const char *method,
                                    const char *version, const char *data, size_t *bytes, void **exchange) {
  HttpExchange *x = *exchange;
  if (!x) return begin(http, c, path, method, exchange);
  if (*bytes) {
    take_piece(http, x, data, *bytes);
    *bytes = 0;
    return MHD_YES;
  }
  if (!x->status) answer(http, x);
  return MHD_YES;
}

static void complete(void *http, struct MHD_Connection *c, void **exchange, enum MHD_RequestTerminationCode code) {
  Http *h = http;
  HttpExchange *x = *exchange;
  if (!x) return;
  h->handler.over(h->handler.context, x);
  drop_body(h, x);
  free(x);
  *exchange = NULL;
  enter_phase(h, connection_of(c), PHASE_IDLE);
}

// ---- answers

static void queue(HttpExchange *x, int status, const char *type, struct MHD_Response *response,
                  const char *const *headers) {
  lib.MHD_add_response_header(response, "Content-Type", type);
  for (; headers && *headers; headers += 2) lib.MHD_add_response_header(response, headers[0], headers[1]);
  lib.MHD_queue_response(x->connection, (unsigned)status, response);
  lib.MHD_destroy_response(response); // the connection has it
  x->status = status;
}

void http_reply(HttpExchange *x, int status, const char *type, const char *text, size_t bytes,
                const char *const *headers) {
  struct MHD_Response *response =
      lib.MHD_create_response_from_buffer(bytes, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
  CHECK(response);
  queue(x, status, type, response, headers);
}

typedef struct Stream {
  HttpStream of;
  void *connection;
  unsigned seconds;
} Stream;

static ssize_t read_stream(void *stream, uint64_t at, char *out, size_t room) {
  Stream *s = stream;
  lib.MHD_set_connection_option(s->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
  ssize_t n = s->of.read(s->of.context, out, room);
  lib.MHD_set_connection_option(s->connection, MHD_CONNECTION_OPTION_TIMEOUT, s->seconds);
  return n; // HTTP_END and HTTP_LEFT are libmicrohttpd's values
}

static void end_stream(void *stream) {
  Stream *s = stream;
  s->of.done(s->of.context);
  free(s);
}

void http_stream(HttpExchange *x, int status, const char *type, const HttpStream *stream, const char *const *headers) {
  _Static_assert(HTTP_END == MHD_CONTENT_READER_END_OF_STREAM && HTTP_LEFT == MHD_CONTENT_READER_END_WITH_ERROR, "");
  const Http *h = x->http;
  Stream *s = xcalloc(1, sizeof *s);
  *s = (Stream){*stream, x->connection, (unsigned)h->limits.read_seconds};
  struct MHD_Response *response =
      lib.MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, PIECE, read_stream, s, end_stream);
  CHECK(response);
  queue(x, status, type, response, headers);
}

// ---- open and close

static int bind_one(const struct addrinfo *a) {
  int one = 1, s = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
  if (s < 0) return -1;
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (!bind(s, a->ai_addr, a->ai_addrlen) && !listen(s, BACKLOG)) return s;
  int why = errno;
  close(s);
  errno = why;
  return -1;
}

static int find_port(int socket) {
  struct sockaddr_storage address = {0};
  socklen_t bytes = sizeof address;
  getsockname(socket, (struct sockaddr *)&address, &bytes);
  return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                             : ((struct sockaddr_in *)&address)->sin_port);
}

static int listen_at(Http *h, const HttpPlace *place, Error *error) {
  struct addrinfo wish = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
  char port[16];
  snprintf(port, sizeof port, "%d", place->port);
  int why = getaddrinfo(place->host, port, &wish, &found);
  if (why)
    return error_set(error, PLAIT_BAD_INPUT, "--host %s is not an address: %s", place->host, gai_strerror(why));
  h->socket = -1;
  for (const struct addrinfo *a = found; a && h->socket < 0; a = a->ai_next) h->socket = bind_one(a);
  why = errno;
  freeaddrinfo(found);
  if (h->socket < 0)
    return error_set(error, why == EADDRNOTAVAIL ? PLAIT_BAD_INPUT : PLAIT_FAILED,
                     "--host %s --port %d: cannot listen there: %s", place->host, place->port, strerror(why));
  h->port = find_port(h->socket);
  return PLAIT_OK;
}

// Its threads take no signals but those of their own faults, as those of thread_start.
static struct MHD_Daemon *start(Http *h) {
  static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPROF};
  sigset_t taken, before;
  sigfillset(&taken);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&taken, faults[i]);
  pthread_sigmask(SIG_SETMASK, &taken, &before);
  struct MHD_Daemon *daemon = lib.MHD_start_daemon(
      MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL, NULL,
      take_request, h, MHD_OPTION_LISTEN_SOCKET, h->socket, MHD_OPTION_CONNECTION_LIMIT,
      (unsigned)h->limits.connections, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)h->limits.read_seconds,
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_HEADERS + PIECE, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK,
      MHD_OPTION_NOTIFY_COMPLETED, complete, h, MHD_OPTION_NOTIFY_CONNECTION, notify_connection, h, MHD_OPTION_END);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return daemon;
}

int http_open(Http **http, const HttpPlace *place, const HttpLimits *limits, const HttpHandler *handler,
              Error *error) {
  *http = NULL;
  int code = http_check(error);
  if (code) return code;
  Http *h = xcalloc(1, sizeof *h);
  *h = (Http){.limits = *limits, .handler = *handler};
  int most = (descriptors_raise() - OTHER_FILES) / 2; // a socket and an eventfd each
  if (h->limits.connections > most) h->limits.connections = most > 1 ? most : 1;
  pthread_mutex_init(&h->mutex, NULL);
  pthread_cond_init(&h->closing, NULL);
  code = listen_at(h, place, error);
  if (code) h->socket = -1;
  if (!code && !(h->daemon = start(h)))
    code = error_set(error, PLAIT_FAILED, "libmicrohttpd does not start: %s", strerror(errno));
  if (!code) code = thread_start(&h->guard, guard, h, error, "the thread that limits the time of requests");
  h->guarded = !code;
  if (!code) *http = h;
  else http_close(h);
  return code;
}

int http_port(const Http *h) { return h->port; }

void http_close(Http *h) {
  if (!h) return;
  pthread_mutex_lock(&h->mutex);
  h->closes = true;
  pthread_cond_signal(&h->closing);
  pthread_mutex_unlock(&h->mutex);
  if (h->guarded) pthread_join(h->guard, NULL);
  if (h->daemon) lib.MHD_stop_daemon(h->daemon); // closes the socket too
  else if (h->socket >= 0) close(h->socket);
  pthread_cond_destroy(&h->closing);
  pthread_mutex_destroy(&h->mutex);
  free(h);
}

#else

bool http_is_built(void) { return false; }
const char *http_version(void) { return NULL; }
int http_check(Error *error) {
  return error_set(error, PLAIT_BAD_INPUT,
                   "this plait was built without libmicrohttpd, which plait serve needs; install libmicrohttpd-dev and "
                   "build it again");
}
int http_open(Http **http, const HttpPlace *place, const HttpLimits *limits, const HttpHandler *handler,
              Error *error) {
  *http = NULL;
  return http_check(error);
}
int http_port(const Http *http) { return 0; }
void http_close(Http *http) {}
const char *http_header(const HttpExchange *exchange, const char *name) { return NULL; }
void http_reply(HttpExchange *exchange, int status, const char *type, const char *text, size_t bytes,
                const char *const *headers) {
  exchange->status = status;
}
void http_stream(HttpExchange *exchange, int status, const char *type, const HttpStream *stream,
                 const char *const *headers) {
  exchange->status = status;
  stream->done(stream->context);
}
#endif
