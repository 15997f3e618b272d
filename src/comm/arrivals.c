// Connections that have to say who they are.
#include "comm/arrivals.h"
#include "base/clock.h"
#include "base/fault.h"
#include "net/socket.h"
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

struct Arrival {
  Arrival *next;
  Channel *channel;
  bool ready, met;   // something has come, or may have; it was greeted
  double limit;      // of clock_seconds(): it is closed then
  size_t have, want; // bytes of its answer
  char *answer;
};

typedef enum Stage { STAGE_WAITS, STAGE_WHOLE, STAGE_CLOSED } Stage;

Arrivals arrivals_of(int listener, const Welcome *welcome) {
  return (Arrivals){.listener = listener, .welcome = *welcome,
                    .polled = xcalloc((size_t)welcome->most + 1, sizeof(struct pollfd))};
}

// Takes one from the list. Its channel and answer stay.
static void unlink_arrival(Arrivals *a, Arrival *one) {
  Arrival **link = &a->first, *before = NULL;
  while (*link != one) before = *link, link = &before->next;
  *link = one->next;
  if (a->last == one) a->last = before;
  a->count--;
}

static void drop(Arrivals *a, Arrival *one, int *counter) {
  ++*counter;
  unlink_arrival(a, one);
  channel_close(one->channel);
  free(one->answer);
  free(one);
}

static void drop_silent(Arrivals *a, Arrival *one) { drop(a, one, one->met ? &a->unanswered : &a->without_secret); }

// Not where memory for TLS cannot be allocated.
void arrivals_add(Arrivals *a, int fd, double now) {
  Channel *channel = channel_open(fd, true, a->welcome.secret);
  if (!channel) return;
  if (a->count == a->welcome.most) drop_silent(a, a->first);
  Arrival *one = xcalloc(1, sizeof *one);
  *one = (Arrival){.channel = channel, .ready = true, .limit = now + a->welcome.meeting_seconds,
                   .want = a->welcome.head_bytes, .answer = xcalloc(a->welcome.head_bytes, 1)};
  if (a->last) a->last->next = one;
  else a->first = one;
  a->last = one;
  a->count++;
}

// The handshake, then the greeting, which is so short that a new connection takes it whole.
static Stage meet(Arrivals *a, Arrival *one, double now) {
  int done = channel_greet(one->channel);
  if (done < 0) return drop(a, one, &a->without_secret), STAGE_CLOSED;
  if (!done) return STAGE_WAITS;
  one->met = true;
  one->limit = now + a->welcome.answer_seconds;
  ssize_t bytes = (ssize_t)a->welcome.greeting_bytes;
  if (!bytes || channel_send(one->channel, a->welcome.greeting, (size_t)bytes) == bytes) return STAGE_WAITS;
  return drop(a, one, &a->unanswered), STAGE_CLOSED;
}

// Room for what follows the head.
static Stage read_head(Arrivals *a, Arrival *one) {
  int64_t rest = a->welcome.rest(one->answer, a->welcome.context);
  if (rest < 0) return drop(a, one, &a->refused), STAGE_CLOSED;
  one->want += (size_t)rest;
  one->answer = xrealloc(one->answer, one->want);
  return rest ? STAGE_WAITS : STAGE_WHOLE;
}

// All that has come of one.
static Stage advance(Arrivals *a, Arrival *one, double now) {
  Stage stage = STAGE_WAITS;
  if (!one->met) stage = meet(a, one, now);
  while (stage == STAGE_WAITS && one->met) {
    ssize_t n = channel_receive(one->channel, one->answer + one->have, one->want - one->have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) return drop(a, one, &a->unanswered), STAGE_CLOSED;
    one->have += (size_t)n;
    if (one->have == a->welcome.head_bytes) stage = read_head(a, one);
    else if (one->have == one->want) stage = STAGE_WHOLE;
  }
  return stage;
}

// The first of all that has given its whole answer.
static Arrival *advance_all(Arrivals *a, double now) {
  for (Arrival *one = a->first, *next; one; one = next) {
    next = one->next;
    Stage stage = one->ready ? advance(a, one, now) : STAGE_WAITS;
    if (stage == STAGE_WHOLE) return one;
    if (stage != STAGE_WAITS) continue;
    one->ready = false;
    if (now > one->limit) drop_silent(a, one);
    else if (FAULT(arrivals_queue, false, true)) return NULL; // the others wait for it
  }
  return NULL;
}

// Waits so long at most. Whether a connection has come to the listener.
static bool look(Arrivals *a, int milliseconds) {
  int n = 0;
  a->polled[n++] = (struct pollfd){a->listener, POLLIN, 0};
  for (Arrival *one = a->first; one; one = one->next)
    a->polled[n++] = (struct pollfd){channel_fd(one->channel), POLLIN, 0};
  poll(a->polled, (nfds_t)n, milliseconds);
  n = 1;
  for (Arrival *one = a->first; one; one = one->next) one->ready |= a->polled[n++].revents != 0;
  return a->polled[0].revents != 0;
}

bool arrivals_turn(Arrivals *a, double now, Channel **channel, void **answer) {
  look(a, 0);
  Arrival *one = advance_all(a, now);
  if (!one) return false;
  unlink_arrival(a, one);
  *channel = one->channel;
  *answer = one->answer;
  free(one);
  return true;
}

double arrivals_limit(const Arrivals *a) {
  double limit = INFINITY;
  for (const Arrival *one = a->first; one; one = one->next) limit = fmin(limit, one->limit);
  return limit;
}

int arrivals_next(Arrivals *a, double deadline, Channel **channel, void **answer) {
  for (;;) {
    if (arrivals_turn(a, clock_seconds(), channel, answer)) return 1;
    double now = clock_seconds(), left = fmin(deadline, arrivals_limit(a)) - now;
    if (now > deadline) return 0;
    if (!look(a, left > 0 ? (int)(left * 1000) + 1 : 0)) continue;
    int fd = net_accept(a->listener, 0);
    if (fd >= 0) arrivals_add(a, fd, clock_seconds());
    else if ((fd == -EMFILE || fd == -ENFILE) && a->first) drop_silent(a, a->first); // strangers have taken them all
    else if (fd != -ETIMEDOUT) return fd;
  }
}

void arrivals_end(Arrivals *a) {
  while (a->first) drop_silent(a, a->first);
  free(a->polled);
  a->polled = NULL;
}
