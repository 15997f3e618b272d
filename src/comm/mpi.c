// The MPI wire: ranks are processes that mpirun or srun has started. Any MPI-3.1. MPI_THREAD_SERIALIZED is asked for,
// not MULTIPLE: it is everywhere, and the lock that it needs is held for tests and posts only, never while anything
// waits.
#ifdef PLAIT_MPI
#include "base/clock.h"
#include "comm/launcher.h"
#include "comm/process.h"
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAILURE_SECONDS = 5 }; // that a failed rank waits for the one who knows why to end the job

typedef struct MpiWorld {
  ProcessWorld base;
  int initialised_here;
  MPI_Comm everyone, control;
  MPI_Request arrival; // of a notice
  Notice incoming, outgoing;
  RequestBatch leaving;                 // of the outgoing notice
  int notified, received_notice; // this rank has sent the others a notice of failure; it has received one
  int *lengths;                  // (capacity) of the pieces of the message that is posted; their places
  MPI_Aint *places;
  size_t capacity;
} MpiWorld;

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t) && sizeof(MPI_Comm) <= sizeof(uint64_t), "handles");

// Messages ----------------------------------------------------------------------------------------------------------

static MPI_Request request_get(const WireRequest *request) {
  MPI_Request mpi;
  memcpy(&mpi, &request->handle, sizeof mpi);
  return mpi;
}

static WireContext context_of(MPI_Comm comm) {
  WireContext context = {0};
  memcpy(&context.handle, &comm, sizeof comm);
  return context;
}

static MPI_Comm comm_of(const WireContext *context) {
  MPI_Comm comm;
  memcpy(&comm, &context->handle, sizeof comm);
  return comm;
}

static int post_one(WireKind kind, const WirePeer *peer, void *data, int count, MPI_Datatype type,
                    WireRequest *request) {
  MPI_Comm comm = comm_of(&peer->context);
  MPI_Request mpi = MPI_REQUEST_NULL;
  int rank = peer->rank < 0 ? MPI_ANY_SOURCE : peer->rank, status;
  if (kind == WIRE_RECEIVE) status = MPI_Irecv(data, count, type, rank, peer->tag, comm, &mpi);
  else if (kind == WIRE_SEND) status = MPI_Isend(data, count, type, rank, peer->tag, comm, &mpi);
  else status = MPI_Issend(data, count, type, rank, peer->tag, comm, &mpi);
  *request = (WireRequest){.pending = mpi != MPI_REQUEST_NULL, .receives = kind == WIRE_RECEIVE};
  memcpy(&request->handle, &mpi, sizeof mpi);
  return status;
}

static void mpi_reserve(ProcessWorld *base, size_t pieces, size_t messages) {
  MpiWorld *w = (MpiWorld *)base;
  if (pieces <= w->capacity) return;
  w->lengths = xrealloc(w->lengths, pieces * sizeof *w->lengths);
  w->places = xrealloc(w->places, pieces * sizeof *w->places);
  for (; w->capacity < pieces; w->capacity++) { // the pages are there from now on
    w->lengths[w->capacity] = 0;
    w->places[w->capacity] = 0;
  }
}

// MPI packs several pieces by a datatype, which stays until the message is done.
static int mpi_post(ProcessWorld *base, WireKind kind, const WirePeer *peer, const WirePiece *pieces, size_t n,
                    WireRequest *request) {
  MpiWorld *w = (MpiWorld *)base;
  MPI_Datatype type;
  if (n == 1) return post_one(kind, peer, pieces->data, (int)pieces->bytes, MPI_BYTE, request);
  mpi_reserve(base, n, 1);
  for (size_t i = 0; i < n; i++) {
    w->lengths[i] = (int)pieces[i].bytes;
    MPI_Get_address(pieces[i].data, &w->places[i]);
  }
  int status = MPI_Type_create_hindexed((int)n, w->lengths, w->places, MPI_BYTE, &type);
  if (status != MPI_SUCCESS) return status;
  status = MPI_Type_commit(&type);
  if (status == MPI_SUCCESS) status = post_one(kind, peer, MPI_BOTTOM, 1, type, request);
  MPI_Type_free(&type);
  return status;
}

static int mpi_test(ProcessWorld *base, WireRequest *request, int *done) {
  *done = 1;
  if (!request->pending) return MPI_SUCCESS;
  MPI_Request mpi = request_get(request);
  int status = MPI_Test(&mpi, done, MPI_STATUS_IGNORE);
  if (*done) *request = (WireRequest){0};
  else memcpy(&request->handle, &mpi, sizeof mpi);
  return status;
}

// Sends cannot be cancelled; MPI frees the request when it is done.
static void mpi_forget(ProcessWorld *base, WireRequest *request) {
  MPI_Request mpi = request_get(request);
  if (request->receives) MPI_Cancel(&mpi);
  MPI_Request_free(&mpi);
  *request = (WireRequest){0};
}

// Contexts ----------------------------------------------------------------------------------------------------------

static int mpi_context_create(ProcessWorld *base, const int *ranks, int n, uint64_t id, WireContext *context) {
  MpiWorld *w = (MpiWorld *)base;
  MPI_Group all, group;
  MPI_Comm mpi = MPI_COMM_NULL;
  int status = MPI_Comm_group(w->everyone, &all);
  if (status == MPI_SUCCESS) status = MPI_Group_incl(all, n, ranks, &group);
  if (status == MPI_SUCCESS) status = MPI_Comm_create_group(w->everyone, group, 0, &mpi);
  if (status == MPI_SUCCESS) status = MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
  if (status == MPI_SUCCESS) MPI_Group_free(&group), MPI_Group_free(&all);
  *context = context_of(mpi);
  return status;
}

// MPI_Comm_free is collective in the standard, but no MPI waits in it.
static void mpi_context_free(ProcessWorld *base, WireContext *context) {
  MPI_Comm mpi = comm_of(context);
  MPI_Comm_free(&mpi);
}

// Failures ----------------------------------------------------------------------------------------------------------

static ErrorRank mpi_explain(ProcessWorld *base, int status, char *text, size_t size) {
  char words[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, words, &length);
  snprintf(text, size, "%s", words);
  return error_rank(base->rank, base->host);
}

static void mpi_look(ProcessWorld *base) {
  MpiWorld *w = (MpiWorld *)base;
  int arrived = 0;
  if (w->received_notice || w->notified) return;
  if (MPI_Test(&w->arrival, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS || !arrived) return;
  w->received_notice = 1;
  process_noticed(base, &w->incoming);
}

static void mpi_notify(ProcessWorld *base) {
  MpiWorld *w = (MpiWorld *)base;
  int gone = 0, status;
  if (w->notified || w->received_notice || w->arrival == MPI_REQUEST_NULL) return;
  w->notified = 1;
  w->outgoing.error = base->base.abort.error;
  for (int r = 0; r < base->base.ranks; r++)
    if (r != base->rank)
      control_post(base, WIRE_SEND, &w->outgoing, sizeof w->outgoing, r, TAG_NOTICE, batch_add(&w->leaving));
  // One that is stopped never takes it, and on a busy machine each look may cost a time slice.
  double until = clock_seconds() + 1;
  for (int i = 0; i < 1000 && !gone && clock_seconds() < until; i++) gone = batch_test(base, &w->leaving, &status);
}

// Should MPI wait for a rank that is gone the alarm ends this process, and its launcher the others.
static _Noreturn void kill_job(int status) {
  usleep(300000); // launchers drop what they have not passed on yet
  signal(SIGALRM, SIG_DFL);
  alarm(FAILURE_SECONDS);
  MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

static void mpi_end(ProcessWorld *base, int status, const Error *error) { kill_job(status); }

// MPI cannot be left in order when calls have failed: the job ends here, on all ranks, with the exit status of the
// failure.
static void end_job(MpiWorld *w) {
  int code = abort_code(&w->base.base.abort);
  fflush(stdout);
  if (w->received_notice) sleep(FAILURE_SECONDS); // whoever knew first says why and ends the job, this rank included
  else fprintf(stderr, "plait: rank %d on %s: %s\n", w->base.rank, w->base.host, w->base.base.abort.error.message);
  kill_job(error_exit_status(code));
}

// World -------------------------------------------------------------------------------------------------------------

static void mpi_world_destroy(ProcessWorld *base) {
  MpiWorld *w = (MpiWorld *)base;
  if (abort_code(&base->base.abort)) end_job(w);
  heartbeats_forget(base);
  departures_forget(base);
  MPI_Cancel(&w->arrival);
  MPI_Wait(&w->arrival, MPI_STATUS_IGNORE);
  MPI_Comm_free(&w->everyone);
  MPI_Comm_free(&w->control);
  if (w->initialised_here) MPI_Finalize();
  process_world_free(base);
  batch_free(&w->leaving);
  free(w->lengths);
  free(w->places);
  free(w);
}

static const Wire mpi_wire = {
    .name = "mpi",
    .ends = 1,
    .post = mpi_post,
    .test = mpi_test,
    .forget = mpi_forget,
    .reserve = mpi_reserve,
    .context_create = mpi_context_create,
    .context_free = mpi_context_free,
    .explain = mpi_explain,
    .notify = mpi_notify,
    .look = mpi_look,
    .leave = process_leave_together, // what ends a job does not always reach those that are leaving
    .world_destroy = mpi_world_destroy,
    .end = mpi_end,
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

// Ranks of this machine. *machines: (ranks) the lowest rank of each one's, malloc'ed; NULL: there is one machine, or
// the MPI does not tell.
static int find_machines(int ranks, int rank, int **machines) {
  MPI_Comm local;
  int n = 1, lowest = rank;
  *machines = NULL;
  if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local) != MPI_SUCCESS) return 1;
  MPI_Comm_size(local, &n);
  MPI_Bcast(&lowest, 1, MPI_INT, 0, local);
  MPI_Comm_free(&local);
  int *all = xcalloc((size_t)ranks, sizeof *all), several = 0;
  MPI_Allgather(&lowest, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
  for (int r = 1; r < ranks; r++) several |= all[r] != all[0];
  if (several) *machines = all;
  else free(all);
  return n;
}

static void find_tickets(MpiWorld *w) {
  int *highest = NULL, found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &highest, &found);
  w->base.tickets = (found ? *highest : 32767) / 2;
}

static int start_world(MpiWorld *w) {
  int status = MPI_Comm_dup(MPI_COMM_WORLD, &w->everyone);
  if (status == MPI_SUCCESS) status = MPI_Comm_dup(MPI_COMM_WORLD, &w->control);
  if (status != MPI_SUCCESS) return status;
  MPI_Comm_set_errhandler(w->everyone, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(w->control, MPI_ERRORS_RETURN);
  w->base.everyone = context_of(w->everyone);
  w->base.control = context_of(w->control);
  return MPI_Irecv(&w->incoming, sizeof w->incoming, MPI_BYTE, MPI_ANY_SOURCE, TAG_NOTICE, w->control, &w->arrival);
}

// The others have come as far as this or will; they learn why. MPI cannot be left without them: this ends with the
// process.
static int refuse_world(MpiWorld *w, const char *why, Error *error) {
  Error own = {0};
  error_set(&own, PLAIT_FAILED, "%s", why);
  error_name_rank(&own, w->base.rank, w->base.host);
  abort_all(&w->base.base.abort, &own);
  process_notify(&w->base);
  return error_take(error, &own);
}

int plait_world_mpi_create(PlaitWorld **result, PlaitError *error) {
  int here = 0, n = 0, rank = 0, code;
  *result = NULL;
  if ((code = initialise(&here, error))) return code;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if ((code = check_singletons(n, error))) {
    if (here) MPI_Finalize();
    return code;
  }
  MpiWorld *w = xcalloc(1, sizeof *w);
  int *machines, local = find_machines(n, rank, &machines);
  process_world_init(&w->base, &mpi_wire, rank, n, local);
  w->base.machines = machines;
  w->arrival = MPI_REQUEST_NULL;
  w->initialised_here = here;
  find_tickets(w);
  if (start_world(w) != MPI_SUCCESS) return refuse_world(w, "MPI cannot duplicate its communicator", error);
  Error why = {0};
  if (process_world_start(&w->base, &why)) return refuse_world(w, why.message, error);
  *result = &w->base.base;
  return PLAIT_OK;
}
#endif
