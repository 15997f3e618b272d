// Point-to-point messages between processes. The number of a message is in its tag: streams may post them in any order.
#include "comm/process.h"
#include <stdlib.h>
#include <string.h>

// With the lock: which of the sends under way were copied? The first error of the wire.
static int test_queue(MessageQueue *queue) {
  int failed = 0;
  for (OutgoingMessage *message = record_queue_first(&queue->messages); message;
       message = record_queue_next(&queue->messages, message)) {
    int status = 0;
    if (message->posted && !message->copied) message->copied = batch_test(queue->world, &message->batch, &status) > 0;
    if (!failed) failed = status;
  }
  for (const OutgoingMessage *message; (message = record_queue_first(&queue->messages)) && message->copied;
       queue->copied++)
    record_queue_remove(&queue->messages);
  return failed;
}

// Without the lock: 1 when the first `value` sends were copied, 0 not yet, or a negative code.
static int queue_state(MessageQueue *queue, uint64_t value) {
  ProcessWorld *w = queue->world;
  int departed = -1, failed = 0;
  PlaitBuffer buffer = {0};
  CommCall call = {.kind = COMM_SEND, .root = queue->peer, .buffers = &buffer, .nbuffers = 1};
  Awaited whom = {queue->comm, &call, -1, NULL};
  process_lock(w);
  if (queue->copied < value) failed = test_queue(queue);
  if (queue->copied < value) process_look(w);
  int state = queue->copied >= value ? 1 : abort_code(&w->base.abort);
  if (!state) { // is the first that was not copied waited for in vain?
    const Header *header = &((OutgoingMessage *)record_queue_first(&queue->messages))->header;
    call.ticket = header->ticket;
    call.dtype = (PlaitDtype)header->dtype;
    buffer.count = (size_t)header->total;
    departed = departure_find(w, whom);
  }
  process_unlock(w);
  if (!state && failed) return process_failed(w, "send", failed);
  return departed < 0 ? state : departure_fail(w, whom, departed);
}

static int queue_done(PlaitTimeline *timeline, uint64_t value) {
  return queue_state((MessageQueue *)timeline, value);
}

static int queue_wait(PlaitTimeline *timeline, uint64_t value, const Waiter *waiter) {
  MessageQueue *queue = (MessageQueue *)timeline;
  Backoff backoff = {0};
  int state;
  while (!(state = queue_state(queue, value))) {
    waiter_sign(waiter);
    process_pause(queue->world, &backoff);
  }
  return state < 0 ? state : PLAIT_OK;
}

void message_queue_init(MessageQueue *queue, ProcessComm *c, int peer) {
  queue->timeline = (PlaitTimeline){queue_wait, queue_done, NULL,
                                    world_last(c->base.world, c->base.ranks[c->base.rank]), c->base.size};
  queue->world = (ProcessWorld *)c->base.world;
  queue->comm = c;
  queue->peer = peer;
}

void message_queue_free(MessageQueue *queue) { record_queue_free(&queue->messages); }

// A message of less than LARGEST_MESSAGE bytes: its header and one piece.
void message_reserve(PlaitComm *base, int peer, size_t messages, size_t buffers) {
  MessageQueue *queue = &((ProcessComm *)base)->queues[peer];
  process_lock(queue->world);
  record_queue_reserve(&queue->messages, messages, sizeof(OutgoingMessage) + 2 * sizeof(WireRequest), 0);
  if (messages && queue->world->wire->reserve)
    queue->world->wire->reserve(queue->world, (buffers + messages - 1) / messages, 2 * messages); // headers, too
  process_unlock(queue->world);
}

void message_issue(ProcessComm *c, CommCall *call, PlaitEvent *sent) {
  MessageQueue *queue = &c->queues[call->root];
  process_lock(queue->world);
  if (call->kind == COMM_RECV) {
    call->ticket = queue->receives++;
  } else {
    size_t requests = 1 + (comm_total(call) * comm_dtype_size(call->dtype) + LARGEST_MESSAGE - 1) / LARGEST_MESSAGE;
    OutgoingMessage *message =
        record_queue_add(&queue->messages, sizeof *message + requests * sizeof *message->requests);
    message->batch = (RequestBatch){.requests = message->requests, .capacity = (int)requests};
    message->posted = message->copied = 0;
    call->record = message;
    call->ticket = queue->sends++;
    message->header = header_of(c, call, call->root);
    if (sent) *sent = (PlaitEvent){&queue->timeline, queue->sends};
  }
  process_unlock(queue->world);
}

// With the lock: the progress_thread looks after it until all is copied.
static void enlist(MessageQueue *queue) {
  ProcessWorld *w = queue->world;
  if (queue->listed) return;
  queue->listed = 1;
  queue->next = w->pending;
  w->pending = queue;
  pthread_cond_signal(&w->work);
}

void *message_progress(void *argument) {
  ProcessWorld *w = argument;
  Backoff backoff = {0};
  check_set_rank(w->rank);
  process_lock(w);
  while (!w->stop) {
    if (!w->pending || abort_code(&w->base.abort)) {
      backoff = (Backoff){.turns = w->spin}; // never spins: nobody waits for it
      pthread_cond_wait(&w->work, &w->lock);
      continue;
    }
    int failed = 0;
    for (MessageQueue **link = &w->pending; *link && !failed;) {
      MessageQueue *queue = *link;
      failed = test_queue(queue);
      if (queue->copied < queue->sends) {
        link = &queue->next;
        continue;
      }
      *link = queue->next;
      queue->listed = 0;
    }
    process_unlock(w);
    if (failed) process_failed(w, "send", failed);
    else process_pause(w, &backoff);
    process_lock(w);
  }
  process_unlock(w);
  return NULL;
}

// The header is sent synchronously: it is gone when the receiver has come, also where the wire stores what follows.
int message_send(ProcessComm *c, const CommCall *call) {
  ProcessWorld *w = (ProcessWorld *)c->base.world;
  MessageQueue *queue = &c->queues[call->root];
  View view = view_call(call, 0, -1);
  int tag = process_tag(c, call), code = abort_code(&w->base.abort);
  if (code) return code;
  process_lock(w);
  OutgoingMessage *message = call->record;
  int status = process_post_header(c, &message->batch, WIRE_SYNCHRONOUS_SEND, &message->header, call->root, tag);
  if (!status) status = process_post(c, &message->batch, &view, 0, view.bytes, call->root, tag, 0);
  message->posted = !status;
  enlist(queue);
  process_unlock(w);
  if (status) return process_failed(w, "send", status);
  return call->rendezvous ? queue_wait(&queue->timeline, call->ticket + 1, call->waiter) : PLAIT_OK;
}

// Receives of one rank may run at the same time on several streams, so what one needs is on its stack.
int message_receive(ProcessComm *c, const CommCall *call) {
  ProcessWorld *w = (ProcessWorld *)c->base.world;
  View view = view_call(call, 1, -1);
  Header header;
  WireRequest first[4];
  RequestBatch batch = {.requests = first, .capacity = 4};
  int tag = process_tag(c, call), code = abort_code(&w->base.abort);
  if (code) return code;
  process_lock(w);
  int status = process_post_header(c, &batch, WIRE_RECEIVE, &header, call->root, tag);
  process_unlock(w);
  if (!status && !(code = process_wait_call(c, call, &batch)))
    code = header_check(c, call, call->root, &header);
  if (!status && !code) {
    RequestBatch *parts = &batch, many = {0};
    if (view.bytes > 3 * (size_t)LARGEST_MESSAGE) parts = &many;
    process_lock(w);
    status = process_post(c, parts, &view, 0, view.bytes, call->root, tag, 1);
    process_unlock(w);
    if (!status) code = process_wait_call(c, call, parts);
    batch_free(&many);
  }
  return !status ? code : process_failed(w, "recv", status);
}
