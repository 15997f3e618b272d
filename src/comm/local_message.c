// Point-to-point messages between threads: the sender leaves a message with pointers, the receiver copies and says so.
#include "comm/local.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Where message `value` is, with the lock: 1 copied, 0 not yet, or a negative code. *lost: the first that nobody will
// receive; its record stays. A sender must not leave while its memory is being read, not even when the world has
// failed.
static int state_of(LocalMessageQueue *queue, uint64_t value, const LocalMessage **lost) {
  int code = abort_code(queue->monitor->abort);
  *lost = queue->done < value && !queue->copying && !code && queue->receiver_left ? record_queue_first(&queue->messages)
                                                                                  : NULL;
  return queue->done >= value ? 1 : queue->copying ? 0 : code;
}

static int fail_lost(LocalMessageQueue *queue, const LocalMessage *lost) {
  LocalGroup *g = queue->group;
  int at = (int)(queue - g->queues), receiver = at / g->n, sender = at % g->n;
  PlaitComm comm = {.backend = g->backend, .world = g->world, .rank = sender, .size = g->n, .ranks = g->ranks};
  return comm_fail_departed(&comm, &lost->call, receiver);
}

static int queue_wait(PlaitTimeline *timeline, uint64_t value, const Waiter *waiter) {
  LocalMessageQueue *queue = (LocalMessageQueue *)timeline;
  const LocalMessage *lost;
  int state;
  monitor_lock(queue->monitor);
  while (!(state = state_of(queue, value, &lost)) && !lost) monitor_wait(queue->monitor, waiter);
  monitor_unlock(queue->monitor);
  if (lost) return fail_lost(queue, lost);
  return state < 0 ? state : PLAIT_OK;
}

static int queue_done(PlaitTimeline *timeline, uint64_t value) {
  LocalMessageQueue *queue = (LocalMessageQueue *)timeline;
  const LocalMessage *lost;
  monitor_lock(queue->monitor);
  int state = state_of(queue, value, &lost);
  monitor_unlock(queue->monitor);
  return lost ? fail_lost(queue, lost) : state;
}

void local_message_queue_init(LocalMessageQueue *queue, LocalGroup *group, Monitor *monitor) {
  queue->timeline = (PlaitTimeline){.wait = queue_wait, .done = queue_done};
  queue->group = group;
  queue->monitor = monitor;
}

void local_message_queue_free(LocalMessageQueue *queue) { record_queue_free(&queue->messages); }

static LocalMessageQueue *queue_of(LocalComm *comm, const CommCall *call) {
  int receiver = call->kind == COMM_SEND ? call->root : comm->base.rank;
  int sender = call->kind == COMM_SEND ? comm->base.rank : call->root;
  return &comm->group->queues[receiver * comm->group->n + sender];
}

void local_message_reserve(PlaitComm *base, int peer, size_t messages, size_t buffers) {
  LocalMessageQueue *queue = queue_of((LocalComm *)base, &(CommCall){.kind = COMM_SEND, .root = peer});
  monitor_lock(queue->monitor);
  record_queue_reserve(&queue->messages, messages, sizeof(LocalMessage), buffers * sizeof(PlaitBuffer));
  monitor_unlock(queue->monitor);
}

void local_message_issue(LocalComm *comm, CommCall *call, PlaitEvent *sent) {
  LocalMessageQueue *queue = queue_of(comm, call);
  monitor_lock(queue->monitor);
  if (call->kind == COMM_RECV) {
    call->ticket = queue->receives++;
  } else {
    size_t list = call->nbuffers * sizeof *call->buffers;
    LocalMessage *message = record_queue_add(&queue->messages, sizeof *message + list);
    if (list) memcpy(message->buffers, call->buffers, list);
    call->ticket = queue->sends++;
    call->record = message;
    message->call = *call;
    message->call.buffers = message->buffers;
    message->ready = 0;
    if (!queue->timeline.last) { // its only sender's
      queue->timeline.waiter = &comm->base.waiter;
      queue->timeline.last = world_last(comm->base.world, comm->group->ranks[comm->base.rank]);
      queue->timeline.peers = comm->base.size;
    }
    if (sent) *sent = (PlaitEvent){&queue->timeline, queue->sends};
  }
  monitor_unlock(queue->monitor);
}

int local_message_send(LocalComm *comm, const CommCall *call) {
  LocalMessageQueue *queue = queue_of(comm, call);
  monitor_lock(queue->monitor);
  ((LocalMessage *)call->record)->ready = 1;
  monitor_notify_all(queue->monitor);
  monitor_unlock(queue->monitor);
  if (call->rendezvous) return queue_wait(&queue->timeline, call->ticket + 1, call->waiter);
  return abort_code(queue->monitor->abort);
}

// Both lists hold the same number of elements, cut in their own ways.
static void copy_list(const CommCall *to, const CommCall *from) {
  size_t size = comm_dtype_size(to->dtype), i = 0, k = 0, i_at = 0, k_at = 0;
  while (i < to->nbuffers && k < from->nbuffers) {
    size_t to_left = to->buffers[i].count - i_at, from_left = from->buffers[k].count - k_at;
    size_t count = to_left < from_left ? to_left : from_left;
    if (count)
      memmove((char *)to->buffers[i].recv + i_at * size, (const char *)from->buffers[k].send + k_at * size,
              count * size);
    i_at += count;
    k_at += count;
    if (i_at == to->buffers[i].count) i++, i_at = 0;
    if (k_at == from->buffers[k].count) k++, k_at = 0;
  }
}

static int refuse(LocalComm *comm, const CommCall *call, const CommCall *sent) {
  char first[160], second[160];
  int sender = comm->group->ranks[call->root];
  Error error = {0};
  comm_describe(sent, first, sizeof first);
  comm_describe(call, second, sizeof second);
  error_set_about(&error, PLAIT_FAILED, &(ErrorFacts){.rank = error_rank(sender, NULL)},
                  "rank %d calls %s while rank %d calls %s (message %llu between them)", sender, first,
                  comm->group->ranks[comm->base.rank], second, (unsigned long long)call->ticket + 1);
  return abort_all(&comm->base.world->abort, &error);
}

int local_message_receive(LocalComm *comm, const CommCall *call) {
  LocalMessageQueue *queue = queue_of(comm, call);
  monitor_lock(queue->monitor);
  for (;;) {
    int code = abort_code(queue->monitor->abort), never = queue->sender_left && queue->sends <= call->ticket;
    if (code < 0 || never) {
      monitor_unlock(queue->monitor);
      return code < 0 ? code : comm_fail_departed(&comm->base, call, call->root);
    }
    const LocalMessage *message = queue->done == call->ticket ? record_queue_first(&queue->messages) : NULL;
    if (message && message->ready) break;
    monitor_wait(queue->monitor, call->waiter);
  }
  const CommCall *sent = &((LocalMessage *)record_queue_first(&queue->messages))->call;
  queue->copying = 1;
  monitor_unlock(queue->monitor);
  int fits = sent->dtype == call->dtype && comm_total(sent) == comm_total(call);
  if (fits) copy_list(call, sent);
  int code = fits ? PLAIT_OK : refuse(comm, call, sent);
  monitor_lock(queue->monitor);
  queue->copying = 0;
  if (fits) {
    record_queue_remove(&queue->messages);
    queue->done++;
  }
  monitor_notify_all(queue->monitor);
  monitor_unlock(queue->monitor);
  return code;
}

static void leave(Monitor *monitor, int *left) {
  monitor_lock(monitor);
  *left = 1;
  monitor_notify_all(monitor);
  monitor_unlock(monitor);
}

void local_message_leave(LocalComm *comm) {
  LocalGroup *g = comm->group;
  int me = comm->base.rank;
  for (int p = 0; p < g->n; p++) {
    leave(&g->message_monitor[me], &g->queues[me * g->n + p].receiver_left);
    leave(&g->message_monitor[p], &g->queues[p * g->n + me].sender_left);
  }
}
