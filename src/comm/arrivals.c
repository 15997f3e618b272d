// Connections that have to say who they are.
#include "comm/arrivals.h"
#include "base/clock.h"
#include <math.h>
#include <string.h>

static void greet(void *context, Connection *c) {
  const Welcome *w = &((const Arrivals *)context)->welcome;
  connection_send(c, w->greeting, w->greeting_bytes);
}

static int64_t take(void *context, Connection *c, const unsigned char *data, size_t bytes) {
  Arrivals *a = context;
  int64_t rest = bytes == a->welcome.head_bytes ? a->welcome.rest(data, a->welcome.context) : 0;
  if (!rest) vec_push(&a->came, ((struct Arrival){connection_release(c), memcpy(xcalloc(bytes, 1), data, bytes)}));
  return rest;
}

static void leave(void *context, Connection *c) {
  Arrivals *a = context;
  ++*(!c->met ? &a->without_secret : c->end == SERVER_MALFORMED ? &a->refused : &a->unanswered);
}

int arrivals_begin(Arrivals *a, int listener, const Welcome *welcome, Error *error) {
  *a = (Arrivals){.welcome = *welcome};
  const ServerOptions options = {.name = "rank 0", .listener = listener, .secret = welcome->secret,
                                 .meeting_seconds = welcome->meeting_seconds,
                                 .proof_seconds = welcome->answer_seconds, .most = welcome->most,
                                 .head = welcome->head_bytes, .most_out = welcome->greeting_bytes, .context = a,
                                 .meet = greet, .take = take, .leave = leave};
  return server_open(&options, &a->server, error);
}

bool arrivals_turn(Arrivals *a, double now, double *due, Channel **channel, void **answer) {
  *due = server_turn(a->server, now);
  if (!a->came.count) return false;
  *channel = a->came.data[0].channel;
  *answer = a->came.data[0].answer;
  memmove(a->came.data, a->came.data + 1, (size_t)--a->came.count * sizeof *a->came.data);
  return true;
}

int arrivals_next(Arrivals *a, double deadline, Channel **channel, void **answer) {
  double due;
  while (!arrivals_turn(a, clock_seconds(), &due, channel, answer)) {
    if (clock_seconds() > deadline) return 0;
    server_wait(a->server, fmin(due, deadline));
  }
  return 1;
}

void arrivals_end(Arrivals *a) {
  server_close(a->server);
  for (int i = 0; i < a->came.count; i++) channel_close(a->came.data[i].channel), free(a->came.data[i].answer);
  vec_free(&a->came);
}
