// Inside of the back end whose ranks are processes. All that it does to other ranks goes through a wire (wire.h). Every
// call of the wire is made under one lock and none of them waits: whoever waits tests in a loop, and lets go of the
// lock in between.
#pragma once
#include "comm/comm.h"
#include "comm/ranges.h"
#include "comm/record_queue.h"
#include "comm/wire.h"

// Tags in the control context: notices of failure, lists of communicators that are created, heartbeats, handles
// that were destroyed.
enum { TAG_NOTICE = 0, TAG_CREATE = 1, TAG_GO = 2, TAG_LEAVE = 3, TAG_HEARTBEAT = 4, TAG_DEPARTURE = 5 };

enum {
  LARGEST_MESSAGE = 1 << 30, // bytes of a message of the wire
  HEADER_COUNTS = 6,
  HOST_NAME = 64,
  HEARTBEATS = 2, // ranks that heartbeats are sent to, at most
};

// Requests that are waited for together.
typedef struct RequestBatch {
  WireRequest *requests; // (capacity)
  int capacity, count;
  int done;              // of the first ones
} RequestBatch;

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
  uint64_t comm;            // ProcessComm.id; UINT64_MAX: it was its last handle of any
  int32_t rank, gone;       // world rank; 1
  uint64_t collectives;
  uint64_t sends, receives; // to and from the receiver of this
} Departure;

// A send whose receiver may not have copied yet.
typedef struct OutgoingMessage {
  Header header;
  RequestBatch batch;
  int posted, copied;
  WireRequest requests[];
} OutgoingMessage;

// Messages of one communicator with one peer; all fields under the world's lock.
typedef struct MessageQueue {
  PlaitTimeline timeline; // value v: the first v sends were copied
  struct ProcessWorld *world;
  struct ProcessComm *comm;
  int peer;
  struct MessageQueue *next; // among those with sends under way
  int listed;
  RecordQueue messages; // that were not copied; the first is send `copied`
  uint64_t sends, receives; // issued
  uint64_t copied;
} MessageQueue;

// The head of a wire's own world.
typedef struct ProcessWorld {
  PlaitWorld base;
  const Wire *wire;
  pthread_mutex_t lock; // around every call of the wire
  int rank, *ranks;     // (ranks) 0 … n-1
  char host[HOST_NAME];
  int *machines;        // (ranks) numbers of their machines, the same on all ranks; the wire's. NULL: one machine
  int chain;            // as process_set_chain
  int tickets;          // tags are 2 · (ticket % tickets), messages add 1; the wire's
  int taken;
  unsigned moved;       // grows when a test has moved bytes; a wire may leave it
  int spin;             // looks before yielding; 0 where cores are fewer than ranks
  WireContext everyone, control; // the wire's
  Heartbeat heartbeat, heartbeats[HEARTBEATS]; // received; sent to ranks 0 …
  WireRequest heartbeat_in, heartbeat_out[HEARTBEATS];
  WirePiece *pieces;            // (pieces_capacity) of the message that is posted
  size_t pieces_capacity;
  struct ProcessComm *handles; // that are not destroyed
  uint64_t created;         // communicators of which this rank is the lowest
  Departure departure;      // received
  WireRequest departure_in;
  RecordQueue departures;   // sent, until they are gone
  int departed;             // how many have arrived
  char *gone;               // (ranks) who has destroyed its last handle
  pthread_t progress_thread;       // tests the sends that nobody waits for, and sleeps
  pthread_cond_t work;
  MessageQueue *pending;
  int stop;
} ProcessWorld;

// Of an all_reduce by a chain of groups under way.
typedef struct ProcessChain {
  RequestBatch passed[2], rest; // sums on their way to the next group; results on their way to others
  char *staging[2];
  size_t staging_bytes;  // of each
} ProcessChain;

typedef struct ProcessComm {
  PlaitComm base;
  struct ProcessComm *next;      // of the handles
  ProcessCount *count;           // (size) by peer; under the world's lock
  uint64_t id;               // the same on all its ranks, of no other communicator
  WireContext context;
  MessageQueue *queues;  // (size) by peer
  Departure *left;           // (size) by peer; gone 0: it has not
  Monitor turn;                 // guards `finished`
  uint64_t issued, finished; // collectives
  // Of the collective under way:
  Header *sent, *got;          // (size)
  RequestBatch headers, first[2], second[2];
  const void **inputs;       // (size)
  char *staging[2];
  size_t staging_bytes;      // of each
  ProcessChain chain;
  int group;                 // ranks of each machine, where they follow on each other; else 0
} ProcessComm;

// Worlds (process.c) ------------------------------------------------------------------------------------------------

// By a wire: what is common of a world of `ranks`, `local_ranks` of which are on this machine.
void process_world_init(ProcessWorld *w, const Wire *wire, int rank, int ranks, int local_ranks);
int process_world_start(ProcessWorld *w, Error *error); // its progress thread, when the wire works
void process_world_free(ProcessWorld *w);               // all but the struct
// Ranks that are processes leave together: with messages around all ranks, each waits for all others.
void process_leave_together(ProcessWorld *w);
// A communicator of these ranks, this one among them. Waits for them.
int process_comm_create(PlaitComm *any, const int *ranks, int n, PlaitComm **comm, Error *error); // process_create.c
// With the lock.
PlaitComm *process_handle_create(ProcessWorld *w, WireContext context, uint64_t id, const int *ranks, int n);

// Without the lock: one message in the control context; the world's code.
int control_wait(ProcessWorld *w, void *data, size_t bytes, int rank, int tag, int receive);

void process_heartbeat(PlaitWorld *world, const Heartbeat *mine, int to, HeartbeatReceived received,
                       void *context); // process_heartbeat.c: as world_heartbeat
void heartbeats_forget(ProcessWorld *w); // at the end

// Waiting and failing (process_wait.c) ------------------------------------------------------------------------------

static inline void process_lock(ProcessWorld *w) { pthread_mutex_lock(&w->lock); }
int process_lock_within(ProcessWorld *w, long nanoseconds); // at most 1000000000; 0: it could not be had
static inline void process_unlock(ProcessWorld *w) { pthread_mutex_unlock(&w->lock); }

// How a thread waits: it looks often, then yields, then sleeps longer and longer. Without the lock.
typedef struct Backoff { int turns; long nanoseconds; } Backoff;
void process_pause(const ProcessWorld *w, Backoff *backoff);

// With the lock: has another rank sent a notice that the world failed (then abort_code is set), or that it has left a
// communicator?
void process_look(ProcessWorld *w);
// By the wire, from any thread: another rank has sent this.
void process_noticed(ProcessWorld *w, Notice *notice);
// Without the lock: fails the world with what the wire says of the status, notifies the others; the world's code.
int process_failed(ProcessWorld *w, const char *doing, int status);
// Without the lock: sends the other ranks the reason why the world failed, where this rank knew first.
void process_notify(ProcessWorld *w);

WireRequest *batch_add(RequestBatch *batch); // room for one more
void batch_reserve(RequestBatch *batch, int requests);
void batch_free(RequestBatch *batch);
// With the lock: are all done? 1, 0, or -1 with the wire's code in *status.
int batch_test(ProcessWorld *w, RequestBatch *batch, int *status);
// Whom a wait is for: the ranks that a call needs, or a rank of the world; -1: for nobody who may have left.
typedef struct Awaited {
  ProcessComm *comm;
  const CommCall *call;
  int rank;
  const Waiter *waiter;
} Awaited; // waiter: the thread
// Waits for all requests of the batch, which is then empty. When the world fails its receives are cancelled.
int process_wait(ProcessWorld *w, RequestBatch *batch, Awaited whom);
int process_wait_call(ProcessComm *c, const CommCall *call, RequestBatch *batch);

// Data (process_view.c) -----------------------------------------------------------------------------------------------

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
// Memory of whole pages (of 4 KiB) for elements on their way: so they are not spread over more of them, or of cache
// lines, than needed. Zero, and its pages are there. The caller frees it.
char *staging_take(size_t bytes);
// With the lock: room for a message of this many pieces.
void pieces_reserve(ProcessWorld *w, size_t pieces);
// Posts bytes [from, to) of the view to or from a peer, in messages of at most LARGEST_MESSAGE. With the lock. The
// wire's code.
int process_post(const ProcessComm *c, RequestBatch *batch, const View *view, size_t from, size_t to, int peer, int tag,
                 int receive);
// Posts a header as one message; likewise.
int process_post_header(const ProcessComm *c, RequestBatch *batch, WireKind kind, Header *header, int peer, int tag);
// In the control context, to or from a rank of the world (a receive also from any, -1).
int control_post(ProcessWorld *w, WireKind kind, void *data, size_t bytes, int rank, int tag, WireRequest *request);

// Headers (process_header.c) ------------------------------------------------------------------------------------------

typedef enum Ends { NOBODY, EVERYBODY, ROOT } Ends; // of the others; ROOT: nobody, where this rank is the root

Header header_of(const ProcessComm *c, const CommCall *call, int peer);
// Is `header`, from `peer`, of the same call as this one? Otherwise the world fails with a sentence that names both.
int header_check(ProcessComm *c, const CommCall *call, int peer, const Header *header);
int header_includes(const ProcessComm *c, const CommCall *call, Ends ends, int peer);
int header_exchange(ProcessComm *c, const CommCall *call, Ends to, Ends from); // sends and expects headers
int header_await(ProcessComm *c, const CommCall *call, Ends from);          // waits for them and checks them
int process_tag(const ProcessComm *c, const CommCall *call);

// Departures (process_departure.c) ------------------------------------------------------------------------------------

void departures_look(ProcessWorld *w);           // with the lock: those that have arrived
void departures_forget(ProcessWorld *w);         // at the end
void departure_send(ProcessComm *c);             // with the lock: this rank's handle is about to be destroyed
// With the lock: the rank of the communicator, or of the world, that has left and that the wait is for in vain. -1:
// there is none.
int departure_find(const ProcessWorld *w, Awaited whom);
int departure_fail(ProcessWorld *w, Awaited whom, int departed); // without the lock: fails the world

// Calls -------------------------------------------------------------------------------------------------------------

int process_collective(ProcessComm *c, const CommCall *call); // process_collective.c: everything but
int process_reduction(ProcessComm *c, const CommCall *call);  // process_reduction.c: all_reduce, reduce_scatter, reduce
void process_reserve_collective(PlaitComm *comm, size_t buffers, size_t reduced); // as comm_reserve_collective


// process_chain.c: an all_reduce or reduce_scatter by a chain of groups of so many ranks each, a divisor of the
// communicator's size.
int process_chain(ProcessComm *c, const CommCall *call, int group);
// Takes memory for all up to so many bytes; returns how many messages are under way at most.
size_t process_chain_reserve(ProcessComm *c, size_t bytes, int group);
void process_chain_free(ProcessChain *chain);
// process_pattern.c: what patterns of collectives follow from.
Patterned process_patterned(const ProcessComm *c);
int process_machine_group(const ProcessWorld *w, const int *ranks, int n); // ProcessComm.group

void message_queue_init(MessageQueue *queue, ProcessComm *c, int peer); // process_message.c
void message_queue_free(MessageQueue *queue);
void message_reserve(PlaitComm *comm, int peer, size_t messages, size_t buffers);
void message_issue(ProcessComm *c, CommCall *call, PlaitEvent *sent);
int message_send(ProcessComm *c, const CommCall *call);
int message_receive(ProcessComm *c, const CommCall *call);
void *message_progress(void *world); // the thread
