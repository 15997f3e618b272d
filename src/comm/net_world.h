// Inside of the net wire.
#pragma once
#include "comm/net_ucx.h"
#include "comm/net_watch.h"
#include "comm/process.h"
#include "comm/secret.h"

// The first message of a rank to another: that it has the secret, and is that rank of this round.
typedef struct Proof { uint32_t from, zero; unsigned char proof[PROOF_BYTES]; } Proof;

typedef struct NetPeer {
  ucp_ep_h endpoint;   // NULL: nothing was sent to it yet
  void *address;       // of its worker
  ucs_status_t failed; // what UCX has said of the connection; UCS_OK: nothing
  int proved;          // it is who it says; always, where there is no secret
  Proof mine;          // for it
  void *sending;       // that
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
  bool has_secret;
  Secret secret;
  uint64_t token;         // of this world, which rank 0 has drawn
  Proof arrived;          // the next proof of another rank
  void *arrival;          // its receive; NULL: none is under way
  unsigned char spoils;   // for tests: bits of this rank's proofs that are wrong
  int strangers;          // messages in the name of a rank that did not prove it
} NetWorld;

extern const Wire net_wire;
// The context and worker of UCX on this interface.
int net_open(NetWorld *w, const char *interface, Error *error);
ucs_status_t net_connect_peer(NetWorld *w, int rank); // with the lock: to w->peers[rank].address, if it is not yet
// net_proof.c, with the lock: sends this rank's proof as the first message, and looks whether the one of a rank has
// come.
ucs_status_t net_proof_send(NetWorld *w, int rank);
int net_proof_came(NetWorld *w, int rank);
void net_proofs_forget(NetWorld *w);
ucp_tag_t net_proof_tag(void);
void net_close(NetWorld *w); // all of it, also what is half made
