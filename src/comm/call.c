// The public functions of communication: check the arguments, then hand the call to the back end or to a stream.
#include "comm/comm.h"
#include "base/dtype.h"
#include "base/fault.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const op_names[] = {"sum", "max", "min", "mean"};

size_t comm_total(const CommCall *call) {
  size_t total = 0;
  for (size_t b = 0; b < call->nbuffers; b++) total += call->buffers[b].count;
  return total;
}

char *comm_part(const PlaitBuffer *buffer, size_t element_size, int part, int receives) {
  ptrdiff_t stride = FAULT(strides_are_ignored, receives ? buffer->recv_stride : buffer->send_stride, 0);
  if (!stride) stride = (ptrdiff_t)buffer->count;
  char *base = receives ? buffer->recv : (char *)(uintptr_t)buffer->send;
  return part ? base + stride * part * (ptrdiff_t)element_size : base;
}

void comm_describe(const CommCall *call, char *text, size_t size) {
  const CommTraits *traits = &comm_traits[call->kind];
  char root[32] = "", buffers[48] = "";
  if (call->kind == COMM_BARRIER) {
    snprintf(text, size, "barrier");
    return;
  }
  if (traits->rooted) snprintf(root, sizeof root, " with root %d", call->root);
  if (call->kind == COMM_SEND || call->kind == COMM_RECV)
    snprintf(root, sizeof root, " %s %d", call->kind == COMM_SEND ? "to" : "from", call->root);
  if (call->kind == COMM_SHIFT) snprintf(root, sizeof root, " by %d", call->root);
  if (call->nbuffers != 1) snprintf(buffers, sizeof buffers, " in %zu buffers", call->nbuffers);
  snprintf(text, size, "%s%s%s of %zu %s%s%s", traits->name, traits->reduces ? " " : "",
           traits->reduces ? op_names[call->op] : "", comm_total(call), dtype_name((Dtype)call->dtype), buffers, root);
}

static size_t distance(ptrdiff_t stride) { return stride < 0 ? -(size_t)stride : (size_t)stride; }

// Why the strides of a buffer are wrong, or NULL.
static const char *stride_problem(const CommCall *call, const PlaitBuffer *buffer, size_t most) {
  const CommTraits *traits = &comm_traits[call->kind];
  if (buffer->send_stride && !traits->send_parts) return "has a stride where it sends no parts";
  if (buffer->recv_stride && !traits->recv_parts) return "has a stride where it receives no parts";
  if (distance(buffer->send_stride) > most || distance(buffer->recv_stride) > most) return "has an impossible stride";
  if (buffer->recv_stride && distance(buffer->recv_stride) < buffer->count)
    return "receives parts that overlap: the stride is below the count";
  return NULL;
}

// Do any parts overlap, but for the one place where a call may work in place (-1: none)?
static int parts_overlap(const PlaitBuffer *buffer, size_t size, int sends, int receives, int send_place,
                         int recv_place) {
  size_t part = buffer->count * size;
  for (int s = 0; s < sends; s++)
    for (int r = 0; r < receives; r++) {
      uintptr_t from = (uintptr_t)comm_part(buffer, size, s, 0), to = (uintptr_t)comm_part(buffer, size, r, 1);
      if (from + part <= to || to + part <= from) continue;
      if (from != to || s != send_place || r != recv_place) return 1;
    }
  return 0;
}

// The bytes from the first to the last of a buffer's parts; *begin: where they begin.
static size_t span(const PlaitBuffer *buffer, size_t size, int parts, int receives, uintptr_t *begin) {
  uintptr_t first = (uintptr_t)comm_part(buffer, size, 0, receives),
            last = (uintptr_t)comm_part(buffer, size, parts - 1, receives);
  *begin = first < last ? first : last;
  return (first < last ? last : first) - *begin + buffer->count * size;
}

// Why a buffer cannot be used by this rank, or NULL. Memory may overlap only where the call says "in place".
static const char *buffer_problem(const PlaitComm *comm, const CommCall *call, const PlaitBuffer *buffer) {
  const CommTraits *traits = &comm_traits[call->kind];
  int is_root = call->root == comm->rank;
  int sends = call->kind != COMM_RECV && (!traits->root_sends || is_root);
  int receives = call->kind != COMM_SEND && (!traits->root_receives || is_root);
  size_t n = (size_t)comm->size, size = comm_dtype_size(call->dtype);
  if (buffer->count > SIZE_MAX / 16 / n / n) return "has an impossible count";
  const char *stride = stride_problem(call, buffer, SIZE_MAX / 16 / n / n);
  if (stride) return stride;
  if (!buffer->count) return NULL;
  if (call->kind == COMM_BROADCAST && is_root && !buffer->recv) receives = 0;
  if (sends && !buffer->send) return "has no send memory";
  if (receives && !buffer->recv) return "has no recv memory";
  if (!sends || !receives) return NULL;
  int send_parts = traits->send_parts ? comm->size : 1, recv_parts = traits->recv_parts ? comm->size : 1;
  uintptr_t send, recv;
  size_t sent = span(buffer, size, send_parts, 0, &send), received = span(buffer, size, recv_parts, 1, &recv);
  if (send + sent <= recv || recv + received <= send) return NULL;
  int both = (traits->send_parts && traits->recv_parts) || (call->kind == COMM_SHIFT && call->root);
  if (!parts_overlap(buffer, size, send_parts, recv_parts, both ? -1 : traits->send_parts ? comm->rank : 0,
                     traits->recv_parts ? comm->rank : 0))
    return NULL;
  return both ? "overlaps, and this call does not work in place" : "overlaps otherwise than in place";
}

static const char *problem_v(const PlaitComm *comm, const CommCall *call) {
  size_t received = 0;
  if (call->kind == COMM_ALL_TO_ALL_V && !call->send_counts) return "has no send counts";
  if (!call->recv_counts) return "has no receive counts";
  for (int p = 0; p < comm->size; p++) {
    if (call->recv_counts[p] > SIZE_MAX / 16 / (size_t)comm->size) return "has an impossible count";
    received += call->recv_counts[p];
  }
  if (call->buffers->count && !call->buffers->send) return "has no send memory";
  return received && !call->buffers->recv ? "has no recv memory" : NULL;
}

// *index: the buffer that it is about; SIZE_MAX: none.
static const char *problem(const PlaitComm *comm, const CommCall *call, PlaitStream *stream, size_t *index) {
  const CommTraits *traits = &comm_traits[call->kind];
  int is_v = call->kind == COMM_ALL_GATHER_V || call->kind == COMM_ALL_TO_ALL_V;
  *index = SIZE_MAX;
  if ((unsigned)call->dtype >= PLAIT_DTYPE_COUNT) return "has an unknown dtype";
  if (traits->reduces && (unsigned)call->op >= PLAIT_OP_COUNT) return "has an unknown operation";
  if (traits->reduces && call->op == PLAIT_MEAN && !dtype_is_float((Dtype)call->dtype))
    return "takes a mean of integers";
  if (call->root < 0 || call->root >= comm->size) return "names a rank that is not in the communicator";
  if (call->kind == COMM_SEND && call->rendezvous && !stream && call->root == comm->rank)
    return "to itself without an event would wait forever";
  if (call->nbuffers && !call->buffers) return "has no buffers";
  if (is_v) return problem_v(comm, call);
  for (*index = 0; *index < call->nbuffers; ++*index) {
    const char *text = buffer_problem(comm, call, &call->buffers[*index]);
    if (text) return text;
  }
  return NULL;
}

// The arguments of a call that is refused, by name; a number only where there is no name.
static void describe_arguments(const PlaitComm *comm, const CommCall *call, size_t index, char *text, size_t size) {
  const CommTraits *traits = &comm_traits[call->kind];
  int is_message = call->kind == COMM_SEND || call->kind == COMM_RECV;
  char dtype[32], op[32] = "", root[48] = "", buffer[64] = "";
  if ((unsigned)call->dtype < PLAIT_DTYPE_COUNT) snprintf(dtype, sizeof dtype, "%s", dtype_name((Dtype)call->dtype));
  else snprintf(dtype, sizeof dtype, "dtype number %d", (int)call->dtype);
  if (traits->reduces && (unsigned)call->op < PLAIT_OP_COUNT) snprintf(op, sizeof op, ", %s", op_names[call->op]);
  else if (traits->reduces) snprintf(op, sizeof op, ", operation number %d", (int)call->op);
  if (traits->rooted || is_message)
    snprintf(root, sizeof root, ", %s %d of %d ranks", is_message ? "peer" : "root", call->root, comm->size);
  if (call->kind == COMM_SHIFT) snprintf(root, sizeof root, ", by %d of %d ranks", call->root, comm->size);
  if (index != SIZE_MAX) snprintf(buffer, sizeof buffer, ", buffer %zu of %zu", index, call->nbuffers);
  snprintf(text, size, "%s%s%s%s", dtype, op, root, buffer);
}

// A bad argument fails the world: the other ranks would wait for this call forever.
static int refuse(PlaitComm *comm, const CommCall *call, size_t index, const char *text) {
  char arguments[192];
  int rank = comm->ranks[comm->rank];
  Error error = {0};
  ErrorFacts facts = {.rank = error_rank(rank, NULL), .blamed = error_rank(rank, NULL)};
  describe_arguments(comm, call, index, arguments, sizeof arguments);
  error_set_about(&error, PLAIT_BAD_INPUT, &facts, "rank %d: %s %s (%s)", rank, comm_traits[call->kind].name, text,
                  arguments);
  return comm_fail_world(comm->world, &error);
}

static int start(PlaitComm *comm, CommCall *call, PlaitStream *stream, PlaitEvent *event) {
  size_t index;
  const char *text = problem(comm, call, stream, &index);
  if (event) *event = (PlaitEvent){0};
  if (text) return refuse(comm, call, index, text);
  PlaitEvent *sent = call->kind == COMM_SEND ? event : NULL;
  call->waiter = &comm->waiter; // a stream sets its own
  comm->backend->issue(comm, call, sent);
  if (!stream) return comm_run(comm, call, -1);
  stream_push(stream, comm, call, sent ? NULL : event);
  return PLAIT_OK;
}

int plait_all_reduce(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, PlaitOp op,
                     PlaitStream *stream, PlaitEvent *event) {
  CommCall call = {.kind = COMM_ALL_REDUCE, .buffers = buffers, .nbuffers = nbuffers, .dtype = dtype, .op = op};
  return start(comm, &call, stream, event);
}

int plait_reduce_scatter(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, PlaitOp op,
                         PlaitStream *stream, PlaitEvent *event) {
  CommCall call = {.kind = COMM_REDUCE_SCATTER, .buffers = buffers, .nbuffers = nbuffers, .dtype = dtype, .op = op};
  return start(comm, &call, stream, event);
}

int plait_all_gather(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype,
                     PlaitStream *stream, PlaitEvent *event) {
  CommCall call = {.kind = COMM_ALL_GATHER, .buffers = buffers, .nbuffers = nbuffers, .dtype = dtype};
  return start(comm, &call, stream, event);
}

int plait_broadcast(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int root,
                    PlaitStream *stream, PlaitEvent *event) {
  CommCall call = {.kind = COMM_BROADCAST, .buffers = buffers, .nbuffers = nbuffers, .dtype = dtype, .root = root};
  return start(comm, &call, stream, event);
}

int plait_reduce(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, PlaitOp op, int root,
                 PlaitStream *stream, PlaitEvent *event) {
  CommCall call = {
      .kind = COMM_REDUCE, .buffers = buffers, .nbuffers = nbuffers, .dtype = dtype, .op = op, .root = root};
  return start(comm, &call, stream, event);
}

int plait_gather(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int root,
                 PlaitStream *stream, PlaitEvent *event) {
  CommCall call = {.kind = COMM_GATHER, .buffers = buffers, .nbuffers = nbuffers, .dtype = dtype, .root = root};
  return start(comm, &call, stream, event);
}

int plait_scatter(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int root,
                  PlaitStream *stream, PlaitEvent *event) {
  CommCall call = {.kind = COMM_SCATTER, .buffers = buffers, .nbuffers = nbuffers, .dtype = dtype, .root = root};
  return start(comm, &call, stream, event);
}

int plait_all_to_all(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype,
                     PlaitStream *stream, PlaitEvent *event) {
  CommCall call = {.kind = COMM_ALL_TO_ALL, .buffers = buffers, .nbuffers = nbuffers, .dtype = dtype};
  return start(comm, &call, stream, event);
}

int plait_shift(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int distance,
                PlaitStream *stream, PlaitEvent *event) {
  CommCall call = {.kind = COMM_SHIFT, .buffers = buffers, .nbuffers = nbuffers, .dtype = dtype,
                   .root = comm_around(0, distance, comm->size)};
  return start(comm, &call, stream, event);
}

int plait_all_gather_v(PlaitComm *comm, const void *send, size_t send_count, void *recv, const size_t *recv_counts,
                       const size_t *recv_offsets, PlaitDtype dtype, PlaitStream *stream, PlaitEvent *event) {
  PlaitBuffer buffer = {send, recv, send_count};
  CommCall call = {.kind = COMM_ALL_GATHER_V, .buffers = &buffer, .nbuffers = 1, .dtype = dtype,
                   .recv_counts = recv_counts, .recv_offsets = recv_offsets};
  return start(comm, &call, stream, event);
}

int plait_all_to_all_v(PlaitComm *comm, const void *send, const size_t *send_counts, const size_t *send_offsets,
                       void *recv, const size_t *recv_counts, const size_t *recv_offsets, PlaitDtype dtype,
                       PlaitStream *stream, PlaitEvent *event) {
  PlaitBuffer buffer = {send, recv, 0};
  for (int p = 0; send_counts && p < comm->size; p++) buffer.count += send_counts[p];
  CommCall call = {.kind = COMM_ALL_TO_ALL_V, .buffers = &buffer, .nbuffers = 1, .dtype = dtype,
                   .send_counts = send_counts, .send_offsets = send_offsets,
                   .recv_counts = recv_counts, .recv_offsets = recv_offsets};
  return start(comm, &call, stream, event);
}

int plait_barrier(PlaitComm *comm, PlaitStream *stream, PlaitEvent *event) {
  CommCall call = {.kind = COMM_BARRIER};
  return start(comm, &call, stream, event);
}

int plait_send(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int peer,
               PlaitStream *stream, PlaitEvent *event) {
  CommCall call = {.kind = COMM_SEND, .buffers = buffers, .nbuffers = nbuffers, .dtype = dtype, .root = peer,
                   .rendezvous = !event};
  return start(comm, &call, stream, event);
}

int plait_recv(PlaitComm *comm, const PlaitBuffer *buffers, size_t nbuffers, PlaitDtype dtype, int peer,
               PlaitStream *stream, PlaitEvent *event) {
  CommCall call = {.kind = COMM_RECV, .buffers = buffers, .nbuffers = nbuffers, .dtype = dtype, .root = peer};
  return start(comm, &call, stream, event);
}
