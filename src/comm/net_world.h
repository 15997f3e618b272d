// Inside of the net wire.
#pragma once
#include "comm/net_ucx.h"
#include "comm/net_watch.h"
#include "comm/process.h"
#include "net/secret.h"

// Tags: check bits, which are 0; the context; the rank that sends; the tag of the call. Then the receiver's key is
// added (exclusive or).
enum { CHECK_BITS = 8, CONTEXT_BITS = 28, RANK_BITS = 14, TAG_BITS = 14 };

typedef struct NetPeer {
  ucp_ep_h endpoint;   // NULL: nothing was sent to it yet
  void *address;       // of its worker
  ucs_status_t failed; // what UCX has said of the connection; UCS_OK: nothing
  ucp_tag_t key;       // of messages to it; once there is an endpoint
} NetPeer;

// A send or receive under way. It stays where it is, and is used again.
typedef struct NetRequest {
  struct NetRequest *next; // of those that are not under way
  void *ucx;
  int peer, receives;      // peer: a rank of the world, -1: any
  struct NetPieces *pieces; // NULL: one
} NetRequest;

// The pieces of a message, which UCX reads until it is done.
typedef struct NetPieces {
  struct NetPieces *next, *all; // of those that no message has; of all
  int size;                     // room for 2^size
  ucp_dt_iov_t list[];
} NetPieces;

enum { NET_REQUESTS = 64, NET_SIZES = 40 };
typedef struct NetRequests { struct NetRequests *next; NetRequest request[NET_REQUESTS]; } NetRequests;

typedef struct NetWorld {
  ProcessWorld base;
  const Ucx *ucx;
  ucp_context_h context;
  ucp_worker_h worker;
  NetPeer *peers;         // (ranks)
  char (*hosts)[HOST_NAME]; // (ranks)
  NetRequests *requests;  // all
  NetRequest *idle;
  NetPieces *pieces, *free_pieces[NET_SIZES]; // all; by size
  int blamed;             // the rank whose connection has failed in a call; -1: none
  NetWatch *watch;
  bool has_secret;        // the job has one
  Secret job;             // that one
  Secret secret;          // of this world: it follows from the job's, if there is one, and from what rank 0 has drawn
  ucp_tag_t key;          // of messages to this rank
  uint64_t strangers;     // messages without it that were dropped
  unsigned moves, looks;  // steps of progress since the last look for them; the check bit of that look
} NetWorld;

extern const Wire net_wire;
// The context and worker of UCX on this interface. one_machine: of ranks that share memory, all of them; UCX opens no
// port then.
int net_open(NetWorld *w, const char *interface, bool one_machine, Error *error);
ucs_status_t net_connect_peer(NetWorld *w, int rank); // with the lock: to w->peers[rank].address, if it is not yet
ucp_tag_t net_key(const NetWorld *w, int rank); // net_key.c: of messages to a rank
// With the lock, after so many steps of progress: drops, now and then, messages without the key.
void net_strangers_look(NetWorld *w, unsigned moves);
void net_strangers_end(NetWorld *w); // all that are left; says how many there were
void net_close(NetWorld *w); // all of it, also what is half made
