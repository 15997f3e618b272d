// Inside of the local back end: ranks are threads of one process and reach each other's memory.
#pragma once
#include "comm/comm.h"

// A send that waits for its receive. The list is a copy: the sender's may be gone.
typedef struct LocalLetter {
  PlaitBuffer *buffers;
  size_t capacity;
  CommCall call;
  int ready; // posted: a stream may issue long before it posts
} LocalLetter;

// Messages of one communicator from one rank to another; all fields under the receiver's gate.
typedef struct LocalMail {
  PlaitTimeline timeline; // value v: the first v messages were copied
  Gate *gate;
  LocalLetter **ring; // (capacity) message i at i % capacity; letters stay where they are when it grows
  size_t capacity;
  uint64_t sends, receives; // issued
  uint64_t done;
  int copying;
} LocalMail;

// What the ranks of one communicator share.
typedef struct LocalGroup {
  PlaitWorld *world;
  struct LocalGroup *next; // among those that still wait for ranks
  int n, joined;
  atomic_int handles;
  int *ranks;                                      // (n) world ranks
  Gate gate;                                       // guards the fields down to `calls`
  unsigned phase;                                  // changes when all ranks have arrived, and when all have finished
  int arrived, finished, verdict, done_by_last;    // of the collective under way
  const CommCall **calls;                          // (n) of the collective under way
  Gate *inbox;                                     // (n) by receiver
  LocalMail *mail;                                 // (n, n) by receiver, sender
} LocalGroup;

typedef struct LocalComm {
  PlaitComm base;
  LocalGroup *group;
  uint64_t issued;   // collectives, by the issuing thread
  uint64_t finished; // under the group's gate
} LocalComm;

void local_mail_init(LocalMail *mail, Gate *inbox);
void local_mail_free(LocalMail *mail);
void local_mail_issue(LocalComm *comm, CommCall *call, PlaitEvent *sent);
int local_mail_send(LocalComm *comm, const CommCall *call);
int local_mail_receive(LocalComm *comm, const CommCall *call);
