// One loop over all connections of a listener, by epoll.
#include "net/server.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/fault.h"
#include "base/thread.h"
#include "net/socket.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { USUAL = 1024, AT_ONCE = 64, PIECE = 1 << 14 }; // AT_ONCE: of anything in one turn
static const double longest_wait = 3600, rest_seconds = 0.1, stuck_seconds = 60, finish_seconds = 5;

struct Server {
  ServerOptions options;
  char *name;
  int epoll, wake, most, count;
  int spare; // a descriptor that is given up to accept, and close, a newcomer where none is left; -1: it was lost
  Connection *first, *last; // in the order in which they came
  double now, rests_until;  // rests: the listener could not accept, and is not looked at
  bool listens, stops, started;
  pthread_t thread;
  int closed[SERVER_ENDS];
};

// Sentences ----------------------------------------------------------------------------------------------------------

static const struct { const char *one, *all; } why[SERVER_ENDS] = {
    [SERVER_WITHOUT_SECRET] = {"it does not have the secret", "without the secret"},
    [SERVER_SILENT] = {"it was silent for too long", "silent for too long"},
    [SERVER_MALFORMED] = {"it sent what is not a message of this job", "with what is not a message of this job"},
    [SERVER_CROWDED_OUT] = {"there were too many that had not said who they are", "since there were too many"},
    [SERVER_UNREAD] = {"it does not read what it is sent", "that did not read"},
};

static void count_end(Server *s, ServerEnd end, int fd) {
  char text[400], host[100] = "";
  NetAddress at = {.length = sizeof at.storage};
  if (s->closed[end]++ || !why[end].one || !s->options.tell) return;
  if (!getpeername(fd, (struct sockaddr *)&at.storage, &at.length) && at.storage.ss_family != AF_UNIX)
    net_describe_host(&at, host, sizeof host);
  snprintf(text, sizeof text, "%s has closed a connection%s%s: %s", s->name, *host ? " from " : "", host, why[end].one);
  s->options.tell(s->options.context, text);
}

static void tell_all(const Server *s) {
  char text[400];
  int total = 0, kinds = 0;
  size_t n = (size_t)snprintf(text, sizeof text, "%s has closed", s->name);
  for (int end = 0; end < SERVER_ENDS; end++) {
    if (!why[end].one || !s->closed[end] || n >= sizeof text) continue;
    n += (size_t)snprintf(text + n, sizeof text - n, "%s %d connection%s %s", kinds++ ? "," : "", s->closed[end],
                          s->closed[end] > 1 ? "s" : "", why[end].all);
    total += s->closed[end];
  }
  if (total > kinds && s->options.tell) s->options.tell(s->options.context, text); // else each has been told
}

// One connection -----------------------------------------------------------------------------------------------------

static bool reads(const Connection *c) {
  return !c->over && !c->pauses && !c->finishes && FAULT(unread_answers_pile_up, !c->out.count, true);
}

static void watch(Connection *c, int operation) {
  uint32_t events = (reads(c) ? EPOLLIN : 0u) | (c->out.count ? EPOLLOUT : EPOLLRDHUP);
  if (c->over || (operation == EPOLL_CTL_MOD && events == c->watched)) return;
  c->watched = events;
  struct epoll_event event = {events, {.ptr = c}};
  if (epoll_ctl(c->server->epoll, operation, channel_fd(c->channel), &event)) connection_end(c, SERVER_CROWDED_OUT);
}

void connection_end(Connection *c, ServerEnd end) {
  if (!c->over && !c->finishes) c->end = end;
  c->over = true;
}

// A copy of the socket in a child that has not called exec yet would keep it in the epoll.
static void forget(Connection *c) { epoll_ctl(c->server->epoll, EPOLL_CTL_DEL, channel_fd(c->channel), NULL); }

Channel *connection_release(Connection *c) {
  Channel *channel = c->channel;
  forget(c);
  c->channel = NULL;
  c->over = true;
  return channel;
}

static void drop(Connection *c) {
  Server *s = c->server;
  *(c->before ? &c->before->next : &s->first) = c->next;
  *(c->next ? &c->next->before : &s->last) = c->before;
  s->count--;
  if (c->channel) {
    forget(c);
    count_end(s, c->end, channel_fd(c->channel));
    if (s->options.leave) s->options.leave(s->options.context, c);
  }
  channel_close(c->channel);
  free(c->in.data);
  free(c->out.data);
  free(c);
}

static void flush(Connection *c) {
  while (!c->over && c->written < c->out.count) {
    ssize_t n = channel_send(c->channel, c->out.data + c->written, c->out.count - c->written);
    if (n > 0) c->written += (size_t)n, c->stuck = c->server->now;
    else if (n < 0 && errno == EAGAIN) return;
    else if (n < 0 && errno != EINTR) connection_end(c, SERVER_LEFT);
  }
  c->out.count = c->written = 0;
  if (c->finishes) c->over = true;
}

void connection_send(Connection *c, const void *data, size_t bytes) {
  if (c->over || !bytes) return;
  if (!c->out.count) c->stuck = c->server->now;
  c->out.count -= c->written;
  if (c->out.count) memmove(c->out.data, c->out.data + c->written, c->out.count);
  c->written = 0;
  if (FAULT(any_number_of_bytes_waits, c->out.count + bytes > c->server->options.most_out, false))
    return connection_end(c, SERVER_UNREAD);
  if (c->out.room < c->out.count + bytes) {
    c->out.room = 2 * c->out.count + bytes;
    c->out.data = xrealloc(c->out.data, c->out.room);
  }
  memcpy(c->out.data + c->out.count, data, bytes);
  c->out.count += bytes;
  flush(c);
}

void connection_pause(Connection *c, bool pauses) {
  c->pauses = pauses;
  c->ready = c->ready || !pauses;
}

void connection_finish(Connection *c, ServerEnd end) {
  c->end = end;
  c->finishes = true;
  c->limit = c->server->now + finish_seconds;
  if (!c->out.count) c->over = true;
}

// Whether the greeting is done. Who goes in its midst has proved nothing, and its lack neither.
static bool meet(Connection *c) {
  const ServerOptions *o = &c->server->options;
  int met = o->greet ? o->greet(o->context, c) : channel_greet(c->channel);
  if (met < 0) connection_end(c, errno == EPROTO ? SERVER_WITHOUT_SECRET : SERVER_LEFT);
  c->met = met > 0;
  if (!c->met) return false;
  c->limit = c->server->now + o->proof_seconds;
  if (o->meet) o->meet(o->context, c);
  return true;
}

// Whether more has come. Nothing is read beyond this message: the rest is for whom the connection is released to.
static bool receive(Connection *c) {
  size_t more = c->want - c->in.count, piece = c->in.count > PIECE ? c->in.count : PIECE;
  if (more > piece) more = piece; // memory is taken for what has come, not for what is announced
  if (c->in.room < c->in.count + more) {
    c->in.room = c->in.count + more;
    c->in.data = xrealloc(c->in.data, c->in.room);
  }
  ssize_t n = channel_receive(c->channel, c->in.data + c->in.count, more);
  if (n > 0) c->in.count += (size_t)n;
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) connection_end(c, SERVER_LEFT);
  return n > 0 || (n < 0 && errno == EINTR);
}

static void take(Connection *c) {
  const ServerOptions *o = &c->server->options;
  bool proven = c->proven;
  int64_t more = o->take(o->context, c, c->in.data, c->in.count);
  if (more < 0) connection_end(c, SERVER_MALFORMED);
  if (more == 0) c->in.count = 0;
  c->want = more > 0 ? c->want + (size_t)more : c->head;
  if (c->proven && !proven && !c->finishes) c->limit = INFINITY;
}

// Takes all that has come, up to a limit: one that sends without an end must not hold up the others.
static void advance(Connection *c) {
  c->ready = false;
  if (!c->met && !meet(c)) return;
  for (int i = 0; reads(c); i++)
    if (i == AT_ONCE) return (void)(c->ready = true);
    else if (c->in.count == c->want) take(c);
    else if (!receive(c)) return;
}

// Newcomers ----------------------------------------------------------------------------------------------------------

static Connection *oldest_unproven(const Server *s) {
  Connection *c = s->first;
  while (c && c->proven) c = c->next;
  return FAULT(newcomers_give_way, c, NULL);
}

// false: all have said who they are.
static bool crowd_out(Server *s) {
  Connection *c = oldest_unproven(s);
  if (!c) return false;
  c->end = SERVER_CROWDED_OUT;
  drop(c);
  return true;
}

void server_add(Server *s, int fd, double now) {
  s->now = now;
  Channel *channel = s->count < s->most || crowd_out(s) ? channel_open(fd, true, s->options.secret) : (close(fd), NULL);
  if (!channel) return count_end(s, SERVER_CROWDED_OUT, -1);
  Connection *c = xcalloc(1, sizeof *c);
  *c = (Connection){.server = s, .channel = channel, .before = s->last, .head = s->options.head, .ready = true,
                    .want = s->options.head, .limit = now + s->options.meeting_seconds};
  *(s->last ? &s->last->next : &s->first) = c;
  s->last = c;
  s->count++;
  watch(c, EPOLL_CTL_ADD);
}

static int spare_descriptor(void) { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// The process has no descriptor left. The oldest connection that has not said who it is gives way; where there is none,
// the newcomer does. Below 0: -errno.
static int accept_in_need(Server *s) {
  bool gives_way = crowd_out(s);
  if (!gives_way && s->spare >= 0) close(s->spare), s->spare = -1;
  int fd = net_accept(s->options.listener, 0);
  if (fd < 0 || gives_way) return fd;
  close(fd);
  count_end(s, SERVER_CROWDED_OUT, -1);
  return -ECONNABORTED;
}

static void look_at_listener(Server *s, bool listens) {
  if (s->options.listener < 0 || s->listens == listens) return;
  struct epoll_event event = {EPOLLIN, {.ptr = s}};
  epoll_ctl(s->epoll, listens ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, s->options.listener, &event);
  s->listens = listens;
}

static void welcome(Server *s, double now) {
  for (int i = 0; i < AT_ONCE; i++) {
    int fd = net_accept(s->options.listener, 0);
    if (fd == -EMFILE || fd == -ENFILE) fd = accept_in_need(s);
    if (fd >= 0) server_add(s, fd, now);
    if (s->spare < 0) s->spare = spare_descriptor();
    if (fd == -ETIMEDOUT) return;
    if (fd >= 0 || fd == -ECONNABORTED) continue;
    s->rests_until = now + FAULT(listeners_never_rest, rest_seconds,
                                 0); // a listener that is ready and not heard would keep a core busy
    return look_at_listener(s, false);
  }
}

// Turns --------------------------------------------------------------------------------------------------------------

// Whether somebody is at the listener.
static bool look(Server *s) {
  struct epoll_event event[AT_ONCE];
  bool knocks = false;
  int n = epoll_wait(s->epoll, event, AT_ONCE, 0);
  for (int i = 0; i < n; i++) {
    Connection *c = event[i].data.ptr;
    uint32_t came = event[i].events;
    if (event[i].data.ptr == s) knocks = true;
    else if (!c) s->stops = true;
    else {
      if (came & EPOLLOUT) flush(c);
      if (reads(c)) c->ready = true;
      else if (came & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) connection_end(c, SERVER_LEFT); // and nothing is read of it
    }
  }
  return knocks;
}

static void advance_all(Server *s) {
  for (Connection *c = s->first; c; c = c->next) {
    if (c->ready && !c->over) advance(c);
    if (FAULT(arrivals_queue, false, !c->proven && !c->over)) return; // the others wait for it
  }
}

// Closes connections that are over. Returns when the next turn is due for one of the others.
static double sweep(Server *s, double now) {
  double due = INFINITY;
  for (Connection *c = s->first, *next; c; c = next) {
    next = c->next;
    if (now > c->limit) connection_end(c, SERVER_SILENT);
    if (c->out.count && now > c->stuck + stuck_seconds) connection_end(c, SERVER_UNREAD);
    watch(c, EPOLL_CTL_MOD);
    due = fmin(due, c->over || (c->ready && reads(c)) ? now : c->limit); // what follows from an end may be due
    if (c->out.count) due = fmin(due, c->stuck + stuck_seconds);
    if (c->over) drop(c);
  }
  return due;
}

double server_turn(Server *s, double now) {
  double due = INFINITY;
  s->now = now;
  bool knocks = look(s);
  advance_all(s);
  if (s->options.pass) due = s->options.pass(s->options.context, now);
  due = fmin(due, sweep(s, now));
  if (knocks) welcome(s, now), due = now;
  if (!s->listens && now >= s->rests_until) look_at_listener(s, true);
  return s->listens || s->options.listener < 0 ? due : fmin(due, s->rests_until);
}

void server_wait(const Server *s, double until) {
  net_ready(s->epoll, POLLIN, fmin(until, clock_seconds() + longest_wait));
}

static void *run(void *argument) {
  Server *s = argument;
  for (double due = 0; !s->stops; due = server_turn(s, clock_seconds())) server_wait(s, due);
  return NULL;
}

// -------------------------------------------------------------------------------------------------------------------

int server_open(const ServerOptions *options, Server **server, Error *error) {
  Server *s = xcalloc(1, sizeof *s);
  int most = descriptors_raise() / FAULT(strangers_have_all_descriptors, 2, 1),
      usual = options->most ? options->most : USUAL;
  *s = (Server){.options = *options, .name = xstrdup(options->name), .most = usual < most ? usual : most,
                .epoll = epoll_create1(EPOLL_CLOEXEC), .wake = eventfd(0, EFD_CLOEXEC), .spare = spare_descriptor()};
  CHECK(options->head > 0);
  struct epoll_event event = {EPOLLIN, {.ptr = NULL}};
  *server = s;
  if (s->epoll >= 0 && s->wake >= 0 && !epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->wake, &event)) {
    look_at_listener(s, true);
    return PLAIT_OK;
  }
  error_set(error, PLAIT_FAILED, "%s cannot be served: %s", s->name, strerror(errno));
  server_close(s);
  *server = NULL;
  return PLAIT_FAILED;
}

int server_start(Server *s, Error *error, const char *thread) {
  int code = thread_start(&s->thread, run, s, error, "%s", thread);
  s->started = !code;
  return code;
}

void server_close(Server *s) {
  if (!s) return;
  if (s->started) eventfd_write(s->wake, 1), pthread_join(s->thread, NULL);
  while (s->first) drop(s->first);
  tell_all(s);
  if (s->epoll >= 0) close(s->epoll);
  if (s->wake >= 0) close(s->wake);
  if (s->spare >= 0) close(s->spare);
  free(s->name);
  free(s);
}

Connection *server_first(const Server *s) { return s->first; }
double server_now(const Server *s) { return s->now; }
int server_closed(const Server *s, ServerEnd end) { return s->closed[end]; }
