// The MPI back end: ranks are processes that mpirun or srun has started. Any MPI-3.1.
//
// Elements travel by point-to-point messages straight between the callers' memory, in a pattern of our own
// (mpi_collective.c, mpi_reduction.c): so reductions have the order and the bits of `local`, lists of buffers need no
// copy, a mismatch is found, and a world that fails can end its calls. MPI_THREAD_SERIALIZED is asked for, not
// MULTIPLE: it is everywhere, and the lock that it needs is held for tests and posts only, never while anything waits.
#ifdef PLAIT_MPI
#include "base/thread.h"
#include "comm/launcher.h"
#include "comm/mpi_wire.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Communicators -----------------------------------------------------------------------------------------------------

// With the lock.
static PlaitComm *handle_create(MpiWorld *w, MPI_Comm mpi, uint64_t id, const int *ranks, int n) {
  MpiComm *c = xcalloc(1, sizeof *c);
  size_t count = (size_t)n;
  int *list = xcalloc(count, sizeof *list);
  memcpy(list, ranks, count * sizeof *list);
  c->base = (PlaitComm){.backend = w->base.backend, .world = &w->base, .size = n, .ranks = list};
  while (list[c->base.rank] != w->rank) c->base.rank++;
  c->comm = mpi;
  c->id = id;
  c->next = w->handles;
  w->handles = c;
  c->queues = xcalloc(count, sizeof *c->queues);
  for (int p = 0; p < n; p++) wire_message_queue_init(&c->queues[p], c, p);
  c->left = xcalloc(count, sizeof *c->left);
  c->sent = xcalloc(count, sizeof *c->sent);
  c->got = xcalloc(count, sizeof *c->got);
  c->inputs = xcalloc(count, sizeof *c->inputs);
  Batch *batches[] = {&c->headers, &c->first[0], &c->first[1], &c->second[0], &c->second[1]};
  for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
    batch_reserve(batches[i], 3 * n); // a header and two parts for each peer
  monitor_init(&c->turn, &w->base.abort);
  return &c->base;
}

// MPI_Comm_free is collective in the standard, but no MPI waits in it.
static void mpi_comm_destroy(PlaitComm *base) {
  MpiComm *c = (MpiComm *)base;
  MpiWorld *w = (MpiWorld *)base->world;
  wire_lock(w);
  for (WireMessageQueue **link = &w->pending; *link;) { // with all sends copied, or a world that has failed
    if (*link >= c->queues && *link < c->queues + base->size) *link = (*link)->next;
    else link = &(*link)->next;
  }
  departure_send(c);
  if (c->comm != w->everyone && !abort_code(&w->base.abort)) MPI_Comm_free(&c->comm);
  wire_unlock(w);
  for (int p = 0; p < base->size; p++) wire_message_queue_free(&c->queues[p]);
  for (int i = 0; i < 2; i++) {
    batch_free(&c->first[i]);
    batch_free(&c->second[i]);
    free(c->staging[i]);
  }
  batch_free(&c->headers);
  monitor_destroy(&c->turn);
  free(c->queues);
  free(c->left);
  free(c->sent);
  free(c->got);
  free(c->inputs);
  free((int *)(uintptr_t)base->ranks);
  free(c);
}

static int mpi_comm_world(PlaitWorld *base, int rank, PlaitComm **comm, Error *error) {
  MpiWorld *w = (MpiWorld *)base;
  if (rank != w->rank)
    return error_set(error, PLAIT_BAD_INPUT, "rank %d is another process: this one is rank %d", rank, w->rank);
  if (w->taken++) return error_set(error, PLAIT_BAD_INPUT, "rank %d has its communicator of all ranks already", rank);
  wire_lock(w);
  *comm = handle_create(w, w->everyone, 0, w->ranks, base->ranks);
  wire_unlock(w);
  return PLAIT_OK;
}

// With a message to or from a rank of the world, on the control communicator. That rank may have left only at the end.
static int control(MpiWorld *w, void *data, size_t bytes, int peer, int tag, int receive) {
  const Waiter waiter = {.alive = &w->base.last[w->rank].own_alive};
  MPI_Request request;
  Batch batch = {.requests = &request, .capacity = 1};
  wire_lock(w);
  int status = receive ? MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, tag, w->control, batch_add(&batch))
                       : MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag, w->control, batch_add(&batch));
  wire_unlock(w);
  return status == MPI_SUCCESS ? wire_wait(w, &batch, (Awaited){NULL, NULL, tag == TAG_LEAVE ? -1 : peer, &waiter})
                               : wire_failed(w, "creating a communicator", status);
}

static void print_list(const int *ranks, int n, char *text, size_t size) {
  size_t used = (size_t)snprintf(text, size, "[");
  for (int i = 0; i < n && used + 16 < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%d", i ? " " : "", ranks[i]);
  snprintf(text + used, size - used, "]");
}

static int lists_differ(MpiWorld *w, const int *mine, int n, int peer, const int *theirs, int count) {
  char message[800], first[256], second[256];
  print_list(mine, n, first, sizeof first);
  print_list(theirs, count, second, sizeof second);
  snprintf(message, sizeof message, "rank %d creates a communicator of ranks %s while rank %d creates one of ranks %s",
           w->rank, first, peer, second);
  int code = abort_all(&w->base.abort, PLAIT_FAILED, message);
  wire_notify(w);
  return code;
}

// The lowest of the ranks waits for the others' lists, compares them and answers all with the communicator's id.
// Without this exchange a rank would wait inside MPI, with the lock, for one that comes late, and nothing else of it
// would move.
static int exchange_lists(MpiWorld *w, const int *ranks, int n, uint64_t *id) {
  int low = ranks[0], most = w->base.ranks, code = PLAIT_OK;
  int *list = xcalloc((size_t)most + 1, sizeof *list); // (1 + ranks): count, ranks, padding
  for (int i = 1; i < n; i++) low = ranks[i] < low ? ranks[i] : low;
  size_t bytes = ((size_t)most + 1) * sizeof *list;
  if (w->rank != low) {
    list[0] = n;
    memcpy(list + 1, ranks, (size_t)n * sizeof *list);
    code = control(w, list, bytes, low, TAG_CREATE, 0);
    if (!code) code = control(w, id, sizeof *id, low, TAG_GO, 1);
  }
  for (int i = 0; i < n && !code && w->rank == low; i++) {
    if (ranks[i] == low) continue;
    code = control(w, list, bytes, ranks[i], TAG_CREATE, 1);
    if (!code && (list[0] != n || memcmp(list + 1, ranks, (size_t)n * sizeof *list)))
      code = lists_differ(w, ranks, n, ranks[i], list + 1, list[0] < most ? list[0] : most);
  }
  if (w->rank == low) *id = (uint64_t)low << 32 | ++w->created;
  for (int i = 0; i < n && !code && w->rank == low; i++)
    if (ranks[i] != low) code = control(w, id, sizeof *id, ranks[i], TAG_GO, 0);
  free(list);
  return code;
}

static int mpi_comm_create(PlaitComm *any, const int *ranks, int n, PlaitComm **comm, Error *error) {
  MpiWorld *w = (MpiWorld *)any->world;
  MPI_Comm mpi = MPI_COMM_NULL;
  MPI_Group all, group;
  uint64_t id;
  int code = exchange_lists(w, ranks, n, &id), status = MPI_SUCCESS;
  if (!code) {
    wire_lock(w);
    status = MPI_Comm_group(w->everyone, &all);
    if (status == MPI_SUCCESS) status = MPI_Group_incl(all, n, ranks, &group);
    if (status == MPI_SUCCESS) status = MPI_Comm_create_group(w->everyone, group, 0, &mpi);
    if (status == MPI_SUCCESS) status = MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
    if (status == MPI_SUCCESS) MPI_Group_free(&group), MPI_Group_free(&all);
    if (status == MPI_SUCCESS) *comm = handle_create(w, mpi, id, ranks, n);
    wire_unlock(w);
    if (status != MPI_SUCCESS) code = wire_failed(w, "creating a communicator", status);
  }
  return code ? error_set(error, code, "%s", plait_comm_error(any)) : PLAIT_OK;
}

// Calls -------------------------------------------------------------------------------------------------------------

static void mpi_issue(PlaitComm *base, CommCall *call, PlaitEvent *sent) {
  MpiComm *c = (MpiComm *)base;
  if (call->kind == COMM_SEND || call->kind == COMM_RECV) wire_message_issue(c, call, sent);
  else call->ticket = c->issued++;
}

static int mpi_run(PlaitComm *base, const CommCall *call) {
  MpiComm *c = (MpiComm *)base;
  if (call->kind == COMM_SEND) return wire_send(c, call);
  if (call->kind == COMM_RECV) return wire_receive(c, call);
  return wire_collective(c, call);
}

// World -------------------------------------------------------------------------------------------------------------

static void mpi_aborted(PlaitWorld *base) { wire_notify((MpiWorld *)base); }
static int mpi_own_rank(const PlaitWorld *base) { return ((const MpiWorld *)base)->rank; }

// Should MPI wait for a rank that is gone the alarm ends this process, and its launcher the others.
static _Noreturn void kill_job(int status) {
  usleep(300000); // launchers drop what they have not passed on yet
  signal(SIGALRM, SIG_DFL);
  alarm(FAILURE_SECONDS);
  MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

// From a watchdog's thread, while others of this process may be inside MPI.
static void mpi_end(PlaitWorld *world, int status) {
  wire_lock_within((MpiWorld *)world, 1000000000);
  kill_job(status);
}

// MPI cannot be left in order when calls have failed: the job ends here, on all ranks, with the exit status of the
// failure.
static void end_job(MpiWorld *w) {
  int code = abort_code(&w->base.abort);
  fflush(stdout);
  if (w->received_notice) sleep(FAILURE_SECONDS); // whoever knew first says why and ends the job, this rank included
  else fprintf(stderr, "plait: rank %d on %s: %s\n", w->rank, w->host, w->base.abort.error.message);
  kill_job(error_exit_status(code));
}

// Heartbeats ----------------------------------------------------------------------------------------------------------

// A thread that waits inside MPI may have the lock for ever; the others let go of it all the time, but come back at
// once.
static const long HEARTBEAT_LOCK_LIMIT = 250000000; // ns

static void send_heartbeat(MpiWorld *w, const Heartbeat *mine, int to) {
  int done = w->heartbeat_out[to] == MPI_REQUEST_NULL;
  if (!done) MPI_Test(&w->heartbeat_out[to], &done, MPI_STATUS_IGNORE);
  if (!done) return; // the one before has not gone yet: that rank does not receive
  w->heartbeats[to] = *mine;
  MPI_Isend(&w->heartbeats[to], sizeof w->heartbeats[to], MPI_BYTE, to, TAG_HEARTBEAT, w->control,
            &w->heartbeat_out[to]);
}

// All that have come: who takes one at a time gets later and later with many ranks.
static void receive_heartbeats(MpiWorld *w, HeartbeatReceived received, void *context) {
  for (int arrived = 1; arrived;) {
    if (w->heartbeat_in == MPI_REQUEST_NULL)
      MPI_Irecv(&w->heartbeat, sizeof w->heartbeat, MPI_BYTE, MPI_ANY_SOURCE, TAG_HEARTBEAT, w->control,
                &w->heartbeat_in);
    if (MPI_Test(&w->heartbeat_in, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (arrived) received(context, &w->heartbeat);
  }
}

static void mpi_heartbeat(PlaitWorld *base, const Heartbeat *mine, int to, HeartbeatReceived received, void *context) {
  MpiWorld *w = (MpiWorld *)base;
  if (!wire_lock_within(w, HEARTBEAT_LOCK_LIMIT)) return;
  for (int r = 0; r < to && r < base->ranks && r < HEARTBEATS; r++)
    if (r != w->rank) send_heartbeat(w, mine, r);
  if (w->rank < to) receive_heartbeats(w, received, context);
  wire_unlock(w);
}

// What is still under way when all ranks leave is of no use to anybody.
static void forget_heartbeats(MpiWorld *w) {
  MPI_Request *requests[HEARTBEATS + 1] = {&w->heartbeat_in};
  for (int r = 0; r < HEARTBEATS; r++) requests[r + 1] = &w->heartbeat_out[r];
  for (int i = 0; i < HEARTBEATS + 1; i++) {
    int done = *requests[i] == MPI_REQUEST_NULL;
    if (!done) MPI_Test(requests[i], &done, MPI_STATUS_IGNORE);
    if (done) continue;
    MPI_Cancel(requests[i]);
    MPI_Request_free(requests[i]);
  }
}

// Nobody leaves MPI while another may still fail: what ends a job does not always reach those that are leaving.
static void leave_together(MpiWorld *w) {
  int n = w->base.ranks, code = abort_code(&w->base.abort);
  for (int step = 1; step < n && !code; step *= 2) {
    char word = 0;
    code = control(w, &word, 1, (w->rank + step) % n, TAG_LEAVE, 0);
    if (!code) code = control(w, &word, 1, (w->rank - step + n) % n, TAG_LEAVE, 1);
  }
}

static void mpi_world_destroy(PlaitWorld *base) {
  MpiWorld *w = (MpiWorld *)base;
  leave_together(w);
  wire_lock(w);
  w->stop = 1;
  pthread_cond_signal(&w->work);
  wire_unlock(w);
  pthread_join(w->progress_thread, NULL);
  if (abort_code(&base->abort)) end_job(w);
  forget_heartbeats(w);
  departures_forget(w);
  MPI_Cancel(&w->arrival);
  MPI_Wait(&w->arrival, MPI_STATUS_IGNORE);
  MPI_Comm_free(&w->everyone);
  MPI_Comm_free(&w->control);
  if (w->initialised_here) MPI_Finalize();
  pthread_cond_destroy(&w->work);
  pthread_mutex_destroy(&w->lock);
  world_free(base);
  batch_free(&w->leaving);
  record_queue_free(&w->departures);
  free(w->gone);
  free(w->pieces.lengths);
  free(w->pieces.places);
  free(w->ranks);
  free(w);
}

static const CommBackend mpi_backend = {
    .name = "mpi",
    .world_destroy = mpi_world_destroy,
    .comm_world = mpi_comm_world,
    .comm_create = mpi_comm_create,
    .comm_destroy = mpi_comm_destroy,
    .reserve_messages = wire_message_reserve,
    .reserve_collective = wire_reserve_collective,
    .issue = mpi_issue,
    .run = mpi_run,
    .aborted = mpi_aborted,
    .own_rank = mpi_own_rank,
    .end = mpi_end,
    .heartbeat = mpi_heartbeat,
};

static int initialise(int *here, Error *error) {
  int done = 0, left = 0, provided = 0;
  MPI_Finalized(&left);
  if (left)
    return error_set(error, PLAIT_BAD_INPUT,
                     "this process has left MPI, which it cannot enter again: a program joins the world of mpirun or "
                     "srun once, unless it calls MPI_Init_thread and MPI_Finalize itself");
  MPI_Initialized(&done);
  *here = !done;
  if (done) MPI_Query_thread(&provided);
  else if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
    return error_set(error, PLAIT_FAILED, "MPI cannot be initialised");
  if (provided >= MPI_THREAD_SERIALIZED) return PLAIT_OK;
  return error_set(error, PLAIT_FAILED,
                   "this MPI was initialised with %s, but plait needs MPI_THREAD_SERIALIZED or more",
                   provided == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED");
}

// Tasks of a launcher that speaks another MPI's language each see a world of their own.
static int check_singletons(int ranks, Error *error) {
  Launcher launcher = launcher_find();
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length;
  if (launcher.tasks <= 1 || ranks != 1) return PLAIT_OK;
  MPI_Get_library_version(library, &length);
  library[strcspn(library, ",\n")] = 0;
  for (char *c = library; *c; c++)
    if (*c == '\t') *c = ' ';
  return error_set(
      error, PLAIT_BAD_INPUT,
      "%s says that there are %d tasks, but MPI sees only one rank: plait was built with %s, which does not "
      "understand this launcher. Start it with that MPI's mpirun, under Slurm with srun --mpi=%s, or build plait with "
      "the launcher's MPI",
      launcher.variable, launcher.tasks, library, strstr(library, "Open MPI") ? "pmix" : "pmi2 (or pmix)");
}

static int local_ranks(void) {
  MPI_Comm local;
  int n = 1;
  if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local) != MPI_SUCCESS) return 1;
  MPI_Comm_size(local, &n);
  MPI_Comm_free(&local);
  return n;
}

static void find_tickets(MpiWorld *w) {
  int *highest = NULL, found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &highest, &found);
  w->tickets = (found ? *highest : 32767) / 2;
}

static int start_world(MpiWorld *w) {
  int status = MPI_Comm_dup(MPI_COMM_WORLD, &w->everyone);
  if (status == MPI_SUCCESS) status = MPI_Comm_dup(MPI_COMM_WORLD, &w->control);
  if (status != MPI_SUCCESS) return status;
  MPI_Comm_set_errhandler(w->everyone, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(w->control, MPI_ERRORS_RETURN);
  return MPI_Irecv(&w->incoming, sizeof w->incoming, MPI_BYTE, MPI_ANY_SOURCE, TAG_NOTICE, w->control, &w->arrival);
}

// The others have come as far as this or will; they learn why. MPI cannot be left without them: this ends with the
// process.
static int refuse_world(MpiWorld *w, const char *why, Error *error) {
  char message[sizeof error->message];
  snprintf(message, sizeof message, "rank %d on %s: %.800s", w->rank, w->host, why);
  abort_all(&w->base.abort, PLAIT_FAILED, message);
  if (w->arrival != MPI_REQUEST_NULL) wire_notify(w);
  return error_set(error, PLAIT_FAILED, "%s", message);
}

int plait_world_mpi_create(PlaitWorld **result, PlaitError *error) {
  int here = 0, n = 0, code;
  *result = NULL;
  if ((code = initialise(&here, error))) return code;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  if ((code = check_singletons(n, error))) {
    if (here) MPI_Finalize();
    return code;
  }
  MpiWorld *w = xcalloc(1, sizeof *w);
  world_init(&w->base, &mpi_backend, n, local_ranks());
  w->arrival = w->heartbeat_in = w->departure_in = MPI_REQUEST_NULL;
  w->gone = xcalloc((size_t)n, 1);
  for (int r = 0; r < HEARTBEATS; r++) w->heartbeat_out[r] = MPI_REQUEST_NULL;
  MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
  if (gethostname(w->host, sizeof w->host - 1)) strcpy(w->host, "unknown host");
  w->initialised_here = here;
  w->spin = w->base.abort.spin;
  w->ranks = xcalloc((size_t)n, sizeof *w->ranks);
  for (int r = 0; r < n; r++) w->ranks[r] = r;
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->work, NULL);
  find_tickets(w);
  if (start_world(w) != MPI_SUCCESS) return refuse_world(w, "MPI cannot duplicate its communicator", error);
  Error why = {0};
  if (thread_start(&w->progress_thread, wire_progress, w, &why, "a communication thread"))
    return refuse_world(w, why.message, error);
  *result = &w->base;
  return PLAIT_OK;
}
#endif
