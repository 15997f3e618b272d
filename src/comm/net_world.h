// Inside of the net wire.
#pragma once
#include "comm/net_ucx.h"
#include "comm/net_watch.h"
#include "comm/process.h"

typedef struct NetPeer {
  ucp_ep_h endpoint;
  ucs_status_t failed; // what UCX has said of the connection; UCS_OK: nothing
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
} NetWorld;

extern const Wire net_wire;
// The context and worker of UCX on this interface, and the endpoints of the ranks' addresses.
int net_open(NetWorld *w, const char *interface, Error *error);
int net_connect_peer(NetWorld *w, int rank, const void *address, Error *error);
void net_close(NetWorld *w); // all of it, also what is half made
