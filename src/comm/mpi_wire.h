// Inside of the MPI back end: ranks are processes. Every MPI call is made under one lock (so MPI_THREAD_SERIALIZED is
// enough) and none of them waits: whoever waits tests in a loop, and lets go of the lock in between.
#pragma once
#include "comm/comm.h"
#include "comm/record_queue.h"
#include <mpi.h>

// Tags on the control communicator: notices of failure, lists of communicators that are created, heartbeats, handles
// that were destroyed.
enum { TAG_NOTICE = 0, TAG_CREATE = 1, TAG_GO = 2, TAG_LEAVE = 3, TAG_HEARTBEAT = 4, TAG_DEPARTURE = 5 };

enum {
  LARGEST_MESSAGE = 1 << 30, // bytes: MPI counts in ints
  HEADER_COUNTS = 6,
  HOST_NAME = 64,
  HEARTBEATS = 2, // ranks that heartbeats are sent to, at most
  FAILURE_SECONDS = 5, // that a failed rank waits for the one who knows why to end the job
};

// Requests that are waited for together.
typedef struct Batch {
  MPI_Request *requests; // (capacity)
  int capacity, count;
  int done;              // of the first ones
} Batch;

// Precedes the elements from one rank to another, so that a mismatch becomes a sentence and not a hang.
typedef struct Header {
  uint64_t ticket;
  int32_t kind, dtype, op, root;
  uint64_t nbuffers, total;      // total: elements that follow; of all buffers where a call is not point to point or _v
  uint64_t counts[HEADER_COUNTS];  // of the first buffers
  uint64_t rest;                 // hash of the other counts
} Header;

// Sent to all others of a communicator when a rank destroys its handle: what it has issued there until then.
typedef struct Departure {
  uint64_t comm;            // MpiComm.id; UINT64_MAX: it was its last handle of any
  int32_t rank, gone;       // world rank; 1
  uint64_t collectives;
  uint64_t sends, receives; // to and from the receiver of this
} Departure;

// The sentence of a failed world on its way to the other ranks.
typedef struct Notice { int32_t code, rank; char message[1024]; } Notice;

// A send whose receiver may not have copied yet.
typedef struct WireMessage { Header header; Batch batch; int posted, copied; MPI_Request requests[]; } WireMessage;

// Messages of one communicator with one peer; all fields under the world's lock.
typedef struct WireMessageQueue {
  PlaitTimeline timeline; // value v: the first v sends were copied
  struct MpiWorld *world;
  struct MpiComm *comm;
  int peer;
  struct WireMessageQueue *next; // among those with sends under way
  int listed;
  RecordQueue messages; // that were not copied; the first is send `copied`
  uint64_t sends, receives; // issued
  uint64_t copied;
} WireMessageQueue;

// The pieces of memory that become one message.
typedef struct Pieces { int *lengths; MPI_Aint *places; size_t capacity; } Pieces; // (capacity) each

typedef struct MpiWorld {
  PlaitWorld base;
  pthread_mutex_t lock; // around every MPI call
  int rank, *ranks;     // (ranks) 0 … n-1
  char host[HOST_NAME];
  int tickets;          // tags are 2 · (ticket % tickets), messages add 1
  int initialised_here, taken;
  int spin;             // looks before yielding; 0 where cores are fewer than ranks
  MPI_Comm everyone, control;
  MPI_Request arrival;  // of a notice
  Notice incoming, outgoing;
  Batch leaving;        // of the outgoing notice
  Heartbeat heartbeat, heartbeats[HEARTBEATS]; // received; sent to ranks 0 …
  MPI_Request heartbeat_in, heartbeat_out[HEARTBEATS];
  Pieces pieces;           // of the message that is posted
  struct MpiComm *handles;  // that are not destroyed
  uint64_t created;         // communicators of which this rank is the lowest
  Departure departure;      // received
  MPI_Request departure_in;
  RecordQueue departures;   // sent, until they are gone
  int departed;             // how many have arrived
  char *gone;               // (ranks) who has destroyed its last handle
  int notified, received_notice; // this rank has sent the others a notice of failure; it has received one
  pthread_t progress_thread;       // tests the sends that nobody waits for, and sleeps
  pthread_cond_t work;
  WireMessageQueue *pending;
  int stop;
} MpiWorld;

typedef struct MpiComm {
  PlaitComm base;
  struct MpiComm *next;      // of the handles
  uint64_t id;               // the same on all its ranks, of no other communicator
  MPI_Comm comm;
  WireMessageQueue *queues;  // (size) by peer
  Departure *left;           // (size) by peer; gone 0: it has not
  Monitor turn;                 // guards `finished`
  uint64_t issued, finished; // collectives
  // Of the collective under way:
  Header *sent, *got;          // (size)
  Batch headers, first[2], second[2];
  const void **inputs;       // (size)
  char *staging[2];
  size_t staging_bytes;      // of each
} MpiComm;

// Engine (mpi_wire.c) -----------------------------------------------------------------------------------------------

static inline void wire_lock(MpiWorld *w) { pthread_mutex_lock(&w->lock); }
int wire_lock_within(MpiWorld *w, long nanoseconds); // at most 1000000000; 0: it could not be had
static inline void wire_unlock(MpiWorld *w) { pthread_mutex_unlock(&w->lock); }

// How a thread waits: it looks often, then yields, then sleeps longer and longer. Without the lock.
typedef struct Backoff { int turns; long nanoseconds; } Backoff;
void wire_pause(const MpiWorld *w, Backoff *backoff);

// With the lock: has another rank sent a notice that the world failed (then abort_code is set), or that it has left a
// communicator?
void wire_look(MpiWorld *w);
// Without the lock: fails the world with what MPI says (status != MPI_SUCCESS), notifies the others; the world's code.
int wire_failed(MpiWorld *w, const char *doing, int status);
// Without the lock: sends the other ranks the reason why the world failed; only the first call of the rank that knew
// first does.
void wire_notify(MpiWorld *w);

MPI_Request *batch_add(Batch *batch); // room for one more
void batch_reserve(Batch *batch, int requests);
void batch_free(Batch *batch);
// With the lock: are all done? 1, 0, or -1 with MPI's code in *status.
int batch_test(Batch *batch, int *status);
// Whom a wait is for: the ranks that a call needs, or a rank of the world; -1: for nobody who may have left.
typedef struct Awaited {
  MpiComm *comm;
  const CommCall *call;
  int rank;
  const Waiter *waiter;
} Awaited; // waiter: the thread
// Waits for all requests of the batch, which is then empty. When the world fails its receives are cancelled.
int wire_wait(MpiWorld *w, Batch *batch, Awaited whom);
int wire_wait_call(MpiComm *c, const CommCall *call, Batch *batch);

// Data (mpi_view.c) -------------------------------------------------------------------------------------------------

// What a call sends or receives as one row of bytes: its buffers one after the other (or part `part` of each), or
// memory.
typedef struct View {
  const CommCall *call; // NULL: `bytes` at `data`
  int receives, part;   // part -1: the buffers are not in parts
  char *data;
  size_t bytes;
} View;

View view_call(const CommCall *call, int receives, int part);
View view_memory(const void *data, size_t bytes);
char *view_at(const View *view, size_t at, size_t *left); // address of byte `at`; how many follow it in one piece
void view_copy(const View *to, const View *from);         // cut alike; does nothing where both are the same memory
// With the lock: room for a message of this many pieces.
void pieces_reserve(MpiWorld *w, size_t pieces);
// Posts bytes [from, to) of the view to or from a peer, in messages of at most LARGEST_MESSAGE. With the lock. MPI's
// code.
int wire_post(const MpiComm *c, Batch *batch, const View *view, size_t from, size_t to, int peer, int tag, int receive);

// Headers (mpi_header.c) ---------------------------------------------------------------------------------------------

typedef enum Ends { NOBODY, EVERYBODY, ROOT } Ends; // of the others; ROOT: nobody, where this rank is the root

Header header_of(const MpiComm *c, const CommCall *call, int peer);
// Is `header`, from `peer`, of the same call as this one? Otherwise the world fails with a sentence that names both.
int header_check(MpiComm *c, const CommCall *call, int peer, const Header *header);
int header_includes(const MpiComm *c, const CommCall *call, Ends ends, int peer);
int header_exchange(MpiComm *c, const CommCall *call, Ends to, Ends from); // sends and expects headers
int header_await(MpiComm *c, const CommCall *call, Ends from);          // waits for them and checks them
int wire_tag(const MpiComm *c, const CommCall *call);

// Departures (mpi_departure.c) --------------------------------------------------------------------------------------

void departures_look(MpiWorld *w);           // with the lock: those that have arrived
void departures_forget(MpiWorld *w);         // at the end
void departure_send(MpiComm *c);             // with the lock: this rank's handle is about to be destroyed
// With the lock: the rank of the communicator, or of the world, that has left and that the wait is for in vain. -1:
// there is none.
int departure_find(const MpiWorld *w, Awaited whom);
int departure_fail(MpiWorld *w, Awaited whom, int departed); // without the lock: fails the world

// Calls -------------------------------------------------------------------------------------------------------------

int wire_collective(MpiComm *c, const CommCall *call); // mpi_collective.c: everything but
int wire_reduction(MpiComm *c, const CommCall *call);  // mpi_reduction.c: all_reduce, reduce_scatter, reduce
void wire_reserve_collective(PlaitComm *comm, size_t buffers, size_t reduced); // as comm_reserve_collective

void wire_message_queue_init(WireMessageQueue *queue, MpiComm *c, int peer); // mpi_message.c
void wire_message_queue_free(WireMessageQueue *queue);
void wire_message_reserve(PlaitComm *comm, int peer, size_t messages, size_t buffers);
void wire_message_issue(MpiComm *c, CommCall *call, PlaitEvent *sent);
int wire_send(MpiComm *c, const CommCall *call);
int wire_receive(MpiComm *c, const CommCall *call);
void *wire_progress(void *world); // the thread
