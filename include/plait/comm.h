// By hand: ranks, and the collectives and messages between them, with nothing above.
//
// A *rank* is one of several that work together: a thread of this process, or a process that mpirun or srun has
// started. The *world* is all of them. A *communicator* is an ordered list of ranks of the world; a rank's place in the
// list is its rank in the communicator. A PlaitComm is one rank's handle to a communicator. Most programs need
// plait_world_run (below), which runs a function on every rank, and the collectives:
//
//   static int add(PlaitComm *comm, void *argument, PlaitError *error) {
//     double x = plait_comm_rank(comm);
//     PlaitBuffer sum = {&x, &x, 1}; // in place
//     int code = plait_all_reduce(comm, &sum, 1, PLAIT_FP64, PLAIT_SUM, NULL, NULL);
//     if (!code && plait_comm_rank(comm) == 0) printf("%g\n", x);
//     return code;
//   }
//   if (plait_world_run(4, add, NULL, &error)) fprintf(stderr, "%s\n", error.message); // prints 6
//
// Order: every rank of a communicator makes the same collective calls on it, in the same order. One thread at a time
// calls with a handle.
//
// Errors: a function returns 0, or a negative code of plait/error.h; a PlaitError * may be NULL. A communication call
// that fails (calls of ranks that do not fit each other, a wrong argument, plait_world_abort) makes the world fail:
// every call that waits, and every later one on any rank, returns that first error instead of waiting for ever.
// plait_comm_error has the sentence. So a program may make several calls and look at the last one's code.
//
// Results: a reduction takes the ranks in the order 0 … n-1 for every element, so its result has the same bits on all
// ranks, in every run, and for threads as for processes. bf16 and fp16 are added up in float and rounded once; integers
// wrap around; max and min of a NaN are NaN.
//
// Buffers: a call takes a list of them, so that many small tensors can be one message without being copied together.
// All ranks pass the same counts in the same order. Where a buffer has a part for each rank (send or recv `n · count`
// below), part p begins p · count elements after the address, or p · stride where a stride is given: parts may lie
// apart, as the columns that ranks have of a row-major matrix (one buffer for each row), or the other way round.
// Strides are each rank's own affair. The list itself is copied before the call returns; the memory that it points to
// must stay, and the program must leave it alone, until the call is done. Where `in place` is not mentioned below,
// nothing that a rank receives may overlap what it sends.
//
// Streams: with stream NULL a call returns when it is done on this rank. With a stream it returns at once, the
// stream's thread does the work after that of the calls before it, and the event tells when it is done: so a rank
// computes while it communicates. Calls with one handle run in the order in which they were made, whatever streams they
// are on.
//
//   PlaitStream *stream;
//   PlaitEvent done;
//   plait_stream_create(comm, &stream, error);
//   plait_all_reduce(comm, &gradient, 1, PLAIT_FP32, PLAIT_SUM, stream, &done);
//   … compute what does not need the sum …
//   code = plait_event_wait(done);
//
// Memory: what calls need while they are under way is kept for the next ones. A loop of the same calls allocates
// nothing after its first round.
#pragma once
#include "plait/api.h"
#include "plait/error.h"
#include <stddef.h>
#include <stdint.h>

PLAIT_API_BEGIN

typedef struct PlaitWorld PlaitWorld;
typedef struct PlaitComm PlaitComm;
typedef struct PlaitStream PlaitStream;

typedef enum PlaitDtype { // the type of a buffer's elements
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
  const void *send; // what this rank gives
  void *recv;       // where it receives; the same address is `in place`, which each call allows or not
  size_t count;     // in elements; each call says of which of the two
  // Elements from the part of one rank to that of the next one, where a call has parts there; 0: count. Below 0: the
  // parts lie in descending order, and the address is that of part 0, the last of them. Elsewhere 0.
  ptrdiff_t send_stride, recv_stride;
} PlaitBuffer;

// The moment when a call is done. A plain value: copy it, overwrite it, forget it; nothing is to be freed. All zero
// stands for done. Not to be used after the stream or communicator that it came from is destroyed. (The fields are
// plait's own.)
typedef struct PlaitEvent {
  struct PlaitTimeline *timeline;
  uint64_t value;
} PlaitEvent;

// Running ranks -----------------------------------------------------------------------------------------------------

// The function that each rank runs. `comm` is its handle to the communicator of all ranks, borrowed. Returns 0 (or
// more) when all went well, else a negative code, of plait/error.h or of your own; it may say why in `error`, which is
// never NULL.
typedef int (*PlaitRankFunction)(PlaitComm *comm, void *argument, PlaitError *error);

// Runs the function on `ranks` ranks and returns when all of them have returned. This is all that a program of
// collectives needs; the next section is for programs that start their threads themselves.
//
// Started by hand, the ranks are threads of this process. Started by a launcher (see plait_world_launched_create), each
// process is one rank, and
// `ranks` must be as many as were started (one process: its threads). 0 stands for as many as were started, which is 1
// without a launcher. All ranks of a process get the same `argument`; threads that write to it must write to different
// places.
//
// Returns 0, or the first failure: its code, and in `error` the sentence with the rank before it, as in "rank 2: the
// disk is full". A rank that fails makes the world fail, so that no other rank waits for it; so does a rank that has
// returned while another still waits for it. A rank that returns a code and no sentence has the world's (see
// plait_comm_error). Where an MPI carries the ranks a failure ends all processes: the sentence is on stderr, and the
// call does not return. PLAIT_BAD_INPUT: another number of processes, or a launcher whose ranks this plait cannot join.
// An MPI is joined once in a process, unless the program itself initialises it; a second call then takes another wire.
int plait_world_run(int ranks, PlaitRankFunction function, void *argument, PlaitError *error);

// World -------------------------------------------------------------------------------------------------------------
// Not needed with plait_world_run.

// A world in this process: each rank is a thread that the caller starts, and that calls plait_comm_world. Destroy it
// after its communicators and streams.
int plait_world_local_create(int ranks, PlaitWorld **world, PlaitError *error);

// The ranks that a launcher has started, one a process, whichever it is: mpirun, srun, torchrun, or shells in which
// RANK, WORLD_SIZE and (for several machines) MASTER_ADDR and MASTER_PORT are set. MPI's world where an MPI finds the
// ranks and plait was built with it, else one of plait_world_net_create. Called by all ranks, which wait for each
// other; without a launcher there is one rank. PLAIT_BAD_INPUT: launchers that disagree, or a build without what is
// needed.
int plait_world_launched_create(PlaitWorld **world, PlaitError *error);

// Rank `rank` of `ranks` processes, which meet at a TCP port of rank 0's machine (host NULL: 127.0.0.1; rank 0 takes
// the next free port where it is taken) and then talk by shared memory or sockets. `id` (may be NULL) tells runs apart
// that look at the same port. Addresses of other machines only with PLAIT_SECRET=FILE in the environment
// (docs/launch.md, What listens), or PLAIT_INSECURE=1: then nobody is asked who they are. Results are the bits of a
// local world.
//
// Failures are errors: where a rank dies, every call of the others returns an error within 2 s, and where one is
// silent, after 5 s; plait_comm_failed_rank has it. The communicators and the world can then be destroyed as always,
// and a world of the ranks that are left can be made, at another port or with another id.
int plait_world_net_create(int rank, int ranks, const char *host, int port, const char *id, PlaitWorld **world,
                           PlaitError *error);

// The ranks that mpirun or srun has started, one a process; called by all of them, once. Initialises MPI unless the
// program has done so (with MPI_THREAD_SERIALIZED or more; it then makes its own MPI calls only while none of plait's
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

// Communicators -----------------------------------------------------------------------------------------------------

// This rank's handle to the communicator of all ranks; once per rank. Does not wait.
int plait_comm_world(PlaitWorld *world, int rank, PlaitComm **comm, PlaitError *error);

// A communicator of `ranks` (ranks of the world, each once, this one among them), in that order. Waits for exactly the
// listed ranks, which must pass the same list. Ranks that are in several communicators create those that they share in
// the same order, or they would wait for each other. `world` is any handle of this rank; the new one does not need it
// later.
int plait_comm_create(PlaitComm *world, const int *ranks, int n, PlaitComm **comm, PlaitError *error);
// Destroys this rank's handle, when all of its calls are done. Does not wait for other ranks, which may still be
// finishing the last call. If another rank waits for a call or message that this rank has not made, the world fails,
// with a sentence that names this rank. NULL is fine.
void plait_comm_destroy(PlaitComm *comm);

int plait_comm_rank(const PlaitComm *comm);
int plait_comm_size(const PlaitComm *comm);
int plait_comm_world_rank(const PlaitComm *comm, int rank); // of a rank of the communicator
const char *plait_comm_error(const PlaitComm *comm); // why the world failed, "" when it has not; the world's memory
// After a call of a rank has failed: why the world failed, with its ranks (plait/error.h). The code is PLAIT_UNWRITABLE
// where a rank has failed by that, else PLAIT_FAILED. Returns the code.
int plait_comm_failure(const PlaitComm *comm, PlaitError *error);
// The rank of the world that failed first: it has died, was silent, left too early or made a wrong call. -1: the world
// has not failed, or no one rank is to blame (two whose calls do not fit each other).
int plait_comm_failed_rank(const PlaitComm *comm);

// Streams and events ------------------------------------------------------------------------------------------------

// A thread that does the calls made with this stream, in order. `comm` is any handle of the rank that it works for.
// plait_stream_destroy waits for all of them.
int plait_stream_create(PlaitComm *comm, PlaitStream **stream, PlaitError *error);
void plait_stream_destroy(PlaitStream *stream); // NULL is fine
int plait_stream_wait(PlaitStream *stream, PlaitEvent event); // later calls on the stream start after the event
int plait_stream_synchronize(PlaitStream *stream);            // waits for all calls made with it so far

int plait_event_wait(PlaitEvent event); // 0, or the error of the call or of one before it on its stream
int plait_event_done(PlaitEvent event); // 1 done, 0 not yet, negative: failed

// Collectives -------------------------------------------------------------------------------------------------------
// n = size of the communicator, r = this rank. `event` (may be NULL) becomes the moment when the call is done on this
// rank: what it receives is there, and what it sends may be overwritten.

// recv (count) = op over ranks of send (count). In place when recv == send.
int plait_all_reduce(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, PlaitOp op,
                     PlaitStream *stream, PlaitEvent *event);

// recv (count) = op over ranks of part r of send (n · count), each buffer on its own. In place: recv == part r of send.
int plait_reduce_scatter(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, PlaitOp op,
                         PlaitStream *stream, PlaitEvent *event);

// recv (n · count) = send (count) of every rank, each buffer on its own. In place: send == part r of recv.
int plait_all_gather(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype,
                     PlaitStream *stream, PlaitEvent *event);

// recv (count) = send (count) of the root. On the root recv may be NULL or == send; elsewhere send is not used.
int plait_broadcast(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int root,
                    PlaitStream *stream, PlaitEvent *event);

// recv (count) of the root = op over ranks of send (count). In place on the root: recv == send; elsewhere recv is
// unused.
int plait_reduce(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, PlaitOp op, int root,
                 PlaitStream *stream, PlaitEvent *event);

// recv (n · count) of the root = send (count) of every rank. In place on the root: send == part `root` of recv.
int plait_gather(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int root,
                 PlaitStream *stream, PlaitEvent *event);

// recv (count) = part r of the root's send (n · count). In place on the root: recv == part `root` of send.
int plait_scatter(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int root,
                  PlaitStream *stream, PlaitEvent *event);

// Part p of recv (n · count) = part r of send (n · count) of rank p. Not in place.
int plait_all_to_all(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype,
                     PlaitStream *stream, PlaitEvent *event);

// recv (count) = send (count) of the rank `distance` before this one, counted around the ring of all ranks: rank r
// gives to rank (r + distance) mod n and receives from rank (r - distance) mod n. A negative distance goes the other
// way. Not in place, unless the distance is a multiple of n, which copies. On a stream the next block of a ring travels
// while this one is computed with: examples/ring_attention.c.
int plait_shift(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int distance,
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

// Done when all ranks have made this call.
int plait_barrier(PlaitComm *comm, PlaitStream *stream, PlaitEvent *event);

// Point to point ----------------------------------------------------------------------------------------------------
// In a communicator, the k-th receive that a rank makes from a peer gets the k-th send that the peer made to it.
// Total count and dtype must agree; how the elements are cut into buffers need not.

// With an event, plait_send waits for nobody: the event is the moment when the receiver has its copy, until which the
// memory must stay as it is. Without one, the caller (stream NULL) or the stream waits for that moment: two ranks that
// both send first would wait for each other.
int plait_send(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int peer,
               PlaitStream *stream, PlaitEvent *event);
int plait_recv(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int peer,
               PlaitStream *stream, PlaitEvent *event);

PLAIT_API_END
