// Creation of communicators of processes.
#include "comm/process.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// With a message to or from a rank of the world, in the control context. That rank may have left only at the end.
int control_wait(ProcessWorld *w, void *data, size_t bytes, int peer, int tag, int receive) {
  const Waiter waiter = {.alive = &world_last(&w->base, w->rank)->own_alive};
  WireRequest request;
  RequestBatch batch = {.requests = &request, .capacity = 1};
  process_lock(w);
  int status = control_post(w, receive ? WIRE_RECEIVE : WIRE_SEND, data, bytes, peer, tag, batch_add(&batch));
  process_unlock(w);
  return status ? process_failed(w, "creating a communicator", status)
                : process_wait(w, &batch, (Awaited){NULL, NULL, tag == TAG_LEAVE ? -1 : peer, &waiter});
}

static void print_list(const int *ranks, int n, char *text, size_t size) {
  size_t used = (size_t)snprintf(text, size, "[");
  for (int i = 0; i < n && used + 16 < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%d", i ? " " : "", ranks[i]);
  snprintf(text + used, size - used, "]");
}

static int lists_differ(ProcessWorld *w, const int *mine, int n, int peer, const int *theirs, int count) {
  char first[256], second[256];
  Error error = {0};
  print_list(mine, n, first, sizeof first);
  print_list(theirs, count, second, sizeof second);
  error_set_about(&error, PLAIT_FAILED, &(ErrorFacts){.rank = error_rank(w->rank, NULL)},
                  "rank %d creates a communicator of ranks %s while rank %d creates one of ranks %s", w->rank, first,
                  peer, second);
  int code = abort_all(&w->base.abort, &error);
  process_notify(w);
  return code;
}

// The lowest of the ranks waits for the others' lists, compares them and answers all with the communicator's id.
// Without this exchange a rank would wait inside an MPI, with the lock, for one that comes late, and nothing else of it
// would move.
static int exchange_lists(ProcessWorld *w, const int *ranks, int n, uint64_t *id) {
  int low = ranks[0], most = w->base.ranks, code = PLAIT_OK;
  int *list = xcalloc((size_t)most + 1, sizeof *list); // (1 + ranks): count, ranks, padding
  for (int i = 1; i < n; i++) low = ranks[i] < low ? ranks[i] : low;
  size_t bytes = ((size_t)most + 1) * sizeof *list;
  if (w->rank != low) {
    list[0] = n;
    memcpy(list + 1, ranks, (size_t)n * sizeof *list);
    code = control_wait(w, list, bytes, low, TAG_CREATE, 0);
    if (!code) code = control_wait(w, id, sizeof *id, low, TAG_GO, 1);
  }
  for (int i = 0; i < n && !code && w->rank == low; i++) {
    if (ranks[i] == low) continue;
    code = control_wait(w, list, bytes, ranks[i], TAG_CREATE, 1);
    if (!code && (list[0] != n || memcmp(list + 1, ranks, (size_t)n * sizeof *list)))
      code = lists_differ(w, ranks, n, ranks[i], list + 1, list[0] < most ? list[0] : most);
  }
  if (w->rank == low) *id = (uint64_t)low << 32 | ++w->created;
  for (int i = 0; i < n && !code && w->rank == low; i++)
    if (ranks[i] != low) code = control_wait(w, id, sizeof *id, ranks[i], TAG_GO, 0);
  free(list);
  return code;
}

int process_comm_create(PlaitComm *any, const int *ranks, int n, PlaitComm **comm, Error *error) {
  ProcessWorld *w = (ProcessWorld *)any->world;
  WireContext context;
  uint64_t id;
  int code = exchange_lists(w, ranks, n, &id);
  if (!code) {
    process_lock(w);
    int status = w->wire->context_create(w, ranks, n, id, &context);
    if (!status) *comm = process_handle_create(w, context, id, ranks, n);
    process_unlock(w);
    if (status) code = process_failed(w, "creating a communicator", status);
  }
  return code ? error_take(error, &any->world->abort.error) : PLAIT_OK;
}
