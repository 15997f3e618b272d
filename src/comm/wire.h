// A wire carries messages between ranks that are processes. Collectives, messages, order, sentences and heartbeats
// stand on it (process.h) and exist once; mpi.c is a wire of MPI messages, net_wire.c one of UCX. No function of a wire
// waits for another rank, unless it says so: whoever waits tests in a loop.
#pragma once
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

struct ProcessWorld;

// A send or receive under way. What `handle` is, the wire knows; all zero: there is none, or it is done.
typedef struct WireRequest { uint64_t handle; int32_t pending, receives; } WireRequest;

// Messages of one context are never received in another. The wire's.
typedef struct WireContext { uint64_t handle; } WireContext;

typedef enum WireKind {
  WIRE_SEND,             // done when the memory may be used again
  WIRE_SYNCHRONOUS_SEND, // done when the receiver has come, too
  WIRE_RECEIVE
} WireKind;

// Where a message comes from or goes to. From one rank to another, messages of one tag arrive in the order of posting.
typedef struct WirePeer {
  WireContext context;
  int rank, world; // in the context, and in the world; -1, for a receive: any
  int tag;         // 0 to ProcessWorld.tickets · 2 - 1
} WirePeer;

// A piece of the memory of a message.
typedef struct WirePiece { void *data; size_t bytes; } WirePiece;

// Why a world has failed, on its way to the other ranks.
// silent: nothing comes of the rank that is to blame, though its connections have not ended.
typedef struct Notice { int32_t silent; Error error; } Notice;

// All but `settle`, `rank_is_gone`, `leave`, `world_destroy` and `end` are called with the world's lock. A status is 0
// or a code that `explain` knows.
typedef struct Wire {
  const char *name; // as run.comm calls it
  int ends;         // world_destroy of a world that has failed ends the process
  // A message in n pieces of memory (the list is copied, the memory is borrowed until it is done), of LARGEST_MESSAGE
  // bytes at most. Both sides may cut it into other pieces.
  int (*post)(struct ProcessWorld *world, WireKind kind, const WirePeer *peer, const WirePiece *pieces, size_t n,
              WireRequest *request);
  // Of one that is done: done. Whoever gets an error calls process_failed.
  int (*test)(struct ProcessWorld *world, WireRequest *request, int *done);
  // Gives one up: the wire is not asked for it again. A receive is cancelled.
  void (*forget)(struct ProcessWorld *world, WireRequest *request);
  // So many more messages of up to so many pieces will be under way at the same time. Optional.
  void (*reserve)(struct ProcessWorld *world, size_t pieces, size_t messages);
  // A context of these ranks of the world, all of which call this at about the same time, with the same id, which no
  // other context has. It may wait for them.
  int (*context_create)(struct ProcessWorld *world, const int *ranks, int n, uint64_t id, WireContext *context);
  void (*context_free)(struct ProcessWorld *world, WireContext *context);
  // The meaning of a status, and the rank of the world that is to blame, or none.
  ErrorRank (*explain)(struct ProcessWorld *world, int status, char *text, size_t size);
  // After an error, without the lock: waits a moment for the notice of a rank that knows the cause. Optional.
  void (*settle)(struct ProcessWorld *world);
  // Tells the other ranks why the world has failed, unless they know. Waits for a second at most.
  void (*notify)(struct ProcessWorld *world);
  void (*look)(
      struct ProcessWorld *world); // has a notice come? Optional: a wire may call process_noticed from a thread
  int (*rank_is_gone)(const struct ProcessWorld *world, int rank); // as world_rank_is_gone, without the lock. Optional
  // Waits until all ranks have called this, or the world has failed.
  void (*leave)(struct ProcessWorld *world);
  // The last call, after `leave`: the world has no communicators any more, and its progress thread has ended. Frees the
  // world.
  void (*world_destroy)(struct ProcessWorld *world);
  // Ends this process and all others with this exit status, whatever they are doing. Does not return.
  // The error has been printed here.
  void (*end)(struct ProcessWorld *world, int status, const Error *error);
} Wire;
