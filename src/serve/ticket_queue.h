// The one queue between the threads of HTTP and the thread that computes.
#pragma once
#include "serve/ticket.h"

typedef enum QueueState { QUEUE_LOADS, QUEUE_IS_READY, QUEUE_DRAINS, QUEUE_HAS_FAILED } QueueState;

typedef struct TicketQueue {
  pthread_mutex_t mutex; // guards all
  pthread_cond_t changed;
  QueueState state;
  Vec(Ticket *) arrived; // each with a user
  bool cancels;          // tickets have choices that are not wanted any more
  int open, most;        // choices that wait or run, and how many there may be
  int64_t abandoned;     // choices that clients have left
  EngineTimes times;     // as of the last tick
  EngineLoad load;
} TicketQueue;

void ticket_queue_create(TicketQueue *queue, int most);
void ticket_queue_destroy(TicketQueue *queue);
QueueState ticket_queue_state(TicketQueue *queue);
void ticket_queue_set_state(TicketQueue *queue, QueueState state);

typedef enum QueueAnswer { QUEUE_TAKES_IT, QUEUE_IS_FULL, QUEUE_IS_NOT_READY } QueueAnswer;
QueueAnswer ticket_queue_add(TicketQueue *queue, Ticket *ticket);
void ticket_queue_cancel(TicketQueue *queue, Ticket *ticket, int choice); // -1: all of them
