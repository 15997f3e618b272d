// What a call sends or receives as one row of bytes, and how a range of it becomes messages of the wire.
#include "comm/process.h"
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

char *staging_take(size_t bytes) {
  size_t page = 4096, whole = (bytes + page - 1) / page * page;
  char *memory = aligned_alloc(page, whole);
  CHECK(memory, "out of memory (%zu bytes)", whole);
  return memset(memory, 0, whole);
}

int process_post_header(const ProcessComm *c, RequestBatch *batch, WireKind kind, Header *header, int peer, int tag) {
  ProcessWorld *w = (ProcessWorld *)c->base.world;
  WirePeer to = {c->context, peer, c->base.ranks[peer], tag};
  *(kind == WIRE_RECEIVE ? &c->count[peer].headers_received : &c->count[peer].headers_sent) += sizeof *header;
  return w->wire->post(w, kind, &to, &(WirePiece){header, sizeof *header}, 1, batch_add(batch));
}

int control_post(ProcessWorld *w, WireKind kind, void *data, size_t bytes, int rank, int tag, WireRequest *request) {
  return w->wire->post(w, kind, &(WirePeer){w->control, rank, rank, tag}, &(WirePiece){data, bytes}, 1, request);
}

void pieces_reserve(ProcessWorld *w, size_t pieces) {
  if (pieces <= w->pieces_capacity) return;
  w->pieces = xrealloc(w->pieces, pieces * sizeof *w->pieces);
  while (w->pieces_capacity < pieces)
    w->pieces[w->pieces_capacity++] = (WirePiece){0}; // the pages are there from now on
}

// Messages are cut by the row of bytes alone, never by how one side's memory is cut: both sides must cut alike. Several
// pieces of memory are one message, so that small tensors cost no latency of their own; the wire packs them.
int process_post(const ProcessComm *c, RequestBatch *batch, const View *v, size_t from, size_t to, int peer, int tag,
                 int receive) {
  ProcessWorld *w = (ProcessWorld *)c->base.world;
  WirePeer end = {c->context, peer, c->base.ranks[peer], tag};
  int status = 0;
  Walk walk = walk_to(v, from);
  *(receive ? &c->count[peer].received : &c->count[peer].sent) += to - from;
  while (from < to && !status) {
    size_t message = to - from < LARGEST_MESSAGE ? to - from : LARGEST_MESSAGE, n = 0;
    from += message;
    for (size_t taken; message; message -= taken) {
      if (n == w->pieces_capacity) pieces_reserve(w, 2 * w->pieces_capacity + 64);
      w->pieces[n].data = walk_on(v, &walk, message, &taken);
      w->pieces[n++].bytes = taken;
    }
    status = w->wire->post(w, receive ? WIRE_RECEIVE : WIRE_SEND, &end, w->pieces, n, batch_add(batch));
  }
  return status;
}
