// The engine of the MPI back end: waiting without holding MPI, and notices of failure.
#ifdef PLAIT_MPI
#include "comm/mpi_wire.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { YIELDS = 500, FIRST_SLEEP = 5000, LONGEST_SLEEP = 200000, LOOKS_PER_NOTICE = 32 };

void wire_pause(const MpiWorld *w, Backoff *p) {
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

void wire_look(MpiWorld *w) {
  int arrived = 0;
  if (w->received_notice || w->notified) return;
  departures_look(w);
  if (MPI_Test(&w->arrival, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS || !arrived) return;
  w->received_notice = 1;
  w->incoming.message[sizeof w->incoming.message - 1] = 0;
  abort_all(&w->base.abort, w->incoming.code < 0 ? w->incoming.code : PLAIT_FAILED, w->incoming.message);
}

// A lock that some thread cannot let go of (MPI itself waits for a rank that is gone) must not keep this rank from
// ending.
int wire_lock_within(MpiWorld *w, long nanoseconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += nanoseconds;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  return pthread_mutex_timedlock(&w->lock, &until) == 0;
}

void wire_notify(MpiWorld *w) {
  int code = abort_code(&w->base.abort), gone = 0, status;
  if (!code || !wire_lock_within(w, 1000000000)) return;
  if (!w->notified && !w->received_notice) {
    w->notified = 1;
    w->outgoing.code = code;
    w->outgoing.rank = w->rank;
    memcpy(w->outgoing.message, w->base.abort.error.message, sizeof w->outgoing.message);
    for (int r = 0; r < w->base.ranks; r++)
      if (r != w->rank) MPI_Isend(&w->outgoing, sizeof w->outgoing, MPI_BYTE, r, 0, w->control, batch_add(&w->leaving));
    for (int i = 0; i < 1000 && !gone; i++)
      gone = batch_test(&w->leaving, &status); // one that is stopped never takes it
  }
  wire_unlock(w);
}

int wire_failed(MpiWorld *w, const char *doing, int status) {
  char text[MPI_MAX_ERROR_STRING] = "", message[512];
  int length = 0, code = abort_code(&w->base.abort);
  if (code) return code;
  wire_lock(w);
  MPI_Error_string(status, text, &length);
  wire_unlock(w);
  snprintf(message, sizeof message, "rank %d on %s: %s: %.300s", w->rank, w->host, doing, text);
  code = abort_all(&w->base.abort, PLAIT_FAILED, message);
  wire_notify(w);
  return code;
}

// Waiting -----------------------------------------------------------------------------------------------------------

void batch_reserve(Batch *batch, int requests) {
  if (requests <= batch->capacity) return;
  batch->requests = xrealloc(batch->requests, (size_t)requests * sizeof *batch->requests);
  while (batch->capacity < requests)
    batch->requests[batch->capacity++] = MPI_REQUEST_NULL; // the pages are there from now on
}

MPI_Request *batch_add(Batch *batch) {
  if (batch->count == batch->capacity) batch_reserve(batch, 2 * batch->capacity + 16);
  if (!batch->count) batch->done = 0;
  batch->requests[batch->count] = MPI_REQUEST_NULL;
  return &batch->requests[batch->count++];
}

void batch_free(Batch *batch) {
  free(batch->requests);
  *batch = (Batch){0};
}

// One after the other: the first that is not done yet makes it clear that not all are.
int batch_test(Batch *batch, int *status) {
  int done = 1;
  *status = MPI_SUCCESS;
  while (batch->done < batch->count && done) {
    *status = MPI_Test(&batch->requests[batch->done], &done, MPI_STATUS_IGNORE);
    if (*status != MPI_SUCCESS) return -1;
    batch->done += done;
  }
  return batch->done == batch->count;
}

// The caller's memory may be gone soon. Sends cannot be cancelled, but nobody calls MPI for this rank any more.
static void give_up(MpiWorld *w, Batch *batch) {
  wire_lock(w);
  for (int i = 0; i < batch->count; i++)
    if (batch->requests[i] != MPI_REQUEST_NULL) MPI_Cancel(&batch->requests[i]);
  wire_unlock(w);
  batch->count = 0;
}

int wire_wait_call(MpiComm *c, const CommCall *call, Batch *batch) {
  return wire_wait((MpiWorld *)c->base.world, batch, (Awaited){c, call, -1, call->waiter});
}

int wire_wait(MpiWorld *w, Batch *batch, Awaited whom) {
  Backoff backoff = {0};
  int done = batch->count == 0, status, code = PLAIT_OK;
  for (int look = 0; !done && !(code = abort_code(&w->base.abort)); look++) {
    int departed = -1;
    wire_lock(w);
    done = batch_test(batch, &status);
    if (!done && (look % LOOKS_PER_NOTICE == LOOKS_PER_NOTICE - 1 || backoff.nanoseconds)) {
      wire_look(w);
      waiter_sign(whom.waiter);
      departed = departure_find(w, whom);
    }
    wire_unlock(w);
    if (departed >= 0) code = departure_fail(w, whom, departed);
    if (done < 0) code = wire_failed(w, "waiting for another rank", status);
    if (!done) wire_pause(w, &backoff);
  }
  if (code < 0) give_up(w, batch);
  batch->count = 0;
  return code;
}
#endif
