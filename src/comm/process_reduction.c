// Reductions between processes: each rank reduces a range of the elements, over all ranks in order as `local` does, so
// the results are the same bits. Long ones go in chunks: while one is summed the next is on its way.
#include "comm/process.h"
#include "comm/reduce.h"
#include <stdlib.h>
#include <string.h>

typedef struct Work {
  ProcessComm *c;
  const CommCall *call;
  int n, me;
  ReduceRanges r;
} Work;

static void range_of(const Work *w, size_t k, int p, size_t *from, size_t *to) { reduce_range(&w->r, k, p, from, to); }

static View input_for(const Work *w, int p) {
  return view_call(w->call, 0, w->call->kind == COMM_REDUCE_SCATTER ? p : -1);
}

static char *slot(const Work *w, size_t k, int p) { return w->c->staging[k & 1] + (size_t)p * w->r.share * w->r.size; }

static int post(Work *w, RequestBatch *batch, const View *view, size_t from, size_t to, int peer, int receive) {
  ProcessWorld *world = (ProcessWorld *)w->c->base.world;
  if (from == to) return PLAIT_OK;
  process_lock(world);
  int status =
      process_post(w->c, batch, view, from * w->r.size, to * w->r.size, peer, process_tag(w->c, w->call), receive);
  process_unlock(world);
  return !status ? PLAIT_OK : process_failed(world, comm_traits[w->call->kind].name, status);
}

// Phase 1: everybody's elements of a chunk go to those who reduce them.
static int send_inputs(Work *w, size_t k) {
  int code = PLAIT_OK;
  for (int i = 1; i < w->n && !code; i++) {
    int p = (w->me + i) % w->n;
    size_t from, to;
    View view = input_for(w, p);
    range_of(w, k, p, &from, &to);
    code = post(w, &w->c->first[k & 1], &view, from, to, p, 0);
  }
  return code;
}

static int receive_inputs(Work *w, size_t k) {
  int code = PLAIT_OK;
  size_t from, to;
  range_of(w, k, w->me, &from, &to);
  for (int i = 1; i < w->n && !code; i++) {
    int p = (w->me + w->n - i) % w->n;
    View view = view_memory(slot(w, k, p), (to - from) * w->r.size);
    code = post(w, &w->c->first[k & 1], &view, 0, to - from, p, 1);
  }
  return code;
}

// Where the results of a range go: the caller's memory, or where that has none a slot of the staging memory.
static View output_of(const Work *w, size_t k, size_t *shift) {
  size_t to;
  *shift = 0;
  if (w->call->kind != COMM_REDUCE || w->me == w->call->root) return view_call(w->call, 1, -1);
  range_of(w, k, w->me, shift, &to);
  return view_memory(slot(w, k, w->me), (to - *shift) * w->r.size);
}

static void reduce_chunk(Work *w, size_t k) {
  const void **inputs = w->c->inputs;
  size_t from, to, left, space, shift;
  View own = input_for(w, w->me), out = output_of(w, k, &shift);
  range_of(w, k, w->me, &from, &to);
  for (size_t i = from, count; i < to; i += count) {
    const char *mine = view_at(&own, i * w->r.size, &left);
    void *result = view_at(&out, (i - shift) * w->r.size, &space);
    count = (left < space ? left : space) / w->r.size;
    if (count > to - i) count = to - i;
    for (int p = 0; p < w->n; p++) inputs[p] = p == w->me ? mine : slot(w, k, p) + (i - from) * w->r.size;
    reduce_run(w->call->dtype, w->call->op, inputs, w->n, &result, 1, count);
  }
}

// Phase 2: the results go to everybody, or to the root.
static int share_results(Work *w, size_t k) {
  RequestBatch *batch = &w->c->second[k & 1];
  int code = PLAIT_OK, kind = (int)w->call->kind, to_all = kind == COMM_ALL_REDUCE;
  size_t from, to, shift;
  if (w->r.one_hop || kind == COMM_REDUCE_SCATTER) return PLAIT_OK;
  View recv = view_call(w->call, 1, -1), out = output_of(w, k, &shift);
  for (int i = 1; i < w->n && !code; i++) {
    int p = (w->me + w->n - i) % w->n;
    range_of(w, k, p, &from, &to);
    if (to_all || w->me == w->call->root) code = post(w, batch, &recv, from, to, p, 1);
  }
  range_of(w, k, w->me, &from, &to);
  for (int i = 1; i < w->n && !code; i++) {
    int p = (w->me + i) % w->n;
    if (to_all || p == w->call->root) code = post(w, batch, &out, from - shift, to - shift, p, 0);
  }
  return code;
}

static void staging_reserve(ProcessComm *c, size_t bytes) {
  if (bytes <= c->staging_bytes) return;
  for (int i = 0; i < 2; i++) {
    free(c->staging[i]);
    c->staging[i] = staging_take(bytes);
  }
  c->staging_bytes = bytes;
}

void process_reserve_collective(PlaitComm *base, size_t buffers, size_t reduced) {
  ProcessWorld *w = (ProcessWorld *)base->world;
  ProcessComm *c = (ProcessComm *)base;
  size_t messages = 6 * (size_t)base->size; // of two chunks, there and back
  int group = reduced && base->size > 1 ? chain_group(process_patterned(c), COMM_ALL_REDUCE, PLAIT_FP64, reduced) : 0;
  if (reduced && base->size > 1) staging_reserve(c, reduce_most_staging((size_t)base->size, reduced));
  if (group) messages += process_chain_reserve(c, reduced, group);
  process_lock(w);
  pieces_reserve(w, buffers);
  if (w->wire->reserve) w->wire->reserve(w, buffers, messages);
  process_unlock(w);
}

// The first elements are expected before it is known what the others call, or they could arrive where nobody expects
// them and be copied twice: they go to staging memory, where those of another call do no harm.
//
// The memory that a chunk's phase 2 writes in an all_reduce in place is what its phase 1 has sent: a wait is between.
static int run_chunks(Work *w, Ends from) {
  int code = w->r.chunks ? send_inputs(w, 0) : PLAIT_OK;
  if (!code && w->r.chunks) code = receive_inputs(w, 0);
  if (!code) code = header_await(w->c, w->call, from);
  for (size_t k = 0; k < w->r.chunks && !code; k++) {
    if (k) code = process_wait_call(w->c, w->call, &w->c->second[(k - 1) & 1]); // its staging memory is used again now
    if (!code && k + 1 < w->r.chunks) code = send_inputs(w, k + 1);
    if (!code && k + 1 < w->r.chunks) code = receive_inputs(w, k + 1);
    if (!code) code = process_wait_call(w->c, w->call, &w->c->first[k & 1]);
    if (code) break;
    reduce_chunk(w, k);
    code = share_results(w, k);
  }
  for (int i = 0; i < 4; i++) { // empties them, also after a failure
    int waited = process_wait_call(w->c, w->call, i & 1 ? &w->c->first[i >> 1] : &w->c->second[i >> 1]);
    if (!code) code = waited;
  }
  return code;
}

int process_reduction(ProcessComm *c, const CommCall *call) {
  int n = c->base.size, is_root = c->base.rank == call->root;
  size_t size = comm_dtype_size(call->dtype), total = comm_total(call),
         parts = call->kind == COMM_REDUCE_SCATTER ? (size_t)n : 1;
  int group = chain_group(process_patterned(c), call->kind, call->dtype, total * size * parts);
  if (group) return process_chain(c, call, group);
  Work w = {c, call, n, c->base.rank, reduce_ranges(call->kind, n, call->root, size, total)};
  if (n > 1) staging_reserve(c, w.r.share * size * (size_t)n);
  int one_way = call->kind == COMM_REDUCE && w.r.one_hop;
  Ends to = one_way ? ROOT : EVERYBODY, from = one_way ? (is_root ? EVERYBODY : NOBODY) : EVERYBODY;
  int code = header_exchange(c, call, to, from);
  return code ? code : run_chunks(&w, from);
}
