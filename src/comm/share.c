// Each rank's part of the work of a collective, once all ranks' calls and memory can be read.
#include "comm/share.h"
#include "base/fault.h"
#include "comm/reduce.h"
#include <stdio.h>
#include <string.h>

static int differ(const CommCall *const *calls, const int *ranks, int a, int b, Error *error, const char *why) {
  char first[160], second[160];
  comm_describe(calls[a], first, sizeof first);
  comm_describe(calls[b], second, sizeof second);
  return error_set_about(error, PLAIT_FAILED, &(ErrorFacts){.rank = error_rank(ranks[a], NULL)},
                         "rank %d calls %s while rank %d calls %s%s%s (call %llu of the communicator)", ranks[a], first,
                         ranks[b], second, *why ? ": " : "", why, (unsigned long long)calls[a]->ticket + 1);
}

static int check_counts(const CommCall *const *calls, const int *ranks, int r, Error *error) {
  for (size_t b = 0; b < calls[0]->nbuffers; b++) {
    size_t mine = calls[r]->buffers[b].count, other = calls[0]->buffers[b].count;
    if (mine == other) continue;
    char why[96];
    snprintf(why, sizeof why, "buffer %zu has %zu and %zu elements", b, other, mine);
    return differ(calls, ranks, 0, r, error, why);
  }
  return PLAIT_OK;
}

// What rank p sends to rank r must be what r expects from p.
static int check_v(const CommCall *const *calls, int n, const int *ranks, int p, Error *error) {
  for (int r = 0; r < n; r++) {
    size_t sent = calls[p]->kind == COMM_ALL_GATHER_V ? calls[p]->buffers[0].count : calls[p]->send_counts[r];
    size_t expected = calls[r]->recv_counts[p];
    if (sent == expected) continue;
    char why[128];
    snprintf(why, sizeof why, "%zu elements from rank %d for rank %d, which expects %zu", sent, ranks[p], ranks[r],
             expected);
    return differ(calls, ranks, p, r, error, why);
  }
  return PLAIT_OK;
}

int share_check(const CommCall *const *calls, int n, const int *ranks, Error *error) {
  const CommCall *first = calls[0];
  int is_v = first->kind == COMM_ALL_GATHER_V || first->kind == COMM_ALL_TO_ALL_V;
  for (int r = 1; r < n; r++) {
    const CommCall *call = calls[r];
    if (call->kind != first->kind || call->dtype != first->dtype || call->op != first->op ||
        call->root != first->root || call->nbuffers != first->nbuffers)
      return differ(calls, ranks, 0, r, error, "");
    int code = is_v ? 0 : check_counts(calls, ranks, r, error);
    if (code < 0) return code;
  }
  for (int p = 0; is_v && p < n; p++) {
    int code = check_v(calls, n, ranks, p, error);
    if (code < 0) return code;
  }
  return PLAIT_OK;
}

size_t share_bytes(const CommCall *const *calls, int n) {
  size_t elements = 0;
  if (calls[0]->kind == COMM_ALL_GATHER_V || calls[0]->kind == COMM_ALL_TO_ALL_V) {
    for (int r = 0; r < n; r++)
      for (int p = 0; p < n; p++) elements += calls[r]->recv_counts[p];
  } else {
    const CommTraits *traits = &comm_traits[calls[0]->kind];
    elements = comm_total(calls[0]) * (size_t)n;
    if (traits->send_parts && traits->recv_parts) elements *= (size_t)n;
  }
  return elements * comm_dtype_size(calls[0]->dtype);
}

static void copy(void *to, const void *from, size_t bytes) {
  if (bytes && to != from) memcpy(to, from, bytes); // equal where a call works in place
}

// Element range [from, to) of part `part` of buffer b (0: of what has no parts), over all ranks in order. The result
// goes to the recv of rank `target`, or of all ranks if that is -1: pushing from the cache is cheaper than everybody's
// reading later.
static void reduce_range(const CommCall *const *calls, int n, size_t b, int part, size_t from, size_t to,
                         int target) {
  const void *in[LOCAL_MOST_RANKS];
  void *out[LOCAL_MOST_RANKS];
  size_t size = comm_dtype_size(calls[0]->dtype);
  int count = 0;
  for (int p = 0; p < n; p++) {
    in[p] = comm_part(&calls[p]->buffers[b], size, part, 0) + from * size;
    if (target < 0 || target == p) out[count++] = (char *)calls[p]->buffers[b].recv + from * size;
  }
  reduce_run(calls[0]->dtype, calls[0]->op, in, n, out, count, to - from);
}

// all_reduce and reduce: the elements of all buffers in a row are cut into n ranges of whole cache lines.
static void reduce_shared(const CommCall *const *calls, int n, int rank, int target) {
  size_t total = comm_total(calls[0]), line = 64 * (size_t)n, chunk = (total + line - 1) / line * 64, start = 0;
  size_t low = chunk * (size_t)rank, high = low + chunk;
  for (size_t b = 0; b < calls[0]->nbuffers && start < high; b++) {
    size_t end = start + calls[0]->buffers[b].count;
    size_t from = low > start ? low : start, to = high < end ? high : end;
    if (from < to) reduce_range(calls, n, b, 0, from - start, to - start, target);
    start = end;
  }
}

// Every rank, the root too, copies a range of the root's memory to all others.
static void broadcast_part(const CommCall *const *calls, int n, int rank, size_t b, size_t bytes) {
  size_t share = (bytes / (size_t)n + 64) / 64 * 64, from = share * (size_t)rank;
  const char *send = calls[calls[0]->root]->buffers[b].send;
  if (from >= bytes) return;
  if (share > bytes - from) share = bytes - from;
  for (int p = 0; p < n; p++) {
    char *recv = calls[p]->buffers[b].recv;
    if (recv) copy(recv + from, send + from, share); // the root's may be NULL, or its send
  }
}

static void copy_parts(const CommCall *const *calls, int n, int rank) {
  const CommCall *call = calls[rank];
  size_t size = comm_dtype_size(call->dtype);
  for (size_t b = 0; b < call->nbuffers; b++) {
    const PlaitBuffer *mine = &call->buffers[b], *roots = &calls[call->root]->buffers[b];
    size_t bytes = mine->count * size;
    if (!bytes) continue;
    switch (call->kind) {
    case COMM_ALL_GATHER:
      for (int p = 0; p < n; p++) copy(comm_part(mine, size, p, 1), calls[p]->buffers[b].send, bytes);
      break;
    case COMM_ALL_TO_ALL:
      for (int p = 0; p < n; p++)
        copy(comm_part(mine, size, p, 1), comm_part(&calls[p]->buffers[b], size, rank, 0), bytes);
      break;
    case COMM_SHIFT: {
      int source = comm_around(rank, FAULT(shift_is_off_by_one, 0, 1) - call->root, n);
      copy(mine->recv, calls[source]->buffers[b].send, bytes);
      break;
    }
    case COMM_BROADCAST: broadcast_part(calls, n, rank, b, bytes); break;
    case COMM_SCATTER: copy(mine->recv, comm_part(roots, size, rank, 0), bytes); break;
    case COMM_GATHER: copy(comm_part(roots, size, rank, 1), mine->send, bytes); break;
    default: break;
    }
  }
}

static size_t offset_of(const size_t *counts, const size_t *offsets, int i) {
  if (offsets) return offsets[i];
  size_t sum = 0;
  for (int p = 0; p < i; p++) sum += counts[p];
  return sum;
}

static void copy_parts_v(const CommCall *const *calls, int n, int rank) {
  const CommCall *call = calls[rank];
  size_t size = comm_dtype_size(call->dtype);
  for (int p = 0; p < n; p++) {
    if (!call->recv_counts[p]) continue;
    size_t from = call->kind == COMM_ALL_GATHER_V ? 0 : offset_of(calls[p]->send_counts, calls[p]->send_offsets, rank);
    copy((char *)call->buffers[0].recv + offset_of(call->recv_counts, call->recv_offsets, p) * size,
         (const char *)calls[p]->buffers[0].send + from * size, call->recv_counts[p] * size);
  }
}

void share_run(const CommCall *const *calls, int n, int rank) {
  const CommCall *call = calls[rank];
  switch (call->kind) {
  case COMM_ALL_REDUCE: reduce_shared(calls, n, rank, -1); break;
  case COMM_REDUCE: reduce_shared(calls, n, rank, call->root); break;
  case COMM_REDUCE_SCATTER:
    for (size_t b = 0; b < call->nbuffers; b++)
      if (call->buffers[b].count) reduce_range(calls, n, b, rank, 0, call->buffers[b].count, rank);
    break;
  case COMM_ALL_GATHER_V:
  case COMM_ALL_TO_ALL_V: copy_parts_v(calls, n, rank); break;
  default: copy_parts(calls, n, rank); break;
  }
}
