// Tickets that have come, and those that are not wanted any more.
#include "serve/ticket_queue.h"

void ticket_queue_create(TicketQueue *q, int most) {
  *q = (TicketQueue){.most = most};
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_mutex_init(&q->mutex, NULL);
  pthread_cond_init(&q->changed, &clock);
  pthread_condattr_destroy(&clock);
}

void ticket_queue_destroy(TicketQueue *q) {
  for (int i = 0; i < q->arrived.count; i++) ticket_release(q->arrived.data[i]);
  vec_free(&q->arrived);
  pthread_cond_destroy(&q->changed);
  pthread_mutex_destroy(&q->mutex);
}

QueueState ticket_queue_state(TicketQueue *q) {
  pthread_mutex_lock(&q->mutex);
  QueueState state = q->state;
  pthread_mutex_unlock(&q->mutex);
  return state;
}

void ticket_queue_set_state(TicketQueue *q, QueueState state) {
  pthread_mutex_lock(&q->mutex);
  q->state = state;
  pthread_mutex_unlock(&q->mutex);
}

QueueAnswer ticket_queue_add(TicketQueue *q, Ticket *ticket) {
  QueueAnswer answer = QUEUE_IS_NOT_READY;
  pthread_mutex_lock(&q->mutex);
  if (q->state == QUEUE_IS_READY) answer = q->open + ticket->count > q->most ? QUEUE_IS_FULL : QUEUE_TAKES_IT;
  if (answer == QUEUE_TAKES_IT) {
    q->open += ticket->count;
    ticket_share(ticket);
    vec_push(&q->arrived, ticket);
    pthread_cond_signal(&q->changed);
  }
  pthread_mutex_unlock(&q->mutex);
  return answer;
}

void ticket_queue_cancel(TicketQueue *q, Ticket *ticket, int choice) {
  pthread_mutex_lock(&ticket->mutex);
  for (int i = 0; i < ticket->count; i++)
    if (choice < 0 || i == choice) ticket->cancel[i] = true;
  pthread_mutex_unlock(&ticket->mutex);
  pthread_mutex_lock(&q->mutex);
  q->cancels = true;
  if (choice < 0) q->abandoned += ticket->count;
  pthread_cond_signal(&q->changed);
  pthread_mutex_unlock(&q->mutex);
}
