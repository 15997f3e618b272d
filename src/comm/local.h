// Inside of the local back end: ranks are threads of one process and reach each other's memory.
#pragma once
#include "comm/comm.h"
#include "comm/record_queue.h"

// A send that waits for its receive. The list is a copy: the sender's may be gone.
typedef struct LocalMessage {
  CommCall call;
  int ready; // posted: a stream may issue long before it posts
  PlaitBuffer buffers[];
} LocalMessage;

// Messages of one communicator from one rank to another; all fields under the receiver's monitor.
typedef struct LocalMessageQueue {
  PlaitTimeline timeline; // value v: the first v messages were copied
  struct LocalGroup *group;
  Monitor *monitor;
  RecordQueue messages; // that were not copied; the first is message `done`
  uint64_t sends, receives; // issued
  uint64_t done;
  int copying;
  int sender_left, receiver_left; // they have destroyed their handles
} LocalMessageQueue;

// What the ranks of one communicator share.
typedef struct LocalGroup {
  PlaitWorld *world;
  const CommBackend *backend;
  struct LocalGroup *next; // among those that still wait for ranks
  int n, joined;
  atomic_int handles;
  int *ranks;                                      // (n) world ranks
  // Collectives meet by counters that only grow: call k (its ticket) has all ranks when `arrived` is n · (k + 1), may
  // be worked on when `opened` is k + 1, and nobody uses another's memory any more when `finished` is n · (k + 1).
  _Alignas(64) _Atomic uint64_t arrived; // the bit LEFT: a rank has left before all came, nobody may use its memory
  _Alignas(64) _Atomic uint64_t opened;
  _Alignas(64) _Atomic uint64_t finished;
  _Alignas(64) atomic_int sleepers;      // that wait for one of these
  Monitor monitor;
  int verdict, done_by_last;             // of the collective under way: written before it is opened
  const CommCall **calls;                // (n)
  _Atomic uint64_t *left; // (n) 1 + the collectives that a rank has issued that has destroyed its handle; 0: it has not
  atomic_int departures;                 // how many of these are set
  Monitor *message_monitor;              // (n) by receiver
  LocalMessageQueue *queues;                       // (n, n) by receiver, sender
} LocalGroup;

typedef struct LocalComm {
  PlaitComm base;
  LocalGroup *group;
  _Atomic uint64_t issued, finished; // collectives
} LocalComm;

void local_message_queue_init(LocalMessageQueue *queue, LocalGroup *group, Monitor *monitor);
void local_message_queue_free(LocalMessageQueue *queue);
void local_message_reserve(PlaitComm *comm, int peer, size_t messages, size_t buffers);
void local_message_issue(LocalComm *comm, CommCall *call, PlaitEvent *sent);
int local_message_send(LocalComm *comm, const CommCall *call);
int local_message_receive(LocalComm *comm, const CommCall *call);
void local_message_leave(LocalComm *comm); // this rank's handle is about to be destroyed
