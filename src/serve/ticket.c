// Tickets: counted users, and a mailbox with an eventfd.
#include "serve/ticket.h"
#include "base/clock.h"
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

Ticket *ticket_create(int choices, int prompts) {
  Ticket *t = xcalloc(1, sizeof *t);
  *t = (Ticket){.count = choices, .prompts = prompts, .users = 1, .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  t->choice = xcalloc((size_t)choices, sizeof *t->choice);
  t->cancel = xcalloc((size_t)choices, sizeof *t->cancel);
  t->number = xcalloc((size_t)choices, sizeof *t->number);
  t->prompt = xcalloc((size_t)prompts, sizeof *t->prompt);
  for (int i = 0; i < choices; i++) t->number[i] = -1;
  pthread_mutex_init(&t->mutex, NULL);
  return t;
}

void ticket_share(Ticket *t) {
  pthread_mutex_lock(&t->mutex);
  t->users++;
  pthread_mutex_unlock(&t->mutex);
}

void mail_free(Mail *m) {
  vec_free(&m->events);
  vec_free(&m->ids);
  vec_free(&m->logprobs);
}

void ticket_release(Ticket *t) {
  if (!t) return;
  pthread_mutex_lock(&t->mutex);
  int users = --t->users;
  pthread_mutex_unlock(&t->mutex);
  if (users) return;
  pthread_mutex_destroy(&t->mutex);
  for (int i = 0; i < t->prompts; i++) vec_free(&t->prompt[i]);
  if (t->wake >= 0) close(t->wake);
  mail_free(&t->mail);
  if (t->rules) t->free_rules(t->rules);
  vec_free(&t->bias);
  free(t->prompt);
  free(t->choice);
  free(t->cancel);
  free(t->number);
  free(t);
}

static void wake(Ticket *t) {
  uint64_t one = 1;
  if (t->wake >= 0 && write(t->wake, &one, sizeof one) < 0) return; // it is full: then it has been written
}

void ticket_push(Ticket *t, int choice, const EngineEvent *event) {
  pthread_mutex_lock(&t->mutex);
  bool empty = !t->mail.events.count;
  if (empty) t->mail.since = clock_seconds();
  vec_push(&t->mail.events, *event);
  t->mail.events.data[t->mail.events.count - 1].request = choice;
  for (int i = 0; i < event->top; i++) {
    vec_push(&t->mail.ids, event->top_ids[i]);
    vec_push(&t->mail.logprobs, event->top_logprobs[i]);
  }
  if (event->id >= 0 && !event->scored && !t->first) t->first = clock_seconds();
  if (t->quiet ? event->id < 0 : empty) wake(t);
  pthread_mutex_unlock(&t->mutex);
}

void ticket_end(Ticket *t, TicketState state, const Error *error) {
  pthread_mutex_lock(&t->mutex);
  t->state = state;
  if (error) t->error = *error;
  wake(t);
  pthread_mutex_unlock(&t->mutex);
}

TicketState ticket_take(Ticket *t, Mail *mail, Error *error) {
  mail->events.count = mail->ids.count = mail->logprobs.count = 0;
  pthread_mutex_lock(&t->mutex);
  Mail empty = *mail;
  *mail = t->mail;
  t->mail = empty;
  mail->first = t->first;
  TicketState state = t->state;
  if (state >= TICKET_REFUSED) error_take(error, &t->error);
  pthread_mutex_unlock(&t->mutex);
  for (int i = 0, at = 0; i < mail->events.count; at += mail->events.data[i++].top) {
    if (!mail->events.data[i].top) continue; // the lists may be empty
    mail->events.data[i].top_ids = mail->ids.data + at;
    mail->events.data[i].top_logprobs = mail->logprobs.data + at;
  }
  return state;
}
