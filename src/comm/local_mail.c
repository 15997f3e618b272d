// Point-to-point messages between threads: the sender leaves a letter with pointers, the receiver copies and says so.
#include "comm/local.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Where message `value` is, with the lock: 1 copied, 0 not yet, or a negative code. *lost: the first that nobody will receive; its
// record stays. A sender must not leave while its memory is being read, not even when the world has failed.
static int state_of(LocalMail *mail, uint64_t value, const LocalLetter **lost) {
  int code = abort_code(mail->monitor->abort);
  *lost = mail->done < value && !mail->copying && !code && mail->receiver_left ? record_queue_first(&mail->letters) : NULL;
  return mail->done >= value ? 1 : mail->copying ? 0 : code;
}

static int fail_lost(LocalMail *mail, const LocalLetter *lost) {
  LocalGroup *g = mail->group;
  int at = (int)(mail - g->mail), receiver = at / g->n, sender = at % g->n;
  PlaitComm comm = {.backend = g->backend, .world = g->world, .rank = sender, .size = g->n, .ranks = g->ranks};
  return comm_fail_departed(&comm, &lost->call, receiver);
}

static int mail_wait(PlaitTimeline *timeline, uint64_t value, const Waiter *waiter) {
  LocalMail *mail = (LocalMail *)timeline;
  const LocalLetter *lost;
  int state;
  monitor_lock(mail->monitor);
  while (!(state = state_of(mail, value, &lost)) && !lost) monitor_wait(mail->monitor, waiter);
  monitor_unlock(mail->monitor);
  if (lost) return fail_lost(mail, lost);
  return state < 0 ? state : PLAIT_OK;
}

static int mail_done(PlaitTimeline *timeline, uint64_t value) {
  LocalMail *mail = (LocalMail *)timeline;
  const LocalLetter *lost;
  monitor_lock(mail->monitor);
  int state = state_of(mail, value, &lost);
  monitor_unlock(mail->monitor);
  return lost ? fail_lost(mail, lost) : state;
}

void local_mail_init(LocalMail *mail, LocalGroup *group, Monitor *inbox) {
  mail->timeline = (PlaitTimeline){.wait = mail_wait, .done = mail_done};
  mail->group = group;
  mail->monitor = inbox;
}

void local_mail_free(LocalMail *mail) { record_queue_free(&mail->letters); }

static LocalMail *mail_of(LocalComm *comm, const CommCall *call) {
  int receiver = call->kind == COMM_SEND ? call->root : comm->base.rank;
  int sender = call->kind == COMM_SEND ? comm->base.rank : call->root;
  return &comm->group->mail[receiver * comm->group->n + sender];
}

void local_mail_reserve(PlaitComm *base, int peer, size_t messages, size_t buffers) {
  LocalMail *mail = mail_of((LocalComm *)base, &(CommCall){.kind = COMM_SEND, .root = peer});
  monitor_lock(mail->monitor);
  record_queue_reserve(&mail->letters, messages, sizeof(LocalLetter), buffers * sizeof(PlaitBuffer));
  monitor_unlock(mail->monitor);
}

void local_mail_issue(LocalComm *comm, CommCall *call, PlaitEvent *sent) {
  LocalMail *mail = mail_of(comm, call);
  monitor_lock(mail->monitor);
  if (call->kind == COMM_RECV) {
    call->ticket = mail->receives++;
  } else {
    size_t list = call->nbuffers * sizeof *call->buffers;
    LocalLetter *letter = record_queue_add(&mail->letters, sizeof *letter + list);
    if (list) memcpy(letter->buffers, call->buffers, list);
    call->ticket = mail->sends++;
    call->record = letter;
    letter->call = *call;
    letter->call.buffers = letter->buffers;
    letter->ready = 0;
    if (!mail->timeline.last) { // its only sender's
      mail->timeline.waiter = &comm->base.waiter;
      mail->timeline.last = &comm->base.world->last[comm->group->ranks[comm->base.rank]];
      mail->timeline.peers = comm->base.size;
    }
    if (sent) *sent = (PlaitEvent){&mail->timeline, mail->sends};
  }
  monitor_unlock(mail->monitor);
}

int local_mail_send(LocalComm *comm, const CommCall *call) {
  LocalMail *mail = mail_of(comm, call);
  monitor_lock(mail->monitor);
  ((LocalLetter *)call->record)->ready = 1;
  monitor_notify_all(mail->monitor);
  monitor_unlock(mail->monitor);
  if (call->rendezvous) return mail_wait(&mail->timeline, call->ticket + 1, call->waiter);
  return abort_code(mail->monitor->abort);
}

// Both lists hold the same number of elements, cut in their own ways.
static void copy_list(const CommCall *to, const CommCall *from) {
  size_t size = comm_dtype_size(to->dtype), i = 0, k = 0, i_at = 0, k_at = 0;
  while (i < to->nbuffers && k < from->nbuffers) {
    size_t to_left = to->buffers[i].count - i_at, from_left = from->buffers[k].count - k_at;
    size_t count = to_left < from_left ? to_left : from_left;
    if (count)
      memmove((char *)to->buffers[i].recv + i_at * size, (const char *)from->buffers[k].send + k_at * size, count * size);
    i_at += count;
    k_at += count;
    if (i_at == to->buffers[i].count) i++, i_at = 0;
    if (k_at == from->buffers[k].count) k++, k_at = 0;
  }
}

static int refuse(LocalComm *comm, const CommCall *call, const CommCall *sent) {
  char message[512], first[160], second[160];
  comm_describe(sent, first, sizeof first);
  comm_describe(call, second, sizeof second);
  snprintf(message, sizeof message, "rank %d calls %s while rank %d calls %s (message %llu between them)",
           comm->group->ranks[call->root], first, comm->group->ranks[comm->base.rank], second,
           (unsigned long long)call->ticket + 1);
  return abort_all(&comm->base.world->abort, PLAIT_FAILED, message);
}

int local_mail_receive(LocalComm *comm, const CommCall *call) {
  LocalMail *mail = mail_of(comm, call);
  monitor_lock(mail->monitor);
  for (;;) {
    int code = abort_code(mail->monitor->abort), never = mail->sender_left && mail->sends <= call->ticket;
    if (code < 0 || never) {
      monitor_unlock(mail->monitor);
      return code < 0 ? code : comm_fail_departed(&comm->base, call, call->root);
    }
    const LocalLetter *letter = mail->done == call->ticket ? record_queue_first(&mail->letters) : NULL;
    if (letter && letter->ready) break;
    monitor_wait(mail->monitor, call->waiter);
  }
  const CommCall *sent = &((LocalLetter *)record_queue_first(&mail->letters))->call;
  mail->copying = 1;
  monitor_unlock(mail->monitor);
  int fits = sent->dtype == call->dtype && comm_total(sent) == comm_total(call);
  if (fits) copy_list(call, sent);
  int code = fits ? PLAIT_OK : refuse(comm, call, sent);
  monitor_lock(mail->monitor);
  mail->copying = 0;
  if (fits) {
    record_queue_remove(&mail->letters);
    mail->done++;
  }
  monitor_notify_all(mail->monitor);
  monitor_unlock(mail->monitor);
  return code;
}

static void leave(Monitor *monitor, int *left) {
  monitor_lock(monitor);
  *left = 1;
  monitor_notify_all(monitor);
  monitor_unlock(monitor);
}

void local_mail_leave(LocalComm *comm) {
  LocalGroup *g = comm->group;
  int me = comm->base.rank;
  for (int p = 0; p < g->n; p++) {
    leave(&g->inbox[me], &g->mail[me * g->n + p].receiver_left);
    leave(&g->inbox[p], &g->mail[p * g->n + me].sender_left);
  }
}
