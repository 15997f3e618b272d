// Runs one function on every rank of a fresh local world, each in a thread of its own.
#include "ranks.h"
#include "base/error.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct Start { Ranks *ranks; RankFunction function; int rank; } Start;

int ranks_fail(Ranks *ranks, int rank, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(ranks->messages[rank], sizeof ranks->messages[rank], format, arguments);
  va_end(arguments);
  return 1;
}

int ranks_can_fail(void) { return 1; }

static void *rank_thread(void *argument) {
  Start *start = argument;
  Ranks *ranks = start->ranks;
  PlaitComm *comm;
  int code = plait_comm_world(ranks->world, start->rank, &comm, NULL);
  if (code == 0) {
    code = start->function(ranks, comm, start->rank);
    if (code < 0) ranks_fail(ranks, start->rank, "%s", plait_comm_error(comm));
    if (code > 0) plait_world_abort(ranks->world, ranks->messages[start->rank]); // the others must not wait for it
    plait_comm_destroy(comm);
  }
  ranks->codes[start->rank] = code;
  return NULL;
}

int ranks_run(Ranks *ranks, int n, RankFunction function, void *context, int quiet) {
  pthread_t threads[64];
  Start starts[64];
  Error error = {0};
  int failed = 0;
  memset(ranks, 0, sizeof *ranks);
  ranks->n = n;
  ranks->context = context;
  CHECK(plait_world_local_create(n, &ranks->world, &error) == 0, "%s", error.message);
  for (int r = 0; r < n; r++) {
    starts[r] = (Start){ranks, function, r};
    CHECK(!pthread_create(&threads[r], NULL, rank_thread, &starts[r]));
  }
  for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
  for (int r = 0; r < n; r++)
    if (ranks->codes[r] && !failed++ && !quiet) printf("rank %d of %d: %s\n", r, n, ranks->messages[r]);
  plait_world_destroy(ranks->world);
  return failed;
}
