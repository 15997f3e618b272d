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

typedef struct Work {
  ProcessComm *c;
  const CommCall *call;
  int own, lane; // this rank's group; its place there
  ChainRanges r;
  View recv;
} Work;

// How much later than its sum, in chunks, this rank passes a result back: results come from the last group.
static size_t lag_of(const Work *w) { return w->r.scatters ? 0 : 2 * (size_t)(w->r.groups - 1 - w->own); }

static void range_of(const Work *w, size_t k, int lane, size_t *from, size_t *to) {
  chain_range(&w->r, k, lane, from, to);
}

// Staging memory of one of two chunks: a slot for each rank of the group, the sums of the group before, and this
// rank's.
static char *slot(const Work *w, size_t k, int lane) {
  return w->c->chain.staging[k & 1] + (size_t)lane * w->r.share * w->r.size;
}
static char *sums_before(const Work *w, size_t k) { return slot(w, k, w->r.group); }
static char *sums(const Work *w, size_t k) { return sums_before(w, k) + w->r.share * w->r.wide; }

// The group whose ranks want a chunk of reduce_scatter.
static int wanted_by(const Work *w, size_t k) { return (int)(k / w->r.per_part); }

static View input_for(const Work *w, size_t k, int lane) {
  return view_call(w->call, 0, w->r.scatters ? wanted_by(w, k) * w->r.group + lane : -1);
}

static int rank_of(const Work *w, int group, int lane) { return group * w->r.group + lane; }

static int post(Work *w, RequestBatch *batch, const View *view, size_t from, size_t to, int peer, int receive) {
  ProcessWorld *world = (ProcessWorld *)w->c->base.world;
  if (from == to) return PLAIT_OK;
  process_lock(world);
  int status = process_post(w->c, batch, view, from, to, peer, process_tag(w->c, w->call), receive);
  process_unlock(world);
  return !status ? PLAIT_OK : process_failed(world, comm_traits[w->call->kind].name, status);
}

static int post_elements(Work *w, RequestBatch *batch, const View *view, size_t k, int lane, int peer, int receive) {
  size_t from, to;
  range_of(w, k, lane, &from, &to);
  return post(w, batch, view, from * w->r.size, to * w->r.size, peer, receive);
}

// What the sum of chunk k needs: this rank's elements go to the others of the group, theirs and the sums before come.
static int post_inputs(Work *w, size_t k) {
  RequestBatch *batch = &w->c->first[k & 1];
  size_t from, to;
  int code = PLAIT_OK;
  range_of(w, k, w->lane, &from, &to);
  for (int i = 1; i < w->r.group && !code; i++) {
    int next = (w->lane + i) % w->r.group, before = (w->lane + w->r.group - i) % w->r.group;
    View in = view_memory(slot(w, k, before), (to - from) * w->r.size), out = input_for(w, k, next);
    code = post_elements(w, batch, &out, k, next, rank_of(w, w->own, next), 0);
    if (!code) code = post(w, batch, &in, 0, in.bytes, rank_of(w, w->own, before), 1);
  }
  if (code || !w->own) return code;
  View in = view_memory(sums_before(w, k), (to - from) * w->r.wide);
  return post(w, batch, &in, 0, in.bytes, rank_of(w, w->own - 1, w->lane), 1);
}

static void sum_chunk(Work *w, size_t k) {
  const void **inputs = w->c->inputs;
  int last = w->own == w->r.groups - 1, continues = FAULT(chain_forgets_groups_before, w->own > 0, 0);
  int here = last && (!w->r.scatters || wanted_by(w, k) == w->own); // the result is this rank's
  size_t from, to, left, space;
  View own = input_for(w, k, w->lane);
  range_of(w, k, w->lane, &from, &to);
  for (size_t i = from, count; i < to; i += count) {
    int n = 0;
    const char *mine = view_at(&own, i * w->r.size, &left);
    void *out = sums(w, k) + (i - from) * (last ? w->r.size : w->r.wide);
    count = left / w->r.size;
    if (here) {
      out = view_at(&w->recv, i * w->r.size, &space);
      if (count > space / w->r.size) count = space / w->r.size;
    }
    if (count > to - i) count = to - i;
    if (continues) inputs[n++] = sums_before(w, k) + (i - from) * w->r.wide;
    for (int l = 0; l < w->r.group; l++) inputs[n++] = l == w->lane ? mine : slot(w, k, l) + (i - from) * w->r.size;
    int ranks = FAULT(chain_divides_by_the_group, w->c->base.size, w->r.group);
    reduce_part(w->call->dtype, w->call->op, inputs, n, continues, last ? ranks : 0, out, count);
  }
}

// The result of a chunk, which this rank has of its range, goes to the group before and to the others of this one.
static int pass_result(Work *w, size_t k) {
  RequestBatch *rest = &w->c->chain.rest;
  int code = PLAIT_OK;
  if (w->own) code = post_elements(w, rest, &w->recv, k, w->lane, rank_of(w, w->own - 1, w->lane), 0);
  for (int i = 1; i < w->r.group && !code; i++) {
    int next = (w->lane + i) % w->r.group, before = (w->lane + w->r.group - i) % w->r.group;
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
  View out = view_memory(sums(w, k), (to - from) * w->r.size);
  return post(w, &w->c->chain.passed[k & 1], &out, 0, out.bytes, rank_of(w, to_group, w->lane), 0);
}

static int sum_and_pass(Work *w, size_t k) {
  RequestBatch *passed = &w->c->chain.passed[k & 1];
  size_t from, to;
  int code = k + 1 < w->r.chunks ? post_inputs(w, k + 1) : PLAIT_OK;
  if (!code) code = process_wait_call(w->c, w->call, &w->c->first[k & 1]);
  if (!code) code = process_wait_call(w->c, w->call, passed); // the sums of two chunks before leave the same memory
  if (code) return code;
  sum_chunk(w, k);
  if (w->own == w->r.groups - 1) return w->r.scatters ? give_result(w, k) : pass_result(w, k);
  range_of(w, k, w->lane, &from, &to);
  View out = view_memory(sums(w, k), (to - from) * w->r.wide);
  code = post(w, passed, &out, 0, out.bytes, rank_of(w, w->own + 1, w->lane), 0);
  if (code || !w->r.scatters || wanted_by(w, k) != w->own) return code;
  // In place, this rank's elements of the chunk have been where its result goes: they are added.
  return post_elements(w, &w->c->chain.rest, &w->recv, k, w->lane, rank_of(w, w->r.groups - 1, w->lane), 1);
}

static int expect_result(Work *w, size_t k) {
  return post_elements(w, &w->c->second[k & 1], &w->recv, k, w->lane, rank_of(w, w->own + 1, w->lane), 1);
}

static int take_result(Work *w, size_t k) {
  int code = k ? PLAIT_OK : expect_result(w, 0);
  if (!code && k + 1 < w->r.chunks) code = expect_result(w, k + 1);
  if (!code) code = process_wait_call(w->c, w->call, &w->c->second[k & 1]);
  return code ? code : pass_result(w, k);
}

// In place, the memory of a result is that of the elements. Those of a chunk have left, and are added, before its
// result is expected: take_result(k) expects that of chunk k + 1 after the sum of chunk k + lag.
static int run_chunks(Work *w) {
  size_t lag = lag_of(w);
  int code = w->r.chunks ? post_inputs(w, 0) : PLAIT_OK;
  for (size_t t = 0; t < w->r.chunks + lag && !code; t++) {
    if (t < w->r.chunks) code = sum_and_pass(w, t);
    if (!code && lag && t >= lag) code = take_result(w, t - lag);
  }
  RequestBatch *all[] = {&w->c->first[0],  &w->c->first[1],        &w->c->chain.passed[0], &w->c->chain.passed[1],
                  &w->c->second[0], &w->c->second[1],       &w->c->chain.rest};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) { // empties them, also after a failure
    int waited = process_wait_call(w->c, w->call, all[i]);
    if (!code) code = waited;
  }
  return code;
}

static size_t staging_bytes(const Work *w) { return w->r.share * ((size_t)w->r.group * w->r.size + 2 * w->r.wide); }

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
  Work w = {.r = chain_ranges(COMM_ALL_REDUCE, c->base.size, group, 1, 2, bytes)}; // wide: at most
  size_t least = 5 * (size_t)w.r.groups; // chunks of what is shorter, at most
  size_t requests = (w.r.chunks + least) * (2 * (size_t)group - 1);
  reserve(&c->chain, staging_bytes(&w), requests);
  return requests;
}

int process_chain(ProcessComm *c, const CommCall *call, int group) {
  Work w = {.c = c,
            .call = call,
            .own = c->base.rank / group,
            .lane = c->base.rank % group,
            .r = chain_ranges(call->kind, c->base.size, group, comm_dtype_size(call->dtype),
                              comm_wide_size(call->dtype), comm_total(call)),
            .recv = view_call(call, 1, -1)};
  reserve(&c->chain, staging_bytes(&w), w.r.chunks * (2 * (size_t)group - 1));
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
