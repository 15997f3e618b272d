// Inside of the net wire.
#pragma once
#include "comm/net_links.h"
#include "comm/net_record.h"
#include "comm/net_shared.h"
#include "comm/net_tag.h"
#include "comm/net_watch.h"
#include "comm/process.h"
#include "net/secret.h"

// The pieces of a message, which its carrier reads until it is done.
typedef struct NetPieces {
  struct NetPieces *next, *all; // of those that no message has; of all
  int size;                     // room for 2^size
  WirePiece list[];
} NetPieces;

// A send or receive under way. It stays where it is, and is used again.
typedef struct NetRequest {
  struct NetRequest *next;  // of those that are not under way; of receives that both carriers may bring
  int peer, receives;       // peer: a rank of the world, -1: any
  bool is_shared, is_both;  // UCX carries it; a receive that either may bring
  void *shared;             // of UCX; NULL: done, or not begun
  LinkMessage link;         // of the links
  uint64_t context;
  int tag;
  WirePiece one;
  NetPieces *pieces;        // NULL: one
  size_t count;
} NetRequest;

enum { NET_REQUESTS = 64, NET_SIZES = 40 };
typedef struct NetRequests { struct NetRequests *next; NetRequest request[NET_REQUESTS]; } NetRequests;

typedef struct NetWorld {
  ProcessWorld base;
  Links *links;
  NetShared *shared;        // NULL: UCX carries nothing
  NetCarrier *carriers;     // (ranks)
  bool is_all_shared;       // UCX carries everything
  char (*hosts)[HOST_NAME]; // (ranks)
  NetRequests *requests;    // all
  NetRequest *idle, *both;  // both: receives that either carrier may bring, in the order of posting
  NetPieces *pieces, *free_pieces[NET_SIZES]; // all; by size
  int blamed;               // the rank whose connection has failed in a call; -1: none
  char failure[200];        // what is wrong with it
  bool leaves;              // connections that end are no failures any more
  NetWatch *watch;
  bool has_secret;          // the job has one
  Secret job;               // that one
} NetWorld;

extern const Wire net_wire;
void net_close(NetWorld *w); // all of it, also what is half made
