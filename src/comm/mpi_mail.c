// Point-to-point messages between processes. The number of a message is in its tag: streams may post them in any order.
#ifdef PLAIT_MPI
#include "comm/mpi_wire.h"
#include <stdlib.h>
#include <string.h>

// With the lock: which of the sends under way were copied?
static void test_mail(WireMail *mail) {
  for (Letter *letter = record_queue_first(&mail->letters); letter; letter = record_queue_next(&mail->letters, letter)) {
    int status;
    // An error is not lost: it is not copied then, and whoever waits for another message meets the error too.
    if (letter->posted && !letter->copied) letter->copied = batch_test(&letter->batch, &status) > 0;
  }
  for (const Letter *letter; (letter = record_queue_first(&mail->letters)) && letter->copied; mail->copied++)
    record_queue_remove(&mail->letters);
}

// Without the lock: 1 when the first `value` sends were copied, 0 not yet, or a negative code.
static int mail_state(WireMail *mail, uint64_t value) {
  MpiWorld *w = mail->world;
  int departed = -1;
  PlaitBuffer buffer = {0};
  CommCall call = {.kind = COMM_SEND, .root = mail->peer, .buffers = &buffer, .nbuffers = 1};
  Awaited whom = {mail->comm, &call, -1, NULL};
  wire_lock(w);
  if (mail->copied < value) test_mail(mail);
  if (mail->copied < value) wire_look(w);
  int state = mail->copied >= value ? 1 : abort_code(&w->base.abort);
  if (!state) { // is the first that was not copied waited for in vain?
    const Head *head = &((Letter *)record_queue_first(&mail->letters))->head;
    call.ticket = head->ticket;
    call.dtype = (PlaitDtype)head->dtype;
    buffer.count = (size_t)head->total;
    departed = departure_find(w, whom);
  }
  wire_unlock(w);
  return departed < 0 ? state : departure_fail(w, whom, departed);
}

static int mail_done(PlaitTimeline *timeline, uint64_t value) { return mail_state((WireMail *)timeline, value); }

static int mail_wait(PlaitTimeline *timeline, uint64_t value, const Waiter *waiter) {
  WireMail *mail = (WireMail *)timeline;
  Patience patience = {0};
  int state;
  while (!(state = mail_state(mail, value))) {
    waiter_sign(waiter);
    wire_pause(mail->world, &patience);
  }
  return state < 0 ? state : PLAIT_OK;
}

void wire_mail_init(WireMail *mail, MpiComm *c, int peer) {
  mail->timeline = (PlaitTimeline){mail_wait, mail_done, NULL, &c->base.world->last[c->base.ranks[c->base.rank]], c->base.size};
  mail->world = (MpiWorld *)c->base.world;
  mail->comm = c;
  mail->peer = peer;
}

void wire_mail_free(WireMail *mail) { record_queue_free(&mail->letters); }

// A message of less than LARGEST_MESSAGE bytes: its head and one piece.
void wire_mail_reserve(PlaitComm *base, int peer, size_t messages, size_t buffers) {
  WireMail *mail = &((MpiComm *)base)->mail[peer];
  wire_lock(mail->world);
  record_queue_reserve(&mail->letters, messages, sizeof(Letter) + 2 * sizeof(MPI_Request), 0);
  wire_unlock(mail->world);
}

void wire_mail_issue(MpiComm *c, CommCall *call, PlaitEvent *sent) {
  WireMail *mail = &c->mail[call->root];
  wire_lock(mail->world);
  if (call->kind == COMM_RECV) {
    call->ticket = mail->receives++;
  } else {
    size_t requests = 1 + (comm_total(call) * comm_dtype_size(call->dtype) + LARGEST_MESSAGE - 1) / LARGEST_MESSAGE;
    Letter *letter = record_queue_add(&mail->letters, sizeof *letter + requests * sizeof *letter->requests);
    letter->batch = (Batch){.requests = letter->requests, .capacity = (int)requests};
    letter->posted = letter->copied = 0;
    call->record = letter;
    call->ticket = mail->sends++;
    letter->head = head_of(c, call, call->root);
    if (sent) *sent = (PlaitEvent){&mail->timeline, mail->sends};
  }
  wire_unlock(mail->world);
}

// With the lock: the courier looks after it until all is copied.
static void enlist(WireMail *mail) {
  MpiWorld *w = mail->world;
  if (mail->listed) return;
  mail->listed = 1;
  mail->next = w->pending;
  w->pending = mail;
  pthread_cond_signal(&w->work);
}

void *wire_courier(void *argument) {
  MpiWorld *w = argument;
  Patience patience = {0};
  check_set_rank(w->rank);
  wire_lock(w);
  while (!w->stop) {
    if (!w->pending || abort_code(&w->base.abort)) {
      patience = (Patience){.turns = w->spin}; // never spins: nobody waits for it
      pthread_cond_wait(&w->work, &w->lock);
      continue;
    }
    for (WireMail **link = &w->pending; *link;) {
      WireMail *mail = *link;
      test_mail(mail);
      if (mail->copied < mail->sends) {
        link = &mail->next;
        continue;
      }
      *link = mail->next;
      mail->listed = 0;
    }
    wire_unlock(w);
    wire_pause(w, &patience);
    wire_lock(w);
  }
  wire_unlock(w);
  return NULL;
}

// The head is sent synchronously: it is gone when the receiver has come, also where MPI stores what follows.
int wire_send(MpiComm *c, const CommCall *call) {
  MpiWorld *w = (MpiWorld *)c->base.world;
  WireMail *mail = &c->mail[call->root];
  View view = view_call(call, 0, -1);
  int tag = wire_tag(c, call), code = abort_code(&w->base.abort);
  if (code) return code;
  wire_lock(w);
  Letter *letter = call->record;
  int status = MPI_Issend(&letter->head, sizeof letter->head, MPI_BYTE, call->root, tag, c->comm, batch_add(&letter->batch));
  if (status == MPI_SUCCESS) status = wire_post(c, &letter->batch, &view, 0, view.bytes, call->root, tag, 0);
  letter->posted = status == MPI_SUCCESS;
  enlist(mail);
  wire_unlock(w);
  if (status != MPI_SUCCESS) return wire_failed(w, "send", status);
  return call->rendezvous ? mail_wait(&mail->timeline, call->ticket + 1, call->waiter) : PLAIT_OK;
}

// Receives of one rank may run at the same time on several streams, so what one needs is on its stack.
int wire_receive(MpiComm *c, const CommCall *call) {
  MpiWorld *w = (MpiWorld *)c->base.world;
  View view = view_call(call, 1, -1);
  Head head;
  MPI_Request first[4];
  Batch batch = {.requests = first, .capacity = 4};
  int tag = wire_tag(c, call), code = abort_code(&w->base.abort);
  if (code) return code;
  wire_lock(w);
  int status = MPI_Irecv(&head, sizeof head, MPI_BYTE, call->root, tag, c->comm, batch_add(&batch));
  wire_unlock(w);
  if (status == MPI_SUCCESS && !(code = wire_wait_call(c, call, &batch))) code = head_check(c, call, call->root, &head);
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
