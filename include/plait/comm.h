// Collectives and point-to-point messages between ranks: the public interface of every communication back end.
//
// A world holds all ranks; a communicator is an ordered list of them, and a rank's place in that list is its rank in
// the communicator. A PlaitComm is one rank's handle to a communicator. Every rank of a communicator issues the same
// collectives on it in the same order. All calls of one handle are issued from one thread at a time.
//
// Errors: a function returns 0, or a negative code of plait/error.h; a PlaitError * may be NULL. Whatever fails in a
// communication call (another call on another rank, a bad argument, plait_world_abort) fails the world: each call that
// waits or comes later on any rank returns that first error instead of hanging, and plait_comm_error says what it was.
//
// Reductions take the ranks in the order 0 … n-1 for every element, so results are the same bits on all ranks and in
// all runs. bf16 and fp16 accumulate in float and round once; integers wrap around; max and min propagate NaN.
//
// Buffers: a call takes a list, so that a bucket of tensors needs no copy. All ranks pass the same counts in the same
// order. The list itself is copied; the memory it points to must stay until the call is done. Where `in place` is not
// allowed below, nothing that a rank receives may overlap what it sends.
//
// Streams: with stream NULL a call returns when it is done here (event may be NULL). With a stream it returns at once
// and the stream's thread runs it after the calls before it. Calls on one handle run in the order of issue, whatever
// streams they are on. Memory for the calls that are under way is kept: who has had as many, with as long lists,
// allocates nothing.
#pragma once
#include "plait/api.h"
#include "plait/error.h"
#include <stddef.h>
#include <stdint.h>

PLAIT_API_BEGIN

typedef struct PlaitWorld PlaitWorld;
typedef struct PlaitComm PlaitComm;
typedef struct PlaitStream PlaitStream;

typedef enum PlaitDtype { // the same values as src/base/dtypes.def
  PLAIT_FP64,
  PLAIT_FP32,
  PLAIT_BF16,
  PLAIT_FP16,
  PLAIT_INT64,
  PLAIT_INT32,
  PLAIT_UINT16,
  PLAIT_UINT8,
  PLAIT_DTYPE_COUNT
} PlaitDtype;

typedef enum PlaitOp {
  PLAIT_SUM,
  PLAIT_MAX,
  PLAIT_MIN,
  PLAIT_MEAN, // sum ÷ size of the communicator; floating point only
  PLAIT_OP_COUNT
} PlaitOp;

typedef struct PlaitBuffer {
  const void *send;
  void *recv;
  size_t count; // in elements; each call says of what
} PlaitBuffer;

// A moment when something is done. A plain value: copy it, reuse it, drop it. All zero = done. It must not be used
// after the stream or communicator it came from is destroyed.
typedef struct PlaitEvent {
  struct PlaitTimeline *timeline; // NULL: done
  uint64_t value;
} PlaitEvent;

// World -------------------------------------------------------------------------------------------------------------

// All ranks of one process: each rank is a thread of the caller's. Destroy it after its communicators and streams.
int plait_world_local_create(int ranks, PlaitWorld **world, PlaitError *error);

// The ranks that mpirun or srun has started, one a process; called by all of them, once. Initialises MPI unless the
// caller has (with MPI_THREAD_SERIALIZED or more; then the caller makes MPI calls of its own only while none of plait's
// are under way). PLAIT_BAD_INPUT (-2) where plait was built without MPI, and for tasks that MPI does not see as one
// world. Results are the bits of a local world. Every rank must take part in the end: plait_world_destroy leaves MPI,
// and when the world has failed it does not return: the rank that failed first says why on stderr, and all processes
// end.
int plait_world_mpi_create(PlaitWorld **world, PlaitError *error);

void plait_world_destroy(PlaitWorld *world); // NULL is fine
int plait_world_size(const PlaitWorld *world);
int plait_world_local_size(const PlaitWorld *world); // ranks on this machine
int plait_world_rank(const PlaitWorld *world);       // of this process; -1: all ranks are threads of it

// Fails the world with this sentence; the first one stays. From any thread.
void plait_world_abort(PlaitWorld *world, const char *message);

// Running ranks -----------------------------------------------------------------------------------------------------

// What a rank does. `comm` is its handle to the communicator of all ranks, borrowed. Returns 0 (or more) when all went
// well, else a negative code, of plait/error.h or of your own; it may say why in `error`, which is never NULL.
typedef int (*PlaitRankFunction)(PlaitComm *comm, void *argument, PlaitError *error);

// Runs the function on `ranks` ranks and returns when all of them have returned. This is all that a program of
// collectives needs; what is above it is for programs that start their threads themselves.
//
//   static int add(PlaitComm *comm, void *argument, PlaitError *error) {
//     double x = plait_comm_rank(comm);
//     int code = plait_all_reduce(comm, &(PlaitBuffer){&x, &x, 1}, 1, PLAIT_FP64, PLAIT_SUM, NULL, NULL);
//     if (!code && plait_comm_rank(comm) == 0) printf("%g\n", x);
//     return code;
//   }
//   if (plait_world_run(4, add, NULL, &error)) fprintf(stderr, "%s\n", error.message); // prints 6
//
// Started by hand, the ranks are threads of this process. Started by mpirun or srun, each process is one rank, and
// `ranks` must be as many as were started (one process: its threads). 0 stands for as many as were started, which is 1
// without a launcher. All ranks of a process get the same `argument`; threads that write to it must write to different
// places.
//
// Returns 0, or the first failure: its code, and in `error` the sentence with the rank before it, as in "rank 2: the
// disk is full". A rank that fails makes the world fail, so that no other rank waits for it; so does a rank that has
// returned while another still waits for it. A rank that returns a code and no sentence has the world's (see
// plait_comm_error). Where ranks are processes a failure ends all of them: the sentence is on stderr, and the call does
// not return. PLAIT_BAD_INPUT: another number of processes, or a launcher without an MPI in plait. Not from within the
// function; under a launcher once in a process, unless the program itself initialises MPI.
int plait_world_run(int ranks, PlaitRankFunction function, void *argument, PlaitError *error);

// Communicators -----------------------------------------------------------------------------------------------------

// This rank's handle to the communicator of all ranks; once per rank. Does not wait.
int plait_comm_world(PlaitWorld *world, int rank, PlaitComm **comm, PlaitError *error);

// A communicator of `ranks` (world ranks, distinct, this one among them), in that order. Waits for exactly the listed
// ranks, which must pass the same list. A rank that is in several creates them in an order without cycles.
// `world` is any handle of this rank. The communicator may be destroyed before or after it.
int plait_comm_create(PlaitComm *world, const int *ranks, int n, PlaitComm **comm, PlaitError *error);
// This rank's handle, with nothing under way; does not wait; NULL is fine. Others may still be finishing this rank's
// last call. If one of them waits for a call or message that this rank has not issued, the world fails with a sentence
// that names this rank.
void plait_comm_destroy(PlaitComm *comm);

int plait_comm_rank(const PlaitComm *comm);
int plait_comm_size(const PlaitComm *comm);
int plait_comm_world_rank(const PlaitComm *comm, int rank); // of a rank of the communicator
const char *plait_comm_error(const PlaitComm *comm); // why the world failed, "" when it has not; the world's memory

// Streams and events ------------------------------------------------------------------------------------------------

// One communication thread that runs what is issued on it in order. `comm` is any handle of the rank it works for.
// Destroy waits for everything queued.
int plait_stream_create(PlaitComm *comm, PlaitStream **stream, PlaitError *error);
void plait_stream_destroy(PlaitStream *stream); // NULL is fine
int plait_stream_wait(PlaitStream *stream, PlaitEvent event); // later calls on the stream start after the event
int plait_stream_synchronize(PlaitStream *stream);            // the caller waits for all that was issued so far

int plait_event_wait(PlaitEvent event); // 0, or the error of the call or of one before it on its stream
int plait_event_done(PlaitEvent event); // 1 done, 0 not yet, negative: failed

// Collectives -------------------------------------------------------------------------------------------------------
// n = size of the communicator, r = this rank. `event` (may be NULL) becomes the moment when the call is done here.

// recv (count) = op over ranks of send (count). In place when recv == send.
int plait_all_reduce(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, PlaitOp op,
                     PlaitStream *stream, PlaitEvent *event);

// recv (count) = op over ranks of part r of send (n · count), each buffer on its own. In place: recv == send + r ·
// count.
int plait_reduce_scatter(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, PlaitOp op,
                         PlaitStream *stream, PlaitEvent *event);

// recv (n · count) = send (count) of every rank, each buffer on its own. In place: send == recv + r · count.
int plait_all_gather(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype,
                     PlaitStream *stream, PlaitEvent *event);

// recv (count) = send (count) of the root. On the root recv may be NULL or == send; elsewhere send is not used.
int plait_broadcast(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int root,
                    PlaitStream *stream, PlaitEvent *event);

// recv (count) of the root = op over ranks of send (count). In place on the root: recv == send; elsewhere recv is
// unused.
int plait_reduce(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, PlaitOp op, int root,
                 PlaitStream *stream, PlaitEvent *event);

// recv (n · count) of the root = send (count) of every rank. In place on the root: send == recv + root · count.
int plait_gather(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int root,
                 PlaitStream *stream, PlaitEvent *event);

// recv (count) = part r of the root's send (n · count). In place on the root: recv == send + root · count.
int plait_scatter(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int root,
                  PlaitStream *stream, PlaitEvent *event);

// Part p of recv (n · count) = part r of send (n · count) of rank p. Not in place.
int plait_all_to_all(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype,
                     PlaitStream *stream, PlaitEvent *event);

// recv_counts[p] elements at recv + recv_offsets[p] = send of rank p, whose send_count must be that. Offsets in
// elements; NULL packs the parts in rank order. In place: send == recv + recv_offsets[r]. Arrays have n entries and are
// copied.
int plait_all_gather_v(PlaitComm *comm, const void *send, size_t send_count, void *recv, const size_t *recv_counts,
                       const size_t *recv_offsets, PlaitDtype dtype, PlaitStream *stream, PlaitEvent *event);

// recv_counts[p] elements at recv + recv_offsets[p] = those at send_offsets[r] of rank p, send_counts[r] of which must
// be that many. Not in place. Offsets as above.
int plait_all_to_all_v(PlaitComm *comm, const void *send, const size_t *send_counts, const size_t *send_offsets,
                       void *recv, const size_t *recv_counts, const size_t *recv_offsets, PlaitDtype dtype,
                       PlaitStream *stream, PlaitEvent *event);

// Done when all ranks have come here.
int plait_barrier(PlaitComm *comm, PlaitStream *stream, PlaitEvent *event);

// Point to point ----------------------------------------------------------------------------------------------------
// The k-th receive that a rank issues from a peer gets the k-th send that the peer issued to it, per communicator.
// Total count and dtype must agree; how the elements are cut into buffers need not.

// With an event, send waits for nobody: the event is the moment when the receiver has copied (`send` pointers must stay
// until then). Without one, the caller (stream NULL) or the stream waits for that.
int plait_send(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int peer,
               PlaitStream *stream, PlaitEvent *event);
int plait_recv(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int peer,
               PlaitStream *stream, PlaitEvent *event);

PLAIT_API_END
