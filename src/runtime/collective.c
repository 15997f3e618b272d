// Collectives of bodies: from operands as they are bound now to calls of a communicator.
#include "runtime/collective.h"
#include "base/fault.h"
#include "runtime/exchanged_rows.h"
#include <string.h>

// How many elements of a piece there are, when a tensor has fewer rows than its bound. Of a tensor (4, 32, 192) with 3
// rows: as one piece, to be summed over ranks, 3 · 32 · 192; as blocks that are gathered along the second dim, of which
// each row has as many (so that blocks divide by the bound), those of the first 3 rows whole and the others not at all.
static int64_t piece_elements(const Binding *binding, const Bound *b, const Piece *p) {
  if (b->compact && b->compact[p->input]) return operand_elements(&b->input[p->input]); // a sum over ranks
  if (!b->rows || !b->rows[p->input].count) return p->count;
  int64_t bound = tensor_local(binding->program->graph, graph_tensor(binding->program->graph, b->tensor[p->input]))[0],
          rows = b->input[p->input].size[0];
  if (p->blocks == 1) return p->count / bound * rows;
  return p->block < p->blocks / bound * rows ? p->count : 0;
}

// The buffers as they are bound now, without empty ones; returns how many. A gather, scatter or exchange has a part of
// each rank in a buffer.
static size_t find_buffers(const Binding *binding, Bound *b) {
  const CommTraits *traits = node_comm(b->node);
  int64_t parts = traits->send_parts || traits->recv_parts ? plait_comm_size(b->comm) : 1;
  size_t n = 0;
  for (int i = 0; i < b->pieces; i++) {
    const Piece *p = &b->piece[i];
    int64_t count = piece_elements(binding, b, p);
    if (!count) continue;
    b->called += count * parts * (int64_t)dtype_size(b->input[p->input].dtype);
    b->buffer[n++] = (PlaitBuffer){state_host_pointer(binding->state, (char *)b->input[p->input].data + p->send),
                                   state_host_pointer(binding->state, (char *)b->output[p->output].data + p->recv),
                                   (size_t)count, p->send_stride, p->recv_stride};
  }
  return n;
}

// Gathers or scatters a batch of which ranks have different numbers of rows: from, or to, one rank after the other.
// `done` is that of the last, as they are done in order; none where no rank has a row.
static int call_for_each_rank(const Binding *binding, Bound *b, PlaitStream *stream, PlaitEvent *done) {
  int ranks = plait_comm_size(b->comm), me = plait_comm_rank(b->comm), gathers = node_comm(b->node)->gathers, code = 0;
  size_t size = dtype_size(b->input[0].dtype);
  PlaitBuffer *buffer = b->buffer;
  // Only sums of gradients and activations are scattered, never maxima. Only the root's own part is received.
  for (int k = 0; k < b->ninput && !code; k++) {
    const Operand *whole = gathers ? &b->output[k] : &b->input[k], *own = gathers ? &b->input[k] : &b->output[k];
    Rows rows = b->rows[gathers ? b->ninput + k : k];
    size_t row = (size_t)(operand_extent(whole, 1, whole->rank)), at = 0;
    int share = rows.count / ranks;
    for (int r = 0; r < ranks && !code; r++) {
      size_t count = (size_t)shares_rows(binding->program->shares, (int)binding->parameters.microbatch,
                                         rows.first + r * share, share) *
                     row;
      char *part = state_host_pointer(binding->state, (char *)whole->data + at * size),
           *mine = state_host_pointer(binding->state, own->data);
      at += FAULT(gathered_rows_have_holes, count, (size_t)(share * binding->program->shares->bound) * row);
      b->called += (int64_t)(count * size);
      if (!count) continue;
      if (gathers && r == me) memcpy(part, mine, count * size);
      *buffer = (PlaitBuffer){part, gathers ? part : mine, count};
      if (gathers) code = plait_broadcast(b->comm, buffer++, 1, (PlaitDtype)whole->dtype, r, stream, done);
      else code = plait_reduce(b->comm, buffer++, 1, (PlaitDtype)whole->dtype, PLAIT_SUM, r, stream, done);
    }
  }
  return code;
}

// Exchanges rows of the batch for parts of another dim, where ranks have different numbers of rows: to, or from, one
// rank after the other, whose rows these are. Pieces of a row follow each other.
static int exchange_for_each_rank(const Binding *binding, Bound *b, PlaitStream *stream, PlaitEvent *done) {
  int ranks = plait_comm_size(b->comm), me = plait_comm_rank(b->comm), code = 0;
  PlaitDtype dtype = (PlaitDtype)b->input[0].dtype;
  int64_t size = (int64_t)dtype_size(b->input[0].dtype);
  PlaitBuffer *buffer = b->buffer;
  for (int first = 0, next; first < b->pieces && !code; first = next) {
    const Piece *piece = &b->piece[first];
    const Operand *in = &b->input[piece->input], *out = &b->output[piece->output];
    next = first + (int)piece->blocks;
    Rows before = b->rows[piece->input], after = b->rows[b->ninput + piece->output];
    int gathers = after.count > before.count, share = (gathers ? after : before).count / ranks;
    int64_t at = 0, of_row = piece->blocks / (share * binding->program->shares->bound),
            row = operand_extent(gathers ? out : in, 1, in->rank) * size;
    for (int r = 0; r < ranks && !code; r++) {
      int64_t rows = shares_rows(binding->program->shares, (int)binding->parameters.microbatch,
                                 (gathers ? after : before).first + r * share, share);
      PlaitBuffer *list = buffer;
      for (int64_t i = 0; i < rows * of_row; i++) {
        const Piece *p = &piece[i];
        char *send = (char *)in->data + p->send + (gathers ? 0 : at * row),
             *recv = (char *)out->data + p->recv + (gathers ? at * row : 0);
        *buffer++ = (PlaitBuffer){state_host_pointer(binding->state, send), state_host_pointer(binding->state, recv),
                                  (size_t)p->count, gathers ? p->send_stride : 0, gathers ? 0 : p->recv_stride};
      }
      at += FAULT(exchanged_rows_have_holes, rows, share * binding->program->shares->bound);
      if (gathers ? r == me : 1) b->called += rows * of_row * piece->count * size * (gathers ? ranks : 1);
      if (!rows) continue;
      if (gathers) code = plait_scatter(b->comm, list, (size_t)(buffer - list), dtype, r, stream, done);
      else code = plait_gather(b->comm, list, (size_t)(buffer - list), dtype, r, stream, done);
    }
  }
  return code;
}

static int exchange_rows(const Binding *binding, Bound *b, PlaitStream *stream, PlaitEvent *done) {
  const int ranks = plait_comm_size(b->comm);
  const int64_t row = operand_extent(&b->input[0], 1, b->input[0].rank);
  size_t *sent = b->counts, *received = b->counts + ranks, *offset = b->counts + 2 * ranks;
  const double *rows[2];
  exchanged_rows(binding, b, &rows[0], &rows[1]);
  for (int r = 0; r < ranks; r++) {
    sent[r] = (size_t)rows[0][r] * (size_t)row;
    received[r] = (size_t)rows[1][r] * (size_t)row;
  }
  for (int r = 0; r < ranks; r++) {
    offset[r] = 0;
    for (int before = FAULT(exchange_lies_reversed, 0, r + 1); before < FAULT(exchange_lies_reversed, r, ranks);)
      offset[r] += received[before++];
  }
  return plait_all_to_all_v(b->comm, state_host_pointer(binding->state, b->input[0].data), sent, NULL,
                            state_host_pointer(binding->state, b->output[0].data), received, offset,
                            (PlaitDtype)b->input[0].dtype, stream, done);
}

int collective_call(const Binding *binding, Bound *b, PlaitStream *stream, PlaitEvent *done) {
  if (done) *done = (PlaitEvent){0};
  b->called = 0;
  CHECK(op_def(b->node->op)->communicates, "%s is not a collective", op_name(b->node->op));
  CommKind kind = op_def(b->node->op)->comm;
  if (kind == COMM_ALL_TO_ALL_V) return exchange_rows(binding, b, stream, done);
  if (b->rows && b->gathers_rows)
    return (kind == COMM_ALL_TO_ALL ? exchange_for_each_rank : call_for_each_rank)(binding, b, stream, done);
  size_t n = find_buffers(binding, b);
  if (!n) return PLAIT_OK; // nor has any other rank of the group a row
  const CommAttr *attr = node_attr(b->node, CommAttr);
  PlaitDtype dtype = (PlaitDtype)b->input[0].dtype;
  PlaitOp op = attr->maximum ? PLAIT_MAX : PLAIT_SUM;
  switch (kind) {
  case COMM_ALL_REDUCE: return plait_all_reduce(b->comm, b->buffer, n, dtype, op, stream, done);
  case COMM_REDUCE_SCATTER: return plait_reduce_scatter(b->comm, b->buffer, n, dtype, op, stream, done);
  case COMM_ALL_GATHER: return plait_all_gather(b->comm, b->buffer, n, dtype, stream, done);
  case COMM_BROADCAST: return plait_broadcast(b->comm, b->buffer, n, dtype, attr->root, stream, done);
  case COMM_REDUCE: return plait_reduce(b->comm, b->buffer, n, dtype, op, attr->root, stream, done);
  case COMM_GATHER: return plait_gather(b->comm, b->buffer, n, dtype, attr->root, stream, done);
  case COMM_SCATTER: return plait_scatter(b->comm, b->buffer, n, dtype, attr->root, stream, done);
  case COMM_ALL_TO_ALL: return plait_all_to_all(b->comm, b->buffer, n, dtype, stream, done);
  case COMM_SHIFT: return plait_shift(b->comm, b->buffer, n, dtype, attr->distance, stream, done);
  default: CHECK(0, "the executor cannot run %s", op_name(b->node->op));
  }
}
