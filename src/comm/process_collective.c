// Collectives that move data: every rank sends each of the others what is theirs, straight from and to the caller's
// memory.
#include "comm/process.h"
#include "base/fault.h"
#include <string.h>

static size_t offset_of(const size_t *counts, const size_t *offsets, int i) {
  size_t sum = 0;
  if (offsets) return offsets[i];
  for (int p = 0; p < i; p++) sum += counts[p];
  return sum;
}

// What this rank sends to, or receives from, a peer.
static View part_for(const ProcessComm *c, const CommCall *call, int peer, int receives) {
  size_t size = comm_dtype_size(call->dtype);
  if (call->kind != COMM_ALL_GATHER_V && call->kind != COMM_ALL_TO_ALL_V) {
    const CommTraits *traits = &comm_traits[call->kind];
    return view_call(call, receives, (receives ? traits->recv_parts : traits->send_parts) ? peer : -1);
  }
  const char *send = call->buffers->send;
  if (receives)
    return view_memory((char *)call->buffers->recv +
                           (call->recv_counts[peer] ? offset_of(call->recv_counts, call->recv_offsets, peer) : 0) *
                               size,
                       call->recv_counts[peer] * size);
  if (call->kind == COMM_ALL_GATHER_V) return view_memory(send, call->buffers->count * size);
  return view_memory(send +
                         (call->send_counts[peer] ? offset_of(call->send_counts, call->send_offsets, peer) : 0) * size,
                     call->send_counts[peer] * size);
}

// Does this rank give the peer elements, or receive some from it, when the call's ends include it? Of a shift one rank
// gives and one receives; all exchange headers, as ranks that shift by other distances would wait for each other.
static int part_moves(const ProcessComm *c, const CommCall *call, int peer, int receives) {
  return call->kind != COMM_SHIFT ||
         peer == comm_around(c->base.rank, receives ? -call->root : call->root, c->base.size);
}

static int post_parts(ProcessComm *c, const CommCall *call, Ends ends, int receive) {
  ProcessWorld *w = (ProcessWorld *)c->base.world;
  int n = c->base.size, tag = process_tag(c, call), status = 0;
  process_lock(w);
  for (int i = 1; i < n && !status; i++) { // each begins with another, or all would crowd one rank
    int peer = (c->base.rank + (receive ? n - i : i)) % n;
    if (!header_includes(c, call, ends, peer) || !part_moves(c, call, peer, receive)) continue;
    View view = part_for(c, call, peer, receive);
    status = process_post(c, &c->first[0], &view, 0, view.bytes, peer, tag, receive);
  }
  process_unlock(w);
  return !status ? PLAIT_OK : process_failed(w, comm_traits[call->kind].name, status);
}

// The sends are posted before it is known what the others call: they do no harm there.
static int exchange(ProcessComm *c, const CommCall *call, Ends to, Ends from) {
  int is_root = call->root == c->base.rank, rooted = comm_traits[call->kind].rooted;
  int code = header_exchange(c, call, to, from);
  if (!code) code = post_parts(c, call, to, 0);
  if (!code) code = header_await(c, call, from);
  if (!code) code = post_parts(c, call, from, 1);
  if (!code && (!rooted || is_root) && part_moves(c, call, c->base.rank, 0)) {
    View send = part_for(c, call, c->base.rank, 0), recv = part_for(c, call, c->base.rank, 1);
    view_copy(&recv, &send);
  }
  int waited = process_wait_call(c, call, &c->first[0]);
  return code ? code : waited;
}

// all_gather by machines ----------------------------------------------------------------------------------------------

static int post_part(ProcessComm *c, const CommCall *call, int part, int from_send, int peer, int receive) {
  ProcessWorld *w = (ProcessWorld *)c->base.world;
  View view = part_for(c, call, part, !from_send);
  process_lock(w);
  int status = process_post(c, &c->first[receive], &view, 0, view.bytes, peer, process_tag(c, call), receive);
  process_unlock(w);
  return !status ? PLAIT_OK : process_failed(w, comm_traits[call->kind].name, status);
}

// A part goes to the others of this rank's group, which get theirs from the same rank of another group, `theirs`.
static int share_part(ProcessComm *c, const CommCall *call, int group, int part, int theirs) {
  int me = c->base.rank, first = me / group * group, code = PLAIT_OK;
  for (int i = 1; i < group && !code; i++) {
    int next = first + (me + i) % group, before = first + (me + group - i) % group;
    code = post_part(c, call, theirs * group + before % group, 0, before, 1);
    if (!code) code = post_part(c, call, part, part == me, next, 0);
  }
  return code;
}

// Each part crosses to another group once, not once for each of its ranks: the rank of the same place receives it, and
// gives it to the others there.
static int gather_by_groups(ProcessComm *c, const CommCall *call, int group) {
  int me = c->base.rank, groups = c->base.size / group, own = me / group, lane = me % group;
  int code = header_exchange(c, call, EVERYBODY, EVERYBODY);
  if (!code) code = header_await(c, call, EVERYBODY);
  for (int i = 1; i < groups && !code; i++) code = post_part(c, call, me, 1, (own + i) % groups * group + lane, 0);
  if (!code) code = share_part(c, call, group, me, own);
  for (int i = 1; i < groups && !code; i++) {
    int from = (own + groups - i) % groups, part = from * group + lane;
    code = post_part(c, call, part, 0, part, 1);
    if (!code) code = process_wait_call(c, call, &c->first[1]);
    if (!code) code = share_part(c, call, group, FAULT(groups_gather_their_own, part, me), from);
  }
  if (!code) {
    View send = part_for(c, call, me, 0), recv = part_for(c, call, me, 1);
    view_copy(&recv, &send);
  }
  for (int i = 0; i < 2; i++) {
    int waited = process_wait_call(c, call, &c->first[i]);
    if (!code) code = waited;
  }
  return code;
}

static int all_gather(ProcessComm *c, const CommCall *call) {
  int group =
      gather_group(process_patterned(c), comm_total(call) * comm_dtype_size(call->dtype) * (size_t)c->base.size);
  return group ? gather_by_groups(c, call, group) : exchange(c, call, EVERYBODY, EVERYBODY);
}

// Broadcast ---------------------------------------------------------------------------------------------------------

static int send_to(ProcessComm *c, const CommCall *call, RequestBatch *batch, const View *view, size_t from, size_t to,
                   int peer, int receive) {
  ProcessWorld *w = (ProcessWorld *)c->base.world;
  process_lock(w);
  int status = process_post(c, batch, view, from, to, peer, process_tag(c, call), receive);
  process_unlock(w);
  return !status ? PLAIT_OK : process_failed(w, comm_traits[call->kind].name, status);
}

static int post_header(ProcessComm *c, const CommCall *call, RequestBatch *batch, Header *header, int peer,
                       int receive) {
  ProcessWorld *w = (ProcessWorld *)c->base.world;
  process_lock(w);
  int status = process_post_header(c, batch, receive ? WIRE_RECEIVE : WIRE_SEND, header, peer, process_tag(c, call));
  process_unlock(w);
  return !status ? PLAIT_OK : process_failed(w, comm_traits[call->kind].name, status);
}

// A header, then the data.
static int pass_on(ProcessComm *c, const CommCall *call, const View *view, int peer) {
  c->sent[peer] = header_of(c, call, peer);
  int code = post_header(c, call, &c->first[0], &c->sent[peer], peer, 0);
  return code ? code : send_to(c, call, &c->first[0], view, 0, view->bytes, peer, 0);
}

static int take_head(ProcessComm *c, const CommCall *call, int peer) {
  int code = post_header(c, call, &c->headers, &c->got[peer], peer, 1);
  if (!code) code = process_wait_call(c, call, &c->headers);
  return code ? code : header_check(c, call, peer, &c->got[peer]);
}

// Down a binomial tree whose ranks are counted from the root.
static int broadcast_tree(ProcessComm *c, const CommCall *call, const View *view) {
  int n = c->base.size, me = (c->base.rank - call->root + n) % n, code = PLAIT_OK, step = 1;
  int parent = broadcast_parent(n, call->root, c->base.rank);
  while (step < n && !(me & step)) step *= 2;
  if (parent >= 0) {
    code = take_head(c, call, parent);
    if (!code) code = send_to(c, call, &c->headers, view, 0, view->bytes, parent, 1);
    if (!code) code = process_wait_call(c, call, &c->headers);
  }
  for (step /= 2; step && !code; step /= 2)
    if (me + step < n) code = pass_on(c, call, view, (c->base.rank + step) % n);
  int waited = process_wait_call(c, call, &c->first[0]);
  return code ? code : waited;
}

// The root sends each rank its share and the root's own; the others exchange theirs. Nobody sends everything twice.
static int broadcast_shares(ProcessComm *c, const CommCall *call, const View *view) {
  int n = c->base.size, me = c->base.rank, is_root = me == call->root, code = PLAIT_OK;
  size_t from, to, mine, mine_end;
  broadcast_share(n, view->bytes, me, &mine, &mine_end);
  for (int p = 0; p < n && !code && is_root; p++) {
    View nothing = view_memory(NULL, 0);
    if (p == me) continue;
    broadcast_share(n, view->bytes, p, &from, &to);
    code = pass_on(c, call, &nothing, p);
    if (!code) code = send_to(c, call, &c->first[0], view, from, to, p, 0);
    if (!code) code = send_to(c, call, &c->first[0], view, mine, mine_end, p, 0);
  }
  if (!is_root) {
    code = take_head(c, call, call->root);
    if (!code) code = send_to(c, call, &c->headers, view, mine, mine_end, call->root, 1);
    broadcast_share(n, view->bytes, call->root, &from, &to);
    if (!code) code = send_to(c, call, &c->first[0], view, from, to, call->root, 1);
    for (int p = 0; p < n && !code; p++) { // receives first: they are then in place when the data comes
      broadcast_share(n, view->bytes, p, &from, &to);
      if (p != me && p != call->root) code = send_to(c, call, &c->first[0], view, from, to, p, 1);
    }
    if (!code) code = process_wait_call(c, call, &c->headers);
    for (int i = 1; i < n && !code; i++) {
      int p = (me + i) % n;
      if (p != call->root) code = send_to(c, call, &c->first[0], view, mine, mine_end, p, 0);
    }
  }
  int waited = process_wait_call(c, call, &c->first[0]);
  return code ? code : waited;
}

static int broadcast(ProcessComm *c, const CommCall *call) {
  int is_root = call->root == c->base.rank;
  View view = view_call(call, !is_root, -1);
  int code =
      broadcast_is_tree(c->base.size, view.bytes) ? broadcast_tree(c, call, &view) : broadcast_shares(c, call, &view);
  for (size_t b = 0; b < call->nbuffers && is_root && !code; b++) {
    const PlaitBuffer *buffer = &call->buffers[b];
    if (buffer->count && buffer->recv && buffer->recv != buffer->send)
      memcpy(buffer->recv, buffer->send, buffer->count * comm_dtype_size(call->dtype));
  }
  return code;
}

// In round k a rank hears from the one 2^k before it, and so of 2^(k+1) ranks.
static int barrier(ProcessComm *c, const CommCall *call) {
  int n = c->base.size, code = PLAIT_OK;
  View nothing = view_memory(NULL, 0);
  for (int step = 1; step < n && !code; step *= 2) {
    code = pass_on(c, call, &nothing, (c->base.rank + step) % n);
    if (!code) code = take_head(c, call, (c->base.rank - step + n) % n);
  }
  int waited = process_wait_call(c, call, &c->first[0]);
  return code ? code : waited;
}

// Turns -------------------------------------------------------------------------------------------------------------

static int run(ProcessComm *c, const CommCall *call) {
  switch (call->kind) {
  case COMM_ALL_REDUCE:
  case COMM_REDUCE_SCATTER:
  case COMM_REDUCE: return process_reduction(c, call);
  case COMM_BROADCAST: return broadcast(c, call);
  case COMM_ALL_GATHER: return all_gather(c, call);
  case COMM_BARRIER: return barrier(c, call);
  case COMM_GATHER: return exchange(c, call, ROOT, call->root == c->base.rank ? EVERYBODY : NOBODY);
  case COMM_SCATTER: return exchange(c, call, call->root == c->base.rank ? EVERYBODY : NOBODY, ROOT);
  default: return exchange(c, call, EVERYBODY, EVERYBODY);
  }
}

int process_collective(ProcessComm *c, const CommCall *call) {
  monitor_lock(&c->turn);
  while (c->finished != call->ticket) monitor_wait(&c->turn, call->waiter); // calls before it end, if only by failing
  monitor_unlock(&c->turn);
  int code = abort_code(&c->base.world->abort);
  if (!code) code = run(c, call);
  monitor_lock(&c->turn);
  c->finished++;
  monitor_notify_all(&c->turn);
  monitor_unlock(&c->turn);
  return code;
}
