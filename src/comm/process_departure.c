// Ranks that destroy their handles tell the others of the communicator, which must not wait for them. In the control
// context: what is under way on one that is freed could meet a later one.
#include "comm/process.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct Outgoing { Departure departure; WireRequest request; } Outgoing;

static int receive_next(ProcessWorld *w) {
  return control_post(w, WIRE_RECEIVE, &w->departure, sizeof w->departure, -1, TAG_DEPARTURE, &w->departure_in);
}

// A communicator that is not among the handles has been destroyed here: its creation, which no rank leaves before all
// have come, makes the handle without letting go of the lock.
static void note(ProcessWorld *w, const Departure *d) {
  if (d->rank < 0 || d->rank >= w->base.ranks) return; // what came over the network may be anything
  w->departed++;
  if (d->comm == UINT64_MAX) w->gone[d->rank] = 1;
  for (ProcessComm *c = w->handles; c; c = c->next)
    for (int p = 0; c->id == d->comm && p < c->base.size; p++)
      if (c->base.ranks[p] == d->rank) c->left[p] = *d;
}

void departures_look(ProcessWorld *w) {
  for (int arrived = 1; arrived;) {
    if (!w->departure_in.pending && receive_next(w)) return;
    if (w->wire->test(w, &w->departure_in, &arrived)) return;
    if (arrived) note(w, &w->departure);
  }
}

static void send_to(ProcessWorld *w, const Departure *d, int rank) {
  Outgoing *o = record_queue_add(&w->departures, sizeof *o);
  *o = (Outgoing){.departure = *d};
  control_post(w, WIRE_SEND, &o->departure, sizeof o->departure, rank, TAG_DEPARTURE, &o->request);
}

static void drop_sent(ProcessWorld *w) {
  int done = 1;
  for (Outgoing *o; done && (o = record_queue_first(&w->departures));) {
    if (w->wire->test(w, &o->request, &done)) return;
    if (done) record_queue_remove(&w->departures);
  }
}

void departure_send(ProcessComm *c) {
  ProcessWorld *w = (ProcessWorld *)c->base.world;
  ProcessComm **link = &w->handles;
  while (*link != c) link = &(*link)->next;
  *link = c->next;
  drop_sent(w);
  for (int p = 0; p < c->base.size && !abort_code(&w->base.abort); p++)
    if (p != c->base.rank)
      send_to(w, &(Departure){c->id, w->rank, 1, c->issued, c->queues[p].sends, c->queues[p].receives},
              c->base.ranks[p]);
  for (int r = 0; r < w->base.ranks && w->taken && !w->handles && !abort_code(&w->base.abort); r++)
    if (r != w->rank) send_to(w, &(Departure){.comm = UINT64_MAX, .rank = w->rank, .gone = 1}, r);
}

int departure_find(const ProcessWorld *w, Awaited whom) {
  const CommCall *call = whom.call;
  if (!w->departed) return -1;
  if (!call) return whom.rank >= 0 && w->gone[whom.rank] ? whom.rank : -1;
  int message = call->kind == COMM_SEND || call->kind == COMM_RECV;
  for (int p = message ? call->root : 0; p < (message ? call->root + 1 : whom.comm->base.size); p++) {
    const Departure *d = &whom.comm->left[p];
    if (d->gone && call->ticket >= (call->kind == COMM_SEND   ? d->receives
                                    : call->kind == COMM_RECV ? d->sends
                                                              : d->collectives))
      return p;
  }
  return -1;
}

int departure_fail(ProcessWorld *w, Awaited whom, int departed) {
  if (whom.call) return comm_fail_departed(&whom.comm->base, whom.call, departed);
  Error error = {0};
  ErrorFacts facts = {.rank = error_rank(w->rank, NULL), .blamed = error_rank(departed, NULL)};
  error_set_about(&error, PLAIT_FAILED, &facts,
                  "rank %d creates a communicator with rank %d, which has destroyed all its handles and cannot join",
                  w->rank, departed);
  int code = abort_all(&w->base.abort, &error);
  process_notify(w);
  return code;
}

// When all ranks leave: what is still under way is of no use to anybody.
void departures_forget(ProcessWorld *w) {
  departures_look(w);
  drop_sent(w);
  w->wire->forget(w, &w->departure_in);
  for (Outgoing *o; (o = record_queue_first(&w->departures)); record_queue_remove(&w->departures))
    w->wire->forget(w, &o->request);
}
