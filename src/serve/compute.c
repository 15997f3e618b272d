// Ticks, and who gets what is drawn.
#include "serve/compute.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/signals.h"
#include <string.h>

typedef struct Active { int64_t number; Ticket *ticket; int choice; } Active; // each with a user of the ticket

typedef struct Compute {
  TicketQueue *queue;
  Engine *engine;
  Vec(Ticket *) arrived;
  Vec(Active) active; // in the order of their numbers
} Compute;

// A look for signals 20 times a second, where nothing else happens.
static void wait_for_work(TicketQueue *q) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += 50000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_cond_timedwait(&q->changed, &q->mutex, &until);
}

// Returns whether there are choices to cancel.
static bool take_arrived(Compute *c, bool idle) {
  TicketQueue *q = c->queue;
  c->arrived.count = 0;
  pthread_mutex_lock(&q->mutex);
  if (idle && !q->arrived.count && !q->cancels) wait_for_work(q);
  for (int i = 0; i < q->arrived.count; i++) vec_push(&c->arrived, q->arrived.data[i]);
  q->arrived.count = 0;
  bool cancels = q->cancels;
  q->cancels = false;
  pthread_mutex_unlock(&q->mutex);
  return cancels;
}

static void close_choices(Compute *c, int count) {
  pthread_mutex_lock(&c->queue->mutex);
  c->queue->open -= count;
  pthread_mutex_unlock(&c->queue->mutex);
}

static bool is_cancelled(Ticket *t, int choice) {
  pthread_mutex_lock(&t->mutex);
  bool cancelled = t->cancel[choice];
  pthread_mutex_unlock(&t->mutex);
  return cancelled;
}

// All choices of a ticket, or none: the engine refuses all for the same reasons, or the later ones are cancelled.
static void submit(Compute *c, Ticket *t) {
  Error error = {0};
  int code = PLAIT_OK, i = 0;
  for (; i < t->count && !code; i++) {
    if (is_cancelled(t, i)) {
      ticket_push(t, i, &(EngineEvent){.id = -1, .end = REQUEST_CANCELLED});
      close_choices(c, 1);
      continue;
    }
    code = engine_submit(c->engine, &t->choice[i], &t->number[i], &error);
    if (code) {
      t->number[i] = -1;
      close_choices(c, t->count - i);
      continue;
    }
    ticket_share(t);
    vec_push(&c->active, (Active){t->number[i], t, i});
  }
  for (int k = 0; code && k < i; k++)
    if (t->number[k] >= 0) engine_cancel(c->engine, t->number[k]);
  if (code) ticket_end(t, TICKET_REFUSED, &error);
  else ticket_end(t, TICKET_RUNS, NULL);
  ticket_release(t); // the queue's
}

static void cancel_unwanted(Compute *c) {
  for (int i = 0; i < c->active.count; i++) {
    const Active *a = &c->active.data[i];
    if (FAULT(clients_that_leave_stay, is_cancelled(a->ticket, a->choice), false)) engine_cancel(c->engine, a->number);
  }
}

static int find(const Compute *c, int64_t number) {
  int from = 0, to = c->active.count;
  while (from < to) {
    int at = (from + to) / 2;
    if (c->active.data[at].number < number) from = at + 1;
    else to = at;
  }
  CHECK(from < c->active.count && c->active.data[from].number == number);
  return from;
}

static void deliver(Compute *c) {
  EngineEvent e;
  while (engine_poll(c->engine, &e)) {
    int at = find(c, e.request);
    Active a = c->active.data[at];
    if (e.id < 0) {
      memmove(&c->active.data[at], &c->active.data[at + 1], sizeof a * (size_t)(--c->active.count - at));
      a.ticket->number[a.choice] = -1;
    }
    ticket_push(a.ticket, a.choice, &e);
    if (e.id >= 0) continue;
    close_choices(c, 1);
    ticket_release(a.ticket);
  }
}

static void note(Compute *c) {
  pthread_mutex_lock(&c->queue->mutex);
  c->queue->times = engine_times(c->engine);
  c->queue->load = engine_load(c->engine);
  pthread_mutex_unlock(&c->queue->mutex);
}

// All that is open gets the sentence. The engine may have failed: it is not asked for requests.
static void fail_all(Compute *c, const Error *error) {
  engine_forget_rules(c->engine);
  take_arrived(c, false);
  for (int i = 0; i < c->arrived.count; i++) {
    ticket_end(c->arrived.data[i], TICKET_FAILED, error);
    close_choices(c, c->arrived.data[i]->count);
    ticket_release(c->arrived.data[i]);
  }
  for (int i = 0; i < c->active.count; i++) {
    ticket_end(c->active.data[i].ticket, TICKET_FAILED, error);
    close_choices(c, 1);
    ticket_release(c->active.data[i].ticket);
  }
  c->active.count = 0;
}

static int tick(Compute *c, Error *error) {
  if (take_arrived(c, !c->active.count)) cancel_unwanted(c);
  for (int i = 0; i < c->arrived.count; i++) submit(c, c->arrived.data[i]);
  deliver(c);
  int code = c->active.count ? engine_tick(c->engine, error) : PLAIT_OK;
  if (code) return code;
  deliver(c);
  note(c);
  return PLAIT_OK;
}

int compute_run(TicketQueue *queue, Engine *engine, double drain, Error *error) {
  Compute c = {.queue = queue, .engine = engine};
  int code = PLAIT_OK;
  double until = 0;
  note(&c);
  for (bool over = false; !code && !over;) {
    if (!until && signals_stop()) {
      ticket_queue_set_state(queue, QUEUE_DRAINS);
      until = clock_seconds() + drain;
    }
    code = tick(&c, error);
    over = until && (clock_seconds() >= until || !c.active.count);
  }
  Error why = {0};
  if (code) ticket_queue_set_state(queue, QUEUE_HAS_FAILED), error_take(&why, error);
  else error_set(&why, PLAIT_INTERRUPTED, "the server stops");
  fail_all(&c, &why);
  vec_free(&c.arrived);
  vec_free(&c.active);
  return code;
}
