// all_reduce and reduce_scatter by a chain of groups: ranks that follow on each other, as those of one machine. Within
// a group each rank gathers its range of the elements from the others, as process_reduction.c does among all ranks. It
// adds them to what the same rank of the group before has summed, unrounded, and passes that on; the last group has the
// result, which goes back along the chain and to all ranks of each group. Each element is added in rank order, so the
// bits are those of the direct exchange. Of reduce_scatter the last group gives each rank the result of its part. A
// link between two groups carries the elements once each way, however many ranks a group has; in the direct exchange it
// carries them once for each rank of a group.
#include "comm/process.h"
#include "base/fault.h"
#include "comm/reduce.h"
#include <stdlib.h>
#include <string.h>

// Bytes of a rank's range of a chunk. Chunks follow each other along the chain.
enum { CHAIN_SHARE = 1 << 18, LEAST_CHAIN_SHARE = 1 << 13 };

typedef struct Work {
  ProcessComm *c;
  const CommCall *call;
  int groups, group, own, lane; // ranks of a group; this rank's group; its place there
  size_t size, wide;            // bytes of an element, and of one that is not rounded
  size_t total, share, chunks;  // elements of the row, or of a part of reduce_scatter; of a rank's range of a chunk
  int scatters;                 // reduce_scatter: chunks are of the parts of group 0, then of group 1 …
  size_t per_part;              // of these
  View recv;
} Work;

// How much later than its sum, in chunks, this rank passes a result back: results come from the last group.
static size_t lag_of(const Work *w) { return w->scatters ? 0 : 2 * (size_t)(w->groups - 1 - w->own); }

static size_t share_for(size_t bytes, int group, int groups) {
  size_t share = bytes / (size_t)group / (4 * (size_t)groups);
  if (share > CHAIN_SHARE) share = CHAIN_SHARE;
  return (share < LEAST_CHAIN_SHARE ? LEAST_CHAIN_SHARE : share) / 512 * 512;
}

// Of reduce_scatter a rank reduces the parts of the ranks with its place in each group.
static void range_of(const Work *w, size_t k, int lane, size_t *from, size_t *to) {
  size_t at = w->scatters ? k % w->per_part : k * (size_t)w->group + (size_t)lane;
  size_t low = at * w->share, high = low + w->share;
  *from = low < w->total ? low : w->total;
  *to = high < w->total ? high : w->total;
}

// Staging memory of one of two chunks: a slot for each rank of the group, the sums of the group before, and this
// rank's.
static char *slot(const Work *w, size_t k, int lane) {
  return w->c->chain.staging[k & 1] + (size_t)lane * w->share * w->size;
}
static char *sums_before(const Work *w, size_t k) { return slot(w, k, w->group); }
static char *sums(const Work *w, size_t k) { return sums_before(w, k) + w->share * w->wide; }

// The group whose ranks want a chunk of reduce_scatter.
static int wanted_by(const Work *w, size_t k) { return (int)(k / w->per_part); }

static View input_for(const Work *w, size_t k, int lane) {
  return view_call(w->call, 0, w->scatters ? wanted_by(w, k) * w->group + lane : -1);
}

static int rank_of(const Work *w, int group, int lane) { return group * w->group + lane; }

static int post(Work *w, Batch *batch, const View *view, size_t from, size_t to, int peer, int receive) {
  ProcessWorld *world = (ProcessWorld *)w->c->base.world;
  if (from == to) return PLAIT_OK;
  process_lock(world);
  int status = process_post(w->c, batch, view, from, to, peer, process_tag(w->c, w->call), receive);
  process_unlock(world);
  return !status ? PLAIT_OK : process_failed(world, comm_traits[w->call->kind].name, status);
}

static int post_elements(Work *w, Batch *batch, const View *view, size_t k, int lane, int peer, int receive) {
  size_t from, to;
  range_of(w, k, lane, &from, &to);
  return post(w, batch, view, from * w->size, to * w->size, peer, receive);
}

// What the sum of chunk k needs: this rank's elements go to the others of the group, theirs and the sums before come.
static int post_inputs(Work *w, size_t k) {
  Batch *batch = &w->c->first[k & 1];
  size_t from, to;
  int code = PLAIT_OK;
  range_of(w, k, w->lane, &from, &to);
  for (int i = 1; i < w->group && !code; i++) {
    int next = (w->lane + i) % w->group, before = (w->lane + w->group - i) % w->group;
    View in = view_memory(slot(w, k, before), (to - from) * w->size), out = input_for(w, k, next);
    code = post_elements(w, batch, &out, k, next, rank_of(w, w->own, next), 0);
    if (!code) code = post(w, batch, &in, 0, in.bytes, rank_of(w, w->own, before), 1);
  }
  if (code || !w->own) return code;
  View in = view_memory(sums_before(w, k), (to - from) * w->wide);
  return post(w, batch, &in, 0, in.bytes, rank_of(w, w->own - 1, w->lane), 1);
}

static void sum_chunk(Work *w, size_t k) {
  const void **inputs = w->c->inputs;
  int last = w->own == w->groups - 1, continues = FAULT(chain_forgets_groups_before, w->own > 0, 0);
  int here = last && (!w->scatters || wanted_by(w, k) == w->own); // the result is this rank's
  size_t from, to, left, space;
  View own = input_for(w, k, w->lane);
  range_of(w, k, w->lane, &from, &to);
  for (size_t i = from, count; i < to; i += count) {
    int n = 0;
    const char *mine = view_at(&own, i * w->size, &left);
    void *out = sums(w, k) + (i - from) * (last ? w->size : w->wide);
    count = left / w->size;
    if (here) {
      out = view_at(&w->recv, i * w->size, &space);
      if (count > space / w->size) count = space / w->size;
    }
    if (count > to - i) count = to - i;
    if (continues) inputs[n++] = sums_before(w, k) + (i - from) * w->wide;
    for (int l = 0; l < w->group; l++) inputs[n++] = l == w->lane ? mine : slot(w, k, l) + (i - from) * w->size;
    int ranks = FAULT(chain_divides_by_the_group, w->c->base.size, w->group);
    reduce_part(w->call->dtype, w->call->op, inputs, n, continues, last ? ranks : 0, out, count);
  }
}

// The result of a chunk, which this rank has of its range, goes to the group before and to the others of this one.
static int pass_result(Work *w, size_t k) {
  Batch *rest = &w->c->chain.rest;
  int code = PLAIT_OK;
  if (w->own) code = post_elements(w, rest, &w->recv, k, w->lane, rank_of(w, w->own - 1, w->lane), 0);
  for (int i = 1; i < w->group && !code; i++) {
    int next = (w->lane + i) % w->group, before = (w->lane + w->group - i) % w->group;
    code = post_elements(w, rest, &w->recv, k, before, rank_of(w, w->own, before), 1);
    if (!code) code = post_elements(w, rest, &w->recv, k, w->lane, rank_of(w, w->own, next), 0);
  }
  return code;
}

// Of reduce_scatter, by the last group.
static int give_result(Work *w, size_t k) {
  int to_group = wanted_by(w, k);
  size_t from, to;
  if (to_group == w->own) return PLAIT_OK;
  range_of(w, k, w->lane, &from, &to);
  View out = view_memory(sums(w, k), (to - from) * w->size);
  return post(w, &w->c->chain.passed[k & 1], &out, 0, out.bytes, rank_of(w, to_group, w->lane), 0);
}

static int sum_and_pass(Work *w, size_t k) {
  Batch *passed = &w->c->chain.passed[k & 1];
  size_t from, to;
  int code = k + 1 < w->chunks ? post_inputs(w, k + 1) : PLAIT_OK;
  if (!code) code = process_wait_call(w->c, w->call, &w->c->first[k & 1]);
  if (!code) code = process_wait_call(w->c, w->call, passed); // the sums of two chunks before leave the same memory
  if (code) return code;
  sum_chunk(w, k);
  if (w->own == w->groups - 1) return w->scatters ? give_result(w, k) : pass_result(w, k);
  range_of(w, k, w->lane, &from, &to);
  View out = view_memory(sums(w, k), (to - from) * w->wide);
  code = post(w, passed, &out, 0, out.bytes, rank_of(w, w->own + 1, w->lane), 0);
  if (code || !w->scatters || wanted_by(w, k) != w->own) return code;
  // In place, this rank's elements of the chunk have been where its result goes: they are added.
  return post_elements(w, &w->c->chain.rest, &w->recv, k, w->lane, rank_of(w, w->groups - 1, w->lane), 1);
}

static int expect_result(Work *w, size_t k) {
  return post_elements(w, &w->c->second[k & 1], &w->recv, k, w->lane, rank_of(w, w->own + 1, w->lane), 1);
}

static int take_result(Work *w, size_t k) {
  int code = k ? PLAIT_OK : expect_result(w, 0);
  if (!code && k + 1 < w->chunks) code = expect_result(w, k + 1);
  if (!code) code = process_wait_call(w->c, w->call, &w->c->second[k & 1]);
  return code ? code : pass_result(w, k);
}

// In place, the memory of a result is that of the elements. Those of a chunk have left, and are added, before its
// result is expected: take_result(k) expects that of chunk k + 1 after the sum of chunk k + lag.
static int run_chunks(Work *w) {
  size_t lag = lag_of(w);
  int code = w->chunks ? post_inputs(w, 0) : PLAIT_OK;
  for (size_t t = 0; t < w->chunks + lag && !code; t++) {
    if (t < w->chunks) code = sum_and_pass(w, t);
    if (!code && lag && t >= lag) code = take_result(w, t - lag);
  }
  Batch *all[] = {&w->c->first[0],  &w->c->first[1],        &w->c->chain.passed[0], &w->c->chain.passed[1],
                  &w->c->second[0], &w->c->second[1],       &w->c->chain.rest};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) { // empties them, also after a failure
    int waited = process_wait_call(w->c, w->call, all[i]);
    if (!code) code = waited;
  }
  return code;
}

static size_t staging_bytes(const Work *w) { return w->share * ((size_t)w->group * w->size + 2 * w->wide); }

static void plan(Work *w) {
  size_t parts = w->scatters ? (size_t)(w->group * w->groups) : 1;
  w->share = share_for(w->total * w->size * parts, w->group, w->groups) / w->size;
  if (w->scatters) {
    w->per_part = (w->total + w->share - 1) / w->share;
    w->chunks = w->per_part * (size_t)w->groups;
    return;
  }
  size_t chunk = w->share * (size_t)w->group;
  w->chunks = FAULT(chain_leaves_the_rest, (w->total + chunk - 1) / chunk, w->total / chunk);
}

static void reserve(ProcessChain *chain, size_t bytes, size_t requests) {
  batch_reserve(&chain->rest, (int)requests);
  if (bytes <= chain->staging_bytes) return;
  for (int i = 0; i < 2; i++) {
    free(chain->staging[i]);
    chain->staging[i] = staging_take(bytes);
  }
  chain->staging_bytes = bytes;
}

size_t process_chain_reserve(ProcessComm *c, size_t bytes, int group) {
  Work w = {.groups = c->base.size / group, .group = group, .size = 1, .wide = 2, .total = bytes}; // wide: at most
  plan(&w);
  size_t least = 5 * (size_t)w.groups; // chunks of what is shorter, at most
  size_t requests = (w.chunks + least) * (2 * (size_t)group - 1);
  reserve(&c->chain, staging_bytes(&w), requests);
  return requests;
}

int process_chain(ProcessComm *c, const CommCall *call, int group) {
  Work w = {.c = c,
            .call = call,
            .groups = c->base.size / group,
            .group = group,
            .own = c->base.rank / group,
            .lane = c->base.rank % group,
            .size = comm_dtype_size(call->dtype),
            .wide = reduce_wide_size(call->dtype),
            .total = comm_total(call),
            .scatters = call->kind == COMM_REDUCE_SCATTER,
            .recv = view_call(call, 1, -1)};
  plan(&w);
  reserve(&c->chain, staging_bytes(&w), w.chunks * (2 * (size_t)group - 1));
  int code = header_exchange(c, call, EVERYBODY, EVERYBODY);
  if (!code) code = header_await(c, call, EVERYBODY);
  return code ? code : run_chunks(&w);
}

void process_chain_free(ProcessChain *chain) {
  for (int i = 0; i < 2; i++) {
    free(chain->staging[i]);
    batch_free(&chain->passed[i]);
  }
  batch_free(&chain->rest);
}
