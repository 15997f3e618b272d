// What a call sends or receives as one row of bytes, and how a range of it becomes MPI messages.
#ifdef PLAIT_MPI
#include "comm/mpi_wire.h"
#include <stdlib.h>
#include <string.h>

View view_call(const CommCall *call, int receives, int part) {
  return (View){
      .call = call, .receives = receives, .part = part, .bytes = comm_total(call) * comm_dtype_size(call->dtype)};
}

View view_memory(const void *data, size_t bytes) { return (View){.data = (char *)(uintptr_t)data, .bytes = bytes}; }

static char *buffer_start(const View *v, size_t b, size_t *bytes) {
  const PlaitBuffer *buffer = &v->call->buffers[b];
  size_t size = comm_dtype_size(v->call->dtype);
  *bytes = buffer->count * size;
  return comm_part(buffer, size, v->part < 0 || !*bytes ? 0 : v->part, v->receives);
}

// Where a walk along a view is: buffer b, `within` bytes into it.
typedef struct Walk { size_t b, within; } Walk;

static Walk walk_to(const View *v, size_t at) {
  Walk walk = {0};
  for (size_t bytes; v->call && walk.b < v->call->nbuffers; walk.b++) {
    buffer_start(v, walk.b, &bytes);
    if (at < bytes) break;
    at -= bytes;
  }
  walk.within = at;
  return walk;
}

// The piece at the walk, of at most `most` bytes; moves on after it.
static char *walk_on(const View *v, Walk *walk, size_t most, size_t *taken) {
  size_t bytes;
  if (!v->call) {
    *taken = most;
    walk->within += most;
    return v->data + walk->within - most;
  }
  char *base = buffer_start(v, walk->b, &bytes);
  while (!bytes) base = buffer_start(v, ++walk->b, &bytes);
  char *start = base + walk->within;
  *taken = bytes - walk->within < most ? bytes - walk->within : most;
  walk->within += *taken;
  if (walk->within == bytes) *walk = (Walk){walk->b + 1, 0};
  return start;
}

char *view_at(const View *v, size_t at, size_t *left) {
  Walk walk = walk_to(v, at);
  return walk_on(v, &walk, v->bytes - at, left);
}

void view_copy(const View *to, const View *from) {
  Walk target = {0}, source = {0};
  for (size_t at = 0, taken, same; at < to->bytes; at += taken) {
    char *piece = walk_on(to, &target, to->bytes - at, &taken);
    const char *data = walk_on(from, &source, taken, &same);
    if (piece != data) memcpy(piece, data, taken);
  }
}

static int post_one(const MpiComm *c, Batch *batch, void *data, int count, MPI_Datatype type, int peer, int tag,
                    int receive) {
  MPI_Request *request = batch_add(batch);
  return receive ? MPI_Irecv(data, count, type, peer, tag, c->comm, request)
                 : MPI_Isend(data, count, type, peer, tag, c->comm, request);
}

// Several pieces of memory are one message, so that small tensors cost no latency of their own; MPI packs them.
static int post_pieces(const MpiComm *c, Batch *batch, int n, const int *lengths, const MPI_Aint *places, int peer,
                       int tag, int receive) {
  MPI_Datatype type;
  int status = MPI_Type_create_hindexed(n, lengths, places, MPI_BYTE, &type);
  if (status != MPI_SUCCESS) return status;
  status = MPI_Type_commit(&type);
  if (status == MPI_SUCCESS) status = post_one(c, batch, MPI_BOTTOM, 1, type, peer, tag, receive);
  MPI_Type_free(&type); // it stays until the message is done
  return status;
}

void pieces_reserve(MpiWorld *w, size_t pieces) {
  if (pieces <= w->pieces.capacity) return;
  w->pieces.lengths = xrealloc(w->pieces.lengths, pieces * sizeof *w->pieces.lengths);
  w->pieces.places = xrealloc(w->pieces.places, pieces * sizeof *w->pieces.places);
  for (; w->pieces.capacity < pieces; w->pieces.capacity++) { // the pages are there from now on
    w->pieces.lengths[w->pieces.capacity] = 0;
    w->pieces.places[w->pieces.capacity] = 0;
  }
}

// Messages are cut by the row of bytes alone, never by how one side's memory is cut: both sides must cut alike.
int wire_post(const MpiComm *c, Batch *batch, const View *v, size_t from, size_t to, int peer, int tag, int receive) {
  MpiWorld *w = (MpiWorld *)c->base.world;
  int status = MPI_SUCCESS;
  Walk walk = walk_to(v, from);
  while (from < to && status == MPI_SUCCESS) {
    size_t message = to - from < LARGEST_MESSAGE ? to - from : LARGEST_MESSAGE, taken;
    char *piece = walk_on(v, &walk, message, &taken);
    from += message;
    if (taken == message) {
      status = post_one(c, batch, piece, (int)taken, MPI_BYTE, peer, tag, receive);
      continue;
    }
    int n = 0;
    for (;; piece = walk_on(v, &walk, message, &taken)) {
      if ((size_t)n == w->pieces.capacity) pieces_reserve(w, 2 * w->pieces.capacity + 64);
      w->pieces.lengths[n] = (int)taken;
      MPI_Get_address(piece, &w->pieces.places[n++]);
      if (!(message -= taken)) break;
    }
    status = post_pieces(c, batch, n, w->pieces.lengths, w->pieces.places, peer, tag, receive);
  }
  return status;
}
#endif
