// Ranks that destroy their handles tell the others of the communicator, which must not wait for them. On the control
// communicator: what is under way on one that is freed could meet a later one.
#ifdef PLAIT_MPI
#include "comm/mpi_wire.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct Outgoing { Departure departure; MPI_Request request; } Outgoing;

static void receive_next(MpiWorld *w) {
  MPI_Irecv(&w->departure, sizeof w->departure, MPI_BYTE, MPI_ANY_SOURCE, TAG_DEPARTURE, w->control, &w->departure_in);
}

// A communicator that is not among the handles has been destroyed here: its creation, which no rank leaves before all
// have come, makes the handle without letting go of the lock.
static void note(MpiWorld *w, const Departure *d) {
  w->departed++;
  if (d->comm == UINT64_MAX) w->gone[d->rank] = 1;
  for (MpiComm *c = w->handles; c; c = c->next)
    for (int p = 0; c->id == d->comm && p < c->base.size; p++)
      if (c->base.ranks[p] == d->rank) c->left[p] = *d;
}

void departures_look(MpiWorld *w) {
  for (int arrived = 1; arrived;) {
    if (w->departure_in == MPI_REQUEST_NULL) receive_next(w);
    if (MPI_Test(&w->departure_in, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (arrived) note(w, &w->departure);
  }
}

static void send_to(MpiWorld *w, const Departure *d, int rank) {
  Outgoing *o = record_queue_add(&w->departures, sizeof *o);
  *o = (Outgoing){*d, MPI_REQUEST_NULL};
  MPI_Isend(&o->departure, sizeof o->departure, MPI_BYTE, rank, TAG_DEPARTURE, w->control, &o->request);
}

static void drop_sent(MpiWorld *w) {
  int done = 1;
  for (Outgoing *o; done && (o = record_queue_first(&w->departures));) {
    if (MPI_Test(&o->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (done) record_queue_remove(&w->departures);
  }
}

void departure_send(MpiComm *c) {
  MpiWorld *w = (MpiWorld *)c->base.world;
  MpiComm **link = &w->handles;
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

int departure_find(const MpiWorld *w, Awaited whom) {
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

int departure_fail(MpiWorld *w, Awaited whom, int departed) {
  if (whom.call) return comm_fail_departed(&whom.comm->base, whom.call, departed);
  char message[160];
  snprintf(message, sizeof message,
           "rank %d creates a communicator with rank %d, which has destroyed all its handles and cannot join", w->rank,
           departed);
  int code = abort_all(&w->base.abort, PLAIT_FAILED, message);
  wire_notify(w);
  return code;
}

// When all ranks leave MPI: what is still under way is of no use to anybody.
void departures_forget(MpiWorld *w) {
  departures_look(w);
  drop_sent(w);
  MPI_Cancel(&w->departure_in);
  MPI_Request_free(&w->departure_in);
  for (Outgoing *o; (o = record_queue_first(&w->departures)); record_queue_remove(&w->departures))
    MPI_Request_free(&o->request);
}
#endif
