// Worlds and communicators, and the calls of their ranks that are under way.
#include "comm/comm.h"
#include "base/fault.h"
#include "worker/page.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Calls under way -----------------------------------------------------------------------------------------------------

static LastCall *last_of(const PlaitComm *comm) { return world_last(comm->world, comm->ranks[comm->rank]); }

int comm_run(PlaitComm *comm, const CommCall *call, int stream) {
  _Atomic uint64_t *last = stream < 0 ? &last_of(comm)->own : &last_of(comm)->stream[stream];
  uint64_t word = last_call_word(call->kind, comm->size, call->ticket + 1);
  last_call_set(last, word | LAST_CALL_RUNS);
  int code = comm->backend->run(comm, call);
  last_call_set(last, word);
  return code;
}

int timeline_wait(PlaitTimeline *timeline, uint64_t value) {
  if (!timeline->last) return timeline->wait(timeline, value, timeline->waiter);
  uint64_t before = last_call_get(&timeline->last->own), word = timeline->peers
                                                                    ? last_call_word(COMM_SEND, timeline->peers, value)
                                                                    : last_call_on_stream(timeline->stream);
  last_call_set(&timeline->last->own, word | LAST_CALL_RUNS);
  int code = timeline->wait(timeline, value, timeline->waiter);
  last_call_set(&timeline->last->own, before);
  return code;
}

void world_init(PlaitWorld *world, const CommBackend *backend, int ranks, int local_ranks, int own) {
  LastCall *shown = own < 0 ? NULL : worker_take_last_call();
  if (shown) memset(shown, 0, sizeof *shown);
  *world = (PlaitWorld){.backend = backend,
                        .name = backend->name,
                        .ranks = ranks,
                        .local_ranks = local_ranks,
                        .last = shown ? shown : xcalloc(own < 0 ? (size_t)ranks : 1, sizeof *world->last),
                        .first = own < 0 ? 0 : own,
                        .shows = shown != NULL};
  abort_init(&world->abort, local_ranks);
}

void world_free(PlaitWorld *world) {
  abort_destroy(&world->abort);
  if (world->shows) worker_give_last_call(world->last);
  else free(world->last);
}

void world_heartbeat(PlaitWorld *world, const Heartbeat *mine, int to, HeartbeatReceived received, void *context) {
  if (world->backend->heartbeat) world->backend->heartbeat(world, mine, to, received, context);
}

int world_rank_is_gone(const PlaitWorld *world, int rank) {
  return world->backend->rank_is_gone && world->backend->rank_is_gone(world, rank);
}

void world_end(PlaitWorld *world, int status, const Error *error) {
  fprintf(stderr, "%splait: %s\n", isatty(STDERR_FILENO) ? "\n" : "",
          error->message); // a progress line may be open on the terminal
  if (world->backend->end) world->backend->end(world, status, error);
  _exit(status);
}

// Worlds and communicators ------------------------------------------------------------------------------------------

void plait_world_destroy(PlaitWorld *world) {
  if (world) world->backend->world_destroy(world);
}
int plait_world_size(const PlaitWorld *world) { return world->ranks; }
int plait_world_local_size(const PlaitWorld *world) { return world->local_ranks; }
const char *world_name(const PlaitWorld *world) { return world->name; }
int world_will_end(const PlaitWorld *world) {
  return world->ends && abort_code((Abort *)(uintptr_t)&world->abort);
}
int plait_world_rank(const PlaitWorld *world) {
  return world->backend->own_rank ? world->backend->own_rank(world) : -1;
}

int comm_fail_world(PlaitWorld *world, const Error *error) {
  int code = abort_all(&world->abort, error);
  if (world->backend->aborted) world->backend->aborted(world);
  return code;
}
void plait_world_abort(PlaitWorld *world, const char *message) {
  Error error = {0};
  error_set_about(&error, PLAIT_FAILED, &(ErrorFacts){.blamed = error_rank(plait_world_rank(world), NULL)}, "%s",
                  message);
  comm_fail_world(world, &error);
}

int comm_fail_departed(PlaitComm *comm, const CommCall *call, int departed) {
  char text[160];
  int rank = comm->ranks[departed];
  Error error = {0};
  ErrorFacts facts = {.rank = error_rank(rank, NULL), .blamed = error_rank(rank, NULL)};
  comm_describe(call, text, sizeof text);
  error_set_about(
      &error, PLAIT_FAILED, &facts,
      "rank %d has left a communicator of %d ranks (its handle was destroyed), in which rank %d still calls "
      "%s (%s %llu%s)",
      rank, comm->size, comm->ranks[comm->rank], text,
      call->kind == COMM_SEND || call->kind == COMM_RECV ? "message" : "call", (unsigned long long)call->ticket + 1,
      call->kind == COMM_SEND || call->kind == COMM_RECV ? " between them" : " of the communicator");
  return comm_fail_world(comm->world, &error);
}

int plait_comm_world(PlaitWorld *world, int rank, PlaitComm **comm, PlaitError *error) {
  *comm = NULL;
  if (rank < 0 || rank >= world->ranks)
    return error_set(error, PLAIT_BAD_INPUT, "rank %d is not in a world of %d ranks", rank, world->ranks);
  int code = world->backend->comm_world(world, rank, comm, error);
  if (!code) (*comm)->waiter.alive = &world_last(world, rank)->own_alive;
  return code;
}

int plait_comm_create(PlaitComm *any, const int *ranks, int n, PlaitComm **comm, PlaitError *error) {
  int me = any->ranks[any->rank], found = 0;
  *comm = NULL;
  for (int i = 0; i < n; i++) {
    if (ranks[i] < 0 || ranks[i] >= any->world->ranks)
      return error_set(error, PLAIT_BAD_INPUT, "a communicator names rank %d, but the world has ranks 0 to %d",
                       ranks[i], any->world->ranks - 1);
    for (int k = 0; k < i; k++)
      if (ranks[k] == ranks[i])
        return error_set(error, PLAIT_BAD_INPUT, "a communicator names rank %d twice", ranks[i]);
    found |= ranks[i] == me;
  }
  if (!found) return error_set(error, PLAIT_BAD_INPUT, "rank %d creates a communicator that it is not in", me);
  uint64_t before = last_call_get(&last_of(any)->own);
  last_call_set(&last_of(any)->own, last_call_word(LAST_CALL_CREATE, n, 0) | LAST_CALL_RUNS);
  int code = any->backend->comm_create(any, ranks, n, comm, error);
  last_call_set(&last_of(any)->own, before);
  if (!code) (*comm)->waiter = any->waiter;
  return code;
}

void comm_reserve_collective(PlaitComm *comm, size_t buffers, size_t reduced) {
  if (comm->backend->reserve_collective) comm->backend->reserve_collective(comm, buffers, reduced);
}

void comm_reserve_messages(PlaitComm *comm, int peer, size_t messages, size_t buffers) {
  comm->backend->reserve_messages(comm, peer, messages, buffers);
}

void comm_set_idle(PlaitComm *comm, Idle idle) { comm->waiter.idle = idle; }

void plait_comm_destroy(PlaitComm *comm) {
  if (comm) comm->backend->comm_destroy(comm);
}
int plait_comm_rank(const PlaitComm *comm) { return comm->rank; }
int plait_comm_size(const PlaitComm *comm) { return comm->size; }
int plait_comm_world_rank(const PlaitComm *comm, int rank) { return comm->ranks[rank]; }
const char *plait_comm_error(const PlaitComm *comm) {
  return abort_code(&comm->world->abort) ? comm->world->abort.error.message : "";
}

// With the name of a rank that is to blame.
static Error failure_of(const PlaitComm *comm) {
  int code = abort_code(&comm->world->abort);
  Error e = code ? comm->world->abort.error : (Error){0};
  e.code = FAULT(others_forget_a_full_disk, code == PLAIT_UNWRITABLE, false) ? code : PLAIT_FAILED;
  if (e.blamed.known && comm->world->ranks > 1) error_name_rank(&e, e.blamed.rank, NULL);
  return e;
}

int plait_comm_failure(const PlaitComm *comm, PlaitError *error) {
  Error e = failure_of(comm);
  return error_take(error, &e);
}

int comm_failure_in(const PlaitComm *comm, Error *error, const char *format, ...) {
  Error e = failure_of(comm);
  char what[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  error_prefix(&e, "%s", what);
  return error_take(error, &e);
}

int plait_comm_failed_rank(const PlaitComm *comm) {
  const Error *e = &comm->world->abort.error;
  return abort_code(&comm->world->abort) && e->blamed.known ? e->blamed.rank : -1;
}

int plait_event_wait(PlaitEvent event) {
  return event.timeline ? timeline_wait(event.timeline, event.value) : PLAIT_OK;
}
int plait_event_done(PlaitEvent event) {
  return event.timeline ? event.timeline->done(event.timeline, event.value) : 1;
}
