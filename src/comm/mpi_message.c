// Point-to-point messages between processes. The number of a message is in its tag: streams may post them in any order.
#ifdef PLAIT_MPI
#include "comm/mpi_wire.h"
#include <stdlib.h>
#include <string.h>

// With the lock: which of the sends under way were copied?
static void test_queue(WireMessageQueue *queue) {
  for (WireMessage *message = record_queue_first(&queue->messages); message;
       message = record_queue_next(&queue->messages, message)) {
    int status;
    // An error is not lost: it is not copied then, and whoever waits for another message meets the error too.
    if (message->posted && !message->copied) message->copied = batch_test(&message->batch, &status) > 0;
  }
  for (const WireMessage *message; (message = record_queue_first(&queue->messages)) && message->copied; queue->copied++)
    record_queue_remove(&queue->messages);
}

// Without the lock: 1 when the first `value` sends were copied, 0 not yet, or a negative code.
static int queue_state(WireMessageQueue *queue, uint64_t value) {
  MpiWorld *w = queue->world;
  int departed = -1;
  PlaitBuffer buffer = {0};
  CommCall call = {.kind = COMM_SEND, .root = queue->peer, .buffers = &buffer, .nbuffers = 1};
  Awaited whom = {queue->comm, &call, -1, NULL};
  wire_lock(w);
  if (queue->copied < value) test_queue(queue);
  if (queue->copied < value) wire_look(w);
  int state = queue->copied >= value ? 1 : abort_code(&w->base.abort);
  if (!state) { // is the first that was not copied waited for in vain?
    const Header *header = &((WireMessage *)record_queue_first(&queue->messages))->header;
    call.ticket = header->ticket;
    call.dtype = (PlaitDtype)header->dtype;
    buffer.count = (size_t)header->total;
    departed = departure_find(w, whom);
  }
  wire_unlock(w);
  return departed < 0 ? state : departure_fail(w, whom, departed);
}

static int queue_done(PlaitTimeline *timeline, uint64_t value) {
  return queue_state((WireMessageQueue *)timeline, value);
}

static int queue_wait(PlaitTimeline *timeline, uint64_t value, const Waiter *waiter) {
  WireMessageQueue *queue = (WireMessageQueue *)timeline;
  Backoff backoff = {0};
  int state;
  while (!(state = queue_state(queue, value))) {
    waiter_sign(waiter);
    wire_pause(queue->world, &backoff);
  }
  return state < 0 ? state : PLAIT_OK;
}

void wire_message_queue_init(WireMessageQueue *queue, MpiComm *c, int peer) {
  queue->timeline =
      (PlaitTimeline){queue_wait, queue_done, NULL, &c->base.world->last[c->base.ranks[c->base.rank]], c->base.size};
  queue->world = (MpiWorld *)c->base.world;
  queue->comm = c;
  queue->peer = peer;
}

void wire_message_queue_free(WireMessageQueue *queue) { record_queue_free(&queue->messages); }

// A message of less than LARGEST_MESSAGE bytes: its header and one piece.
void wire_message_reserve(PlaitComm *base, int peer, size_t messages, size_t buffers) {
  WireMessageQueue *queue = &((MpiComm *)base)->queues[peer];
  wire_lock(queue->world);
  record_queue_reserve(&queue->messages, messages, sizeof(WireMessage) + 2 * sizeof(MPI_Request), 0);
  wire_unlock(queue->world);
}

void wire_message_issue(MpiComm *c, CommCall *call, PlaitEvent *sent) {
  WireMessageQueue *queue = &c->queues[call->root];
  wire_lock(queue->world);
  if (call->kind == COMM_RECV) {
    call->ticket = queue->receives++;
  } else {
    size_t requests = 1 + (comm_total(call) * comm_dtype_size(call->dtype) + LARGEST_MESSAGE - 1) / LARGEST_MESSAGE;
    WireMessage *message = record_queue_add(&queue->messages, sizeof *message + requests * sizeof *message->requests);
    message->batch = (Batch){.requests = message->requests, .capacity = (int)requests};
    message->posted = message->copied = 0;
    call->record = message;
    call->ticket = queue->sends++;
    message->header = header_of(c, call, call->root);
    if (sent) *sent = (PlaitEvent){&queue->timeline, queue->sends};
  }
  wire_unlock(queue->world);
}

// With the lock: the progress_thread looks after it until all is copied.
static void enlist(WireMessageQueue *queue) {
  MpiWorld *w = queue->world;
  if (queue->listed) return;
  queue->listed = 1;
  queue->next = w->pending;
  w->pending = queue;
  pthread_cond_signal(&w->work);
}

void *wire_progress(void *argument) {
  MpiWorld *w = argument;
  Backoff backoff = {0};
  check_set_rank(w->rank);
  wire_lock(w);
  while (!w->stop) {
    if (!w->pending || abort_code(&w->base.abort)) {
      backoff = (Backoff){.turns = w->spin}; // never spins: nobody waits for it
      pthread_cond_wait(&w->work, &w->lock);
      continue;
    }
    for (WireMessageQueue **link = &w->pending; *link;) {
      WireMessageQueue *queue = *link;
      test_queue(queue);
      if (queue->copied < queue->sends) {
        link = &queue->next;
        continue;
      }
      *link = queue->next;
      queue->listed = 0;
    }
    wire_unlock(w);
    wire_pause(w, &backoff);
    wire_lock(w);
  }
  wire_unlock(w);
  return NULL;
}

// The header is sent synchronously: it is gone when the receiver has come, also where MPI stores what follows.
int wire_send(MpiComm *c, const CommCall *call) {
  MpiWorld *w = (MpiWorld *)c->base.world;
  WireMessageQueue *queue = &c->queues[call->root];
  View view = view_call(call, 0, -1);
  int tag = wire_tag(c, call), code = abort_code(&w->base.abort);
  if (code) return code;
  wire_lock(w);
  WireMessage *message = call->record;
  int status = MPI_Issend(&message->header, sizeof message->header, MPI_BYTE, call->root, tag, c->comm,
                          batch_add(&message->batch));
  if (status == MPI_SUCCESS) status = wire_post(c, &message->batch, &view, 0, view.bytes, call->root, tag, 0);
  message->posted = status == MPI_SUCCESS;
  enlist(queue);
  wire_unlock(w);
  if (status != MPI_SUCCESS) return wire_failed(w, "send", status);
  return call->rendezvous ? queue_wait(&queue->timeline, call->ticket + 1, call->waiter) : PLAIT_OK;
}

// Receives of one rank may run at the same time on several streams, so what one needs is on its stack.
int wire_receive(MpiComm *c, const CommCall *call) {
  MpiWorld *w = (MpiWorld *)c->base.world;
  View view = view_call(call, 1, -1);
  Header header;
  MPI_Request first[4];
  Batch batch = {.requests = first, .capacity = 4};
  int tag = wire_tag(c, call), code = abort_code(&w->base.abort);
  if (code) return code;
  wire_lock(w);
  int status = MPI_Irecv(&header, sizeof header, MPI_BYTE, call->root, tag, c->comm, batch_add(&batch));
  wire_unlock(w);
  if (status == MPI_SUCCESS && !(code = wire_wait_call(c, call, &batch)))
    code = header_check(c, call, call->root, &header);
  if (status == MPI_SUCCESS && !code) {
    Batch *parts = &batch, many = {0};
    if (view.bytes > 3 * (size_t)LARGEST_MESSAGE) parts = &many;
    wire_lock(w);
    status = wire_post(c, parts, &view, 0, view.bytes, call->root, tag, 1);
    wire_unlock(w);
    if (status == MPI_SUCCESS) code = wire_wait_call(c, call, parts);
    batch_free(&many);
  }
  return status == MPI_SUCCESS ? code : wire_failed(w, "recv", status);
}
#endif
