// What a communication back end implements, and the call that the public functions hand to it.
#pragma once
#include "base/error.h"
#include "comm/kind.h"
#include "comm/monitor.h"
#include "comm/last_call.h"
#include "plait/comm.h"

// One call of one rank. Arrays belong to the caller and live as long as the call.
typedef struct CommCall {
  CommKind kind;
  PlaitDtype dtype;
  PlaitOp op;
  int root;        // of a rooted collective; the peer of a send or recv; how far a shift goes, 0 to size - 1
  int rendezvous;  // a send that is done when the receiver has copied, not when it is posted
  const Waiter *waiter; // the thread that runs the call
  uint64_t ticket; // its place in the order of issue; the back end's
  void *record;    // of a send, what the back end keeps of it
  const PlaitBuffer *buffers;
  size_t nbuffers; // 1 for the _v calls
  const size_t *send_counts, *send_offsets, *recv_counts,
      *recv_offsets; // (n) each, _v calls only; NULL offsets: packed
} CommCall;

size_t comm_total(const CommCall *call); // sum of the buffers' counts
// Where part `part` of what a buffer sends, or receives, begins; part 0 of one without parts.
char *comm_part(const PlaitBuffer *buffer, size_t element_size, int part, int receives);
// "all_reduce of 17 fp32 in 2 buffers (sum)", for messages.
void comm_describe(const CommCall *call, char *text, size_t size);

// Sent by a rank in another process now and then: that it is alive, and what it is doing.
typedef struct Heartbeat {
  int32_t rank, activity;
  int64_t step;
  double seconds; // since the activity began
  uint64_t call;  // comm_last
  char host[64];
} Heartbeat;
typedef void (*HeartbeatReceived)(void *context, const Heartbeat *heartbeat);

// A back end. A call is issued in the caller's thread, then run in the caller's or a stream's thread, which it may
// block.
typedef struct CommBackend {
  const char *name;
  void (*world_destroy)(PlaitWorld *world);
  int (*comm_world)(PlaitWorld *world, int rank, PlaitComm **comm, Error *error);
  int (*comm_create)(PlaitComm *any, const int *ranks, int n, PlaitComm **comm, Error *error); // arguments are checked
  void (*comm_destroy)(PlaitComm *comm);
  void (*reserve_collective)(PlaitComm *comm, size_t buffers, size_t reduced); // optional
  void (*reserve_messages)(PlaitComm *comm, int peer, size_t messages, size_t buffers);
  void (*issue)(PlaitComm *comm, CommCall *call, PlaitEvent *sent); // sets ticket; for a send, when it will be received
  int (*run)(PlaitComm *comm, const CommCall *call);
  void (*aborted)(PlaitWorld *world);          // optional: tells ranks that do not see world->abort
  int (*own_rank)(const PlaitWorld *world);    // optional: the only rank of this process
  // Optional: ends all processes, whatever state they are in, for this reason.
  void (*end)(PlaitWorld *world, int status, const Error *error);
  void (*heartbeat)(PlaitWorld *world, const Heartbeat *mine, int to, HeartbeatReceived received,
                    void *context); // optional, as world_heartbeat
  int (*rank_is_gone)(const PlaitWorld *world, int rank); // optional, as world_rank_is_gone
} CommBackend;

// The common heads of every back end's own structs.
struct PlaitWorld {
  const CommBackend *backend;
  const char *name; // as run.comm calls it
  int ends;         // when it has failed, plait_world_destroy says why and ends the process
  int ranks, local_ranks; // of all machines; of this one
  Abort abort;
  LastCall *last; // of the ranks of this process, from `first` on: world_last
  int first, shows; // shows: `last` is what the supervisor sees (worker/page.h)
};
static inline LastCall *world_last(const PlaitWorld *world, int rank) { return &world->last[rank - world->first]; }
struct PlaitComm {
  const CommBackend *backend;
  PlaitWorld *world;
  int rank, size;   // of this communicator
  Waiter waiter; // the rank's own thread, which runs the calls without a stream and waits for events; see comm_set_idle
  const int *ranks; // (size) world ranks; the back end's
};

// What an event waits on. `wait` blocks until `value` is reached, `done` polls (1, 0 or a negative code).
typedef struct PlaitTimeline {
  int (*wait)(struct PlaitTimeline *timeline, uint64_t value, const Waiter *waiter);
  int (*done)(struct PlaitTimeline *timeline, uint64_t value);
  const Waiter *waiter; // the rank's own thread; NULL: it sleeps
  LastCall *last;   // of that rank; NULL: not known yet
  int peers;        // above 0: of messages in a communicator of so many ranks; 0: of a stream
  int stream;       // the number of its word (LastCall)
} PlaitTimeline;
// By the rank's own thread, which may do other work meanwhile, and is seen to wait.
int timeline_wait(PlaitTimeline *timeline, uint64_t value);

// What this rank's own thread does while it waits for others, in this communicator and those and the streams that are
// made from it later (a back end may not ask). An event must then be waited for by that thread, or on a stream.
void comm_set_idle(PlaitComm *comm, Idle idle);

// Fails the world, unless it has failed already; returns the code. The ranks of the error are the world's.
int comm_fail_world(PlaitWorld *world, const Error *error);
// As plait_comm_failure, with "what: " before the sentence.
int comm_failure_in(const PlaitComm *comm, Error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Fails the world: this rank waits in the call for a rank of the communicator that has destroyed its handle. Hold no
// monitor.
int comm_fail_departed(PlaitComm *comm, const CommCall *call, int departed);

// Runs an issued call in the back end, and keeps in mind that it is under way. stream: the number of its word
// (LastCall); -1: the rank's own thread runs it.
int comm_run(PlaitComm *comm, const CommCall *call, int stream);

const char *world_name(const PlaitWorld *world); // "local", "mpi" or "net"
// Will plait_world_destroy end the process, as the world has failed?
int world_will_end(const PlaitWorld *world);

// For measurements and tests, where ranks are processes: from now on all_reduce and reduce_scatter go by a chain of
// groups of so many ranks, and all_gather by such groups, where that divides the ranks of the communicator; -1:
// directly; 0: as plait chooses. All ranks say the same.
void process_set_chain(PlaitWorld *world, int group);
// The groups by which an all_reduce, reduce_scatter or all_gather of so many bytes in all goes now; 0: directly.
int process_pattern(const PlaitComm *comm, CommKind kind, PlaitDtype dtype, size_t bytes);
// Ranks of each machine, where there are several machines whose ranks follow on each other; else 0.
int process_ranks_of_machine(const PlaitComm *comm);
// What this rank has given to the wire for a peer, and told it to receive, with calls of this communicator: bytes of
// elements, and of the headers of calls. All 0 where ranks are threads.
typedef struct ProcessCount { uint64_t sent, received, headers_sent, headers_received; } ProcessCount;
ProcessCount process_count(const PlaitComm *comm, int peer);

// What back ends call first and last.
// own: the only rank of this process; -1: all of them are.
void world_init(PlaitWorld *world, const CommBackend *backend, int ranks, int local_ranks, int own);
void world_free(PlaitWorld *world); // all but the struct

// For watchdogs ------------------------------------------------------------------------------------------------------

// The latest call of a rank's own thread, or of its stream where it waits for that, in one word: which, of how many
// ranks, its number, and whether it runs. 0: none yet. *alive: when (CLOCK_MONOTONIC, in seconds) it was last seen
// waiting in a call, which a thread that is not frozen is every 0.1 s; 0: never.
uint64_t comm_last(const PlaitWorld *world, int rank, double *alive);
int comm_last_runs(uint64_t last);
int comm_last_waits(uint64_t last); // as the watchdog has found out by `alive`, see comm_last_set_waits
uint64_t comm_last_set_waits(uint64_t last);
void comm_last_describe(uint64_t last, char *text, size_t size); // "its last collective, all_reduce …, waits"

// Sends this rank's to the ranks 0 … to-1 and calls `received` with all that have arrived, of each rank the newest
// last. Waits for nobody but a thread of this process that is inside of the back end, and for that a quarter of a
// second at most.
void world_heartbeat(PlaitWorld *world, const Heartbeat *mine, int to, HeartbeatReceived received, void *context);

// Is it known here that a rank's process has ended, or that its machine says nothing any more? A rank that has failed
// and still ends in order is not gone. Of net rank 0 knows it of all others. From any thread.
int world_rank_is_gone(const PlaitWorld *world, int rank);

// Prints "plait: MESSAGE" on stderr and ends this process, and where ranks are processes all of them, whatever they
// wait in.
void world_end(PlaitWorld *world, int status, const Error *error) __attribute__((noreturn));

// What will be under way at most, from whoever knows it before the first call: memory for it is taken, and touched,
// here, and while no more is under way nothing is allocated later. Otherwise memory is taken when it is needed first,
// and kept.

// Of the collectives of a communicator, each on its own: buffers of the longest list, and bytes that a rank gives to
// the largest reduction; 0: there is none.
void comm_reserve_collective(PlaitComm *comm, size_t buffers, size_t reduced);
// On its way to a peer: messages that it has not received, and the buffers of all their lists.
void comm_reserve_messages(PlaitComm *comm, int peer, size_t messages, size_t buffers);
// At once on the stream: calls that are not done, and the buffers of all their lists that the stream copies.
void stream_reserve(PlaitStream *stream, size_t calls, size_t buffers);
// From now on the lists of calls on the stream stay where they are until the calls are done: the stream does not copy
// them.
void stream_borrow_lists(PlaitStream *stream);

// For tests: calls on the stream begin after random delays, which follow from the seed and the rank. 0: at once.
void stream_set_chaos(PlaitStream *stream, uint64_t seed);

// Queues a call that has been issued (its arrays are copied); the event may be NULL.
void stream_push(PlaitStream *stream, PlaitComm *comm, const CommCall *call, PlaitEvent *event);
// Queues something else for the stream's thread: 0, or a negative code, with which the world must then have failed
// (comm_fail_world). What has been queued before is done when it runs, but perhaps failed. The event may be NULL.
int stream_run(PlaitStream *stream, int (*function)(void *argument), void *argument, PlaitEvent *event);
