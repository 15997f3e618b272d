// Reductions between processes: each rank reduces a range of the elements, over all ranks in order as `local` does, so
// the results are the same bits. Long ones go in chunks: while one is summed the next is on its way.
#include "comm/process.h"
#include "comm/reduce.h"
#include <stdlib.h>
#include <string.h>

// Up to DIRECT_BYTES everybody who wants the result gets all ranks' elements: one hop instead of two.
enum { DIRECT_BYTES = 8192, CHUNK_BYTES = 2 << 20, LEAST_SHARE = 65536 };

typedef struct Work {
  ProcessComm *c;
  const CommCall *call;
  int n, me, direct;
  size_t size, total;  // bytes of an element; elements of the whole row, for reduce_scatter of one part
  size_t chunk, share; // elements of a chunk, and of a rank's range of it
  size_t chunks;
} Work;

static void plan(Work *w) {
  size_t n = (size_t)w->n, bytes = w->total * w->size,
         share = CHUNK_BYTES / n > LEAST_SHARE ? CHUNK_BYTES / n : LEAST_SHARE;
  int scatter = w->call->kind == COMM_REDUCE_SCATTER;
  w->direct = !scatter && bytes <= DIRECT_BYTES;
  w->share = share / w->size;
  if (!scatter && w->total < w->share * n) w->share = (w->total + 64 * n - 1) / (64 * n) * 64; // whole cache lines
  if (scatter && w->total < w->share) w->share = w->total;
  if (w->direct) w->share = w->total;
  w->chunk = scatter || w->direct ? w->share : w->share * n;
  w->chunks = w->total ? (w->total + w->chunk - 1) / w->chunk : 0;
}

// The elements of chunk k that rank p reduces, in the row.
static void range_of(const Work *w, size_t k, int p, size_t *from, size_t *to) {
  int everything = w->direct || w->call->kind == COMM_REDUCE_SCATTER;
  size_t low = k * w->chunk + (everything ? 0 : (size_t)p * w->share), high = low + w->share;
  size_t end = (k + 1) * w->chunk < w->total ? (k + 1) * w->chunk : w->total;
  if (w->direct && w->call->kind == COMM_REDUCE && p != w->call->root) high = low;
  *from = low < end ? low : end;
  *to = high < end ? high : end;
}

static View input_for(const Work *w, int p) {
  return view_call(w->call, 0, w->call->kind == COMM_REDUCE_SCATTER ? p : -1);
}

static char *slot(const Work *w, size_t k, int p) { return w->c->staging[k & 1] + (size_t)p * w->share * w->size; }

static int post(Work *w, Batch *batch, const View *view, size_t from, size_t to, int peer, int receive) {
  ProcessWorld *world = (ProcessWorld *)w->c->base.world;
  if (from == to) return PLAIT_OK;
  process_lock(world);
  int status = process_post(w->c, batch, view, from * w->size, to * w->size, peer, process_tag(w->c, w->call), receive);
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
    View view = view_memory(slot(w, k, p), (to - from) * w->size);
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
  return view_memory(slot(w, k, w->me), (to - *shift) * w->size);
}

static void reduce_chunk(Work *w, size_t k) {
  const void **inputs = w->c->inputs;
  size_t from, to, left, space, shift;
  View own = input_for(w, w->me), out = output_of(w, k, &shift);
  range_of(w, k, w->me, &from, &to);
  for (size_t i = from, count; i < to; i += count) {
    const char *mine = view_at(&own, i * w->size, &left);
    void *result = view_at(&out, (i - shift) * w->size, &space);
    count = (left < space ? left : space) / w->size;
    if (count > to - i) count = to - i;
    for (int p = 0; p < w->n; p++) inputs[p] = p == w->me ? mine : slot(w, k, p) + (i - from) * w->size;
    reduce_run(w->call->dtype, w->call->op, inputs, w->n, &result, 1, count);
  }
}

// Phase 2: the results go to everybody, or to the root.
static int share_results(Work *w, size_t k) {
  Batch *batch = &w->c->second[k & 1];
  int code = PLAIT_OK, kind = (int)w->call->kind, to_all = kind == COMM_ALL_REDUCE;
  size_t from, to, shift;
  if (w->direct || kind == COMM_REDUCE_SCATTER) return PLAIT_OK;
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

// The most that `plan` asks for where a rank gives at most `reduced` bytes.
static size_t most_staging(size_t n, size_t reduced) {
  size_t direct = (reduced < DIRECT_BYTES ? reduced : DIRECT_BYTES) * n, rounded = reduced + 64 * n * sizeof(double);
  size_t chunk = CHUNK_BYTES > LEAST_SHARE * n ? CHUNK_BYTES : LEAST_SHARE * n;
  if (rounded < chunk) chunk = rounded;
  return direct > chunk ? direct : chunk;
}

void process_reserve_collective(PlaitComm *base, size_t buffers, size_t reduced) {
  ProcessWorld *w = (ProcessWorld *)base->world;
  ProcessComm *c = (ProcessComm *)base;
  size_t messages = 6 * (size_t)base->size; // of two chunks, there and back
  int group = reduced && base->size > 1 ? process_chain_group(c, COMM_ALL_REDUCE, PLAIT_FP64, reduced) : 0;
  if (reduced && base->size > 1) staging_reserve(c, most_staging((size_t)base->size, reduced));
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
  int code = w->chunks ? send_inputs(w, 0) : PLAIT_OK;
  if (!code && w->chunks) code = receive_inputs(w, 0);
  if (!code) code = header_await(w->c, w->call, from);
  for (size_t k = 0; k < w->chunks && !code; k++) {
    if (k) code = process_wait_call(w->c, w->call, &w->c->second[(k - 1) & 1]); // its staging memory is used again now
    if (!code && k + 1 < w->chunks) code = send_inputs(w, k + 1);
    if (!code && k + 1 < w->chunks) code = receive_inputs(w, k + 1);
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
  size_t parts = call->kind == COMM_REDUCE_SCATTER ? (size_t)c->base.size : 1;
  int group =
      process_chain_group(c, call->kind, call->dtype, comm_total(call) * comm_dtype_size(call->dtype) * parts);
  if (group) return process_chain(c, call, group);
  Work w = {.c = c,
            .call = call,
            .n = c->base.size,
            .me = c->base.rank,
            .size = comm_dtype_size(call->dtype),
            .total = comm_total(call)};
  plan(&w);
  if (w.n > 1) staging_reserve(c, w.share * w.size * (size_t)w.n);
  int one_way = w.direct && call->kind == COMM_REDUCE, is_root = w.me == call->root;
  Ends to = one_way ? ROOT : EVERYBODY, from = one_way ? (is_root ? EVERYBODY : NOBODY) : EVERYBODY;
  int code = header_exchange(c, call, to, from);
  return code ? code : run_chunks(&w, from);
}
