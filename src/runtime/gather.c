// Sends boxes with their names to rank 0.
#include "runtime/gather.h"
#include "comm/comm.h"
#include <stdlib.h>
#include <string.h>

// A rank's message: a Count, then for each box this, its name and its elements, each at a multiple of 64 bytes.
typedef struct Entry {
  int32_t dtype, rank;
  int64_t global[BOX_MAX_RANK], offset[BOX_MAX_RANK], local[BOX_MAX_RANK];
  int64_t name_bytes;
} Entry;

static size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

static int64_t elements(const CheckpointTensor *t) {
  int64_t n = 1;
  for (int d = 0; d < t->rank; d++) n *= t->local[d];
  return n;
}

static int travels(const CheckpointTensor *t) { return t->primary && elements(t) > 0; }

static size_t bytes_of(const CheckpointTensor *t) {
  return round_up(sizeof(Entry)) + round_up(strlen(t->name) + 1) + round_up((size_t)elements(t) * dtype_size(t->dtype));
}

static void pack(const CheckpointTensor *t, char *out) {
  Box box = checkpoint_box(t);
  int64_t stride[BOX_MAX_RANK];
  box_strides(&box, stride);
  checkpoint_tensor_get(t, &box, out, &box, stride, t->dtype);
}

static char *write_boxes(const CheckpointTensor *boxes, int count, int64_t *bytes) {
  size_t total = 64;
  int64_t number = 0;
  for (int i = 0; i < count; i++)
    if (travels(&boxes[i])) total += bytes_of(&boxes[i]), number++;
  char *message = xcalloc(total, 1), *at = message + 64;
  memcpy(message, &number, sizeof number);
  for (int i = 0; i < count; i++) {
    const CheckpointTensor *t = &boxes[i];
    if (!travels(t)) continue;
    Entry e = {.dtype = (int32_t)t->dtype, .rank = t->rank, .name_bytes = (int64_t)strlen(t->name) + 1};
    memcpy(e.global, t->global, sizeof e.global);
    memcpy(e.offset, t->offset, sizeof e.offset);
    memcpy(e.local, t->local, sizeof e.local);
    memcpy(at, &e, sizeof e);
    memcpy(at + round_up(sizeof e), t->name, (size_t)e.name_bytes);
    pack(t, at + round_up(sizeof e) + round_up((size_t)e.name_bytes));
    at += bytes_of(t);
  }
  *bytes = (int64_t)total;
  return message;
}

static void add(Gathered *g, const CheckpointTensor *box) {
  if (!(g->count & (g->count - 1)) && g->count != 1) // grows at powers of 2
    g->boxes = xrealloc(g->boxes, (size_t)(g->count ? 2 * g->count : 2) * sizeof *g->boxes);
  g->boxes[g->count++] = *box;
}

static void read_boxes(Gathered *g, char *message) {
  int64_t number;
  memcpy(&number, message, sizeof number);
  char *at = message + 64;
  for (int64_t i = 0; i < number; i++) {
    Entry e;
    memcpy(&e, at, sizeof e);
    CheckpointTensor t = {.name = at + round_up(sizeof e), .dtype = (Dtype)e.dtype, .rank = e.rank, .primary = 1};
    memcpy(t.global, e.global, sizeof e.global);
    memcpy(t.offset, e.offset, sizeof e.offset);
    memcpy(t.local, e.local, sizeof e.local);
    t.data = at + round_up(sizeof e) + round_up((size_t)e.name_bytes);
    add(g, &t);
    at += bytes_of(&t);
  }
}

static int receive_all(PlaitComm *comm, const int64_t *sizes, Gathered *g) {
  int code = PLAIT_OK;
  for (int r = 1; r < g->ranks && !code; r++) {
    g->received[r] = xcalloc((size_t)sizes[r], 1);
    code = plait_recv(comm, &(PlaitBuffer){NULL, g->received[r], (size_t)sizes[r]}, 1, PLAIT_UINT8, r, NULL, NULL);
    if (!code) read_boxes(g, g->received[r]);
  }
  return code;
}

int gather_boxes(PlaitComm *comm, const CheckpointTensor *mine, int count, Gathered *out, Error *error) {
  int rank = plait_comm_rank(comm), ranks = plait_comm_size(comm);
  int64_t bytes = 0, *sizes = xcalloc((size_t)ranks, sizeof *sizes);
  *out = (Gathered){.ranks = ranks, .received = xcalloc((size_t)ranks, sizeof *out->received)};
  char *message = rank ? write_boxes(mine, count, &bytes) : NULL;
  int code = plait_gather(comm, &(PlaitBuffer){&bytes, sizes, 1}, 1, PLAIT_INT64, 0, NULL, NULL);
  if (!code && rank)
    code = plait_send(comm, &(PlaitBuffer){message, NULL, (size_t)bytes}, 1, PLAIT_UINT8, 0, NULL, NULL);
  for (int i = 0; i < count && !rank; i++) add(out, &mine[i]);
  if (!code && !rank) code = receive_all(comm, sizes, out);
  free(message);
  free(sizes);
  if (!code) return PLAIT_OK;
  gather_free(out);
  return plait_comm_failure(comm, error);
}

void gather_free(Gathered *g) {
  for (int r = 0; r < g->ranks; r++) free(g->received[r]);
  free(g->received);
  free(g->boxes);
  *g = (Gathered){0};
}
