// Headers: what each rank tells the others of its call, so that two calls that do not match are found.
#include "comm/process.h"
#include <stdio.h>
#include <string.h>

static int is_v(const CommCall *call) { return call->kind == COMM_ALL_GATHER_V || call->kind == COMM_ALL_TO_ALL_V; }
static int is_message(const CommCall *call) { return call->kind == COMM_SEND || call->kind == COMM_RECV; }

int process_tag(const ProcessComm *c, const CommCall *call) {
  uint64_t tickets = (uint64_t)((const ProcessWorld *)c->base.world)->tickets;
  return (int)(call->ticket % tickets) * 2 + is_message(call);
}

Header header_of(const ProcessComm *c, const CommCall *call, int peer) {
  Header h = {.ticket = call->ticket, .kind = call->kind, .dtype = call->dtype, .op = call->op, .root = call->root,
            .nbuffers = call->nbuffers, .total = comm_total(call)};
  if (call->kind == COMM_ALL_TO_ALL_V) h.total = call->send_counts[peer];
  for (size_t b = 0; b < call->nbuffers && !is_v(call); b++) {
    if (b < HEADER_COUNTS) h.counts[b] = call->buffers[b].count;
    else h.rest = (h.rest ^ call->buffers[b].count) * 0x9e3779b97f4a7c15u;
  }
  return h;
}

// The call of a header in words.
static void describe(const Header *h, char *text, size_t size) {
  PlaitBuffer buffer = {NULL, NULL, (size_t)h->total};
  CommCall call = {.kind = (CommKind)h->kind, .dtype = (PlaitDtype)h->dtype, .op = (PlaitOp)h->op, .root = h->root,
                   .buffers = &buffer, .nbuffers = 1};
  if ((unsigned)h->kind >= COMM_KIND_COUNT || (unsigned)h->dtype >= PLAIT_DTYPE_COUNT ||
      (unsigned)h->op >= PLAIT_OP_COUNT)
    snprintf(text, size, "something that is not a call");
  else
    comm_describe(&call, text, size);
}

static void why_they_differ(const CommCall *call, const Header *mine, const Header *other, char *text, size_t size) {
  for (size_t b = 0; b < HEADER_COUNTS && b < mine->nbuffers && b < other->nbuffers && !is_message(call); b++)
    if (mine->counts[b] != other->counts[b] && mine->kind == other->kind) {
      snprintf(text, size, ": buffer %zu has %llu and %llu elements", b, (unsigned long long)mine->counts[b],
               (unsigned long long)other->counts[b]);
      return;
    }
  if (mine->nbuffers != other->nbuffers && mine->kind == other->kind)
    snprintf(text, size, ": in %llu and %llu buffers", (unsigned long long)mine->nbuffers,
             (unsigned long long)other->nbuffers);
}

static int differ(ProcessComm *c, const CommCall *call, int peer, const Header *mine, const Header *other) {
  ProcessWorld *w = (ProcessWorld *)c->base.world;
  char first[160], second[160], why[128] = "";
  Error error = {0};
  describe(mine, first, sizeof first);
  describe(other, second, sizeof second);
  if (is_v(call) && mine->kind == other->kind && mine->dtype == other->dtype)
    snprintf(why, sizeof why, ": %llu elements from rank %d for rank %d, which expects %zu",
             (unsigned long long)other->total, c->base.ranks[peer], w->rank, call->recv_counts[peer]);
  else
    why_they_differ(call, mine, other, why, sizeof why);
  error_set_about(&error, PLAIT_FAILED, &(ErrorFacts){.rank = error_rank(w->rank, NULL)},
                  "rank %d calls %s while rank %d calls %s%s (call %llu of the communicator)", w->rank, first,
                  c->base.ranks[peer], second, why, (unsigned long long)call->ticket + 1);
  int code = abort_all(&w->base.abort, &error);
  process_notify(w);
  return code;
}

int header_check(ProcessComm *c, const CommCall *call, int peer, const Header *header) {
  Header mine = header_of(c, call, peer);
  int same = mine.ticket == header->ticket && mine.dtype == header->dtype;
  if (is_message(call)) {
    if (same && header->kind == COMM_SEND && mine.total == header->total) return PLAIT_OK;
    return differ(c, call, peer, &mine, header);
  }
  same = same && mine.kind == header->kind && mine.op == header->op && mine.root == header->root &&
         mine.nbuffers == header->nbuffers;
  if (is_v(call)) same = same && header->total == call->recv_counts[peer];
  else same = same && !memcmp(mine.counts, header->counts, sizeof mine.counts) && mine.rest == header->rest;
  return same ? PLAIT_OK : differ(c, call, peer, &mine, header);
}

int header_includes(const ProcessComm *c, const CommCall *call, Ends ends, int peer) {
  if (peer == c->base.rank || ends == NOBODY) return 0;
  return ends == EVERYBODY || peer == call->root;
}

int header_exchange(ProcessComm *c, const CommCall *call, Ends to, Ends from) {
  ProcessWorld *w = (ProcessWorld *)c->base.world;
  int n = c->base.size, tag = process_tag(c, call), status = 0;
  process_lock(w);
  for (int i = 1; i < n && !status; i++) {
    int peer = (c->base.rank + i) % n;
    if (header_includes(c, call, from, peer))
      status = process_post_header(c, &c->headers, WIRE_RECEIVE, &c->got[peer], peer, tag);
    if (!status && header_includes(c, call, to, peer)) {
      c->sent[peer] = header_of(c, call, peer);
      status = process_post_header(c, &c->headers, WIRE_SEND, &c->sent[peer], peer, tag);
    }
  }
  process_unlock(w);
  return !status ? PLAIT_OK : process_failed(w, comm_traits[call->kind].name, status);
}

int header_await(ProcessComm *c, const CommCall *call, Ends from) {
  int code = process_wait_call(c, call, &c->headers);
  for (int peer = 0; peer < c->base.size && !code; peer++)
    if (header_includes(c, call, from, peer)) code = header_check(c, call, peer, &c->got[peer]);
  return code;
}
