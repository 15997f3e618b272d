// Waiting for other processes without holding the wire, and how a world of processes fails.
#include "comm/process.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { YIELDS = 500, FIRST_SLEEP = 5000, LONGEST_SLEEP = 200000, LOOKS_PER_NOTICE = 32 };

void process_pause(const ProcessWorld *w, Backoff *p) {
  if (p->turns++ < w->spin) return;
  if (p->turns < w->spin + YIELDS) {
    sched_yield();
    return;
  }
  p->nanoseconds = p->nanoseconds ? p->nanoseconds + p->nanoseconds / 4 : FIRST_SLEEP;
  if (p->nanoseconds > LONGEST_SLEEP) p->nanoseconds = LONGEST_SLEEP;
  nanosleep(&(struct timespec){0, p->nanoseconds}, NULL);
}

// Failures ----------------------------------------------------------------------------------------------------------

void process_look(ProcessWorld *w) {
  if (abort_code(&w->base.abort)) return;
  departures_look(w);
  if (w->wire->look) w->wire->look(w);
}

void process_noticed(ProcessWorld *w, Notice *notice) {
  if (error_is_valid(&notice->error, w->base.ranks)) abort_all(&w->base.abort, &notice->error);
}

// A lock that some thread cannot let go of (an MPI waits inside for a rank that is gone) must not keep this rank from
// ending.
int process_lock_within(ProcessWorld *w, long nanoseconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += nanoseconds;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  return pthread_mutex_timedlock(&w->lock, &until) == 0;
}

void process_notify(ProcessWorld *w) {
  if (!abort_code(&w->base.abort) || !process_lock_within(w, 1000000000)) return;
  w->wire->notify(w);
  process_unlock(w);
}

int process_failed(ProcessWorld *w, const char *doing, int status) {
  char text[512] = "";
  Error error = {0};
  int code = abort_code(&w->base.abort);
  if (!code && w->wire->settle) {
    w->wire->settle(w);
    code = abort_code(&w->base.abort);
  }
  if (code) return code;
  process_lock(w);
  ErrorFacts facts = {.rank = error_rank(w->rank, w->host), .blamed = w->wire->explain(w, status, text, sizeof text)};
  process_unlock(w);
  error_set_about(&error, PLAIT_FAILED, &facts, "rank %d on %s: %s: %.300s", w->rank, w->host, doing, text);
  code = abort_all(&w->base.abort, &error);
  process_notify(w);
  return code;
}

// Waiting -----------------------------------------------------------------------------------------------------------

void batch_reserve(RequestBatch *batch, int requests) {
  if (requests <= batch->capacity) return;
  batch->requests = xrealloc(batch->requests, (size_t)requests * sizeof *batch->requests);
  while (batch->capacity < requests)
    batch->requests[batch->capacity++] = (WireRequest){0}; // the pages are there from now on
}

WireRequest *batch_add(RequestBatch *batch) {
  if (batch->count == batch->capacity) batch_reserve(batch, 2 * batch->capacity + 16);
  if (!batch->count) batch->done = 0;
  batch->requests[batch->count] = (WireRequest){0};
  return &batch->requests[batch->count++];
}

void batch_free(RequestBatch *batch) {
  free(batch->requests);
  *batch = (RequestBatch){0};
}

// One after the other: the first that is not done yet makes it clear that not all are.
int batch_test(ProcessWorld *w, RequestBatch *batch, int *status) {
  int done = 1;
  *status = 0;
  while (batch->done < batch->count && done) {
    *status = w->wire->test(w, &batch->requests[batch->done], &done);
    if (*status) return -1;
    batch->done += done;
  }
  return batch->done == batch->count;
}

// The caller's memory may be gone soon.
static void give_up(ProcessWorld *w, RequestBatch *batch) {
  process_lock(w);
  for (int i = 0; i < batch->count; i++)
    if (batch->requests[i].pending) w->wire->forget(w, &batch->requests[i]);
  process_unlock(w);
  batch->count = 0;
}

int process_wait_call(ProcessComm *c, const CommCall *call, RequestBatch *batch) {
  return process_wait((ProcessWorld *)c->base.world, batch, (Awaited){c, call, -1, call->waiter});
}

int process_wait(ProcessWorld *w, RequestBatch *batch, Awaited whom) {
  Backoff backoff = {0};
  int done = batch->count == 0, status, code = PLAIT_OK;
  unsigned moved = 0;
  for (int look = 0; !done && !(code = abort_code(&w->base.abort)); look++) {
    int departed = -1;
    process_lock(w);
    done = batch_test(w, batch, &status);
    if (w->moved != moved) moved = w->moved, backoff = (Backoff){0}; // bytes come: no time to sleep
    if (!done && (look % LOOKS_PER_NOTICE == LOOKS_PER_NOTICE - 1 || backoff.nanoseconds)) {
      process_look(w);
      waiter_sign(whom.waiter);
      departed = departure_find(w, whom);
    }
    process_unlock(w);
    if (departed >= 0) code = departure_fail(w, whom, departed);
    if (done < 0) code = process_failed(w, "waiting for another rank", status);
    if (!done) process_pause(w, &backoff);
  }
  if (code < 0) give_up(w, batch);
  batch->count = 0;
  return code;
}
