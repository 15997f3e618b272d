// The wire of net: each rank is reached by one of two carriers. Links are plait's own connections (net_links.h); UCX
// carries messages by shared memory, or all where run.wire is ucx (net_shared.h).
//
// A receive from any rank may be brought by both. It is posted to the links; and as long as they have not brought it,
// UCX is asked, in the order of posting, whether a message of its tag has come.
//
// Failures: bytes move only while this rank makes progress. So when the world has failed, and with it all calls, no
// memory of a caller is touched any more: no thread makes progress from then on.
#include "base/fault.h"
#include "comm/net_world.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OWN_CONTEXTS = 2, CONTEXTS = (1 << (CONTEXT_BITS - RANK_BITS)) - OWN_CONTEXTS };
enum { PROGRESS_AT_ONCE = 16 }; // while bytes move: a few MiB, during which the lock is held
enum { NET_BROKEN = 1, NET_CANCELED, NET_LENGTHS }; // statuses besides UCX's, which are below 0

// Requests ----------------------------------------------------------------------------------------------------------

static void make_requests(NetWorld *w) {
  NetRequests *more = xcalloc(1, sizeof *more);
  memset(more, 0, sizeof *more); // the pages are there from now on
  more->next = w->requests;
  w->requests = more;
  for (int i = 0; i < NET_REQUESTS; i++) {
    more->request[i].next = w->idle;
    w->idle = &more->request[i];
  }
}

static int size_for(size_t pieces) {
  int size = 0;
  while ((size_t)1 << size < pieces) size++;
  return size;
}

static void make_pieces(NetWorld *w, int size) {
  size_t bytes = sizeof(NetPieces) + ((size_t)1 << size) * sizeof(WirePiece);
  NetPieces *more = xcalloc(1, bytes);
  memset(more, 0, bytes); // the pages are there from now on
  *more = (NetPieces){w->free_pieces[size], w->pieces, size};
  w->pieces = w->free_pieces[size] = more;
}

// Larger ones do, too, before memory is taken.
static NetPieces *take_pieces(NetWorld *w, size_t n) {
  int least = size_for(n), size = least;
  while (size < NET_SIZES && !w->free_pieces[size]) size++;
  if (size == NET_SIZES) make_pieces(w, size = least);
  NetPieces *pieces = w->free_pieces[size];
  w->free_pieces[size] = pieces->next;
  return pieces;
}

static NetRequest *take_request(NetWorld *w, const WirePiece *pieces, size_t n) {
  if (!w->idle) make_requests(w);
  NetRequest *r = w->idle;
  w->idle = r->next;
  *r = (NetRequest){.count = n, .pieces = n > 1 ? take_pieces(w, n) : NULL};
  memcpy(n > 1 ? r->pieces->list : &r->one, pieces, n * sizeof *pieces);
  return r;
}

static const WirePiece *pieces_of(const NetRequest *r) { return r->pieces ? r->pieces->list : &r->one; }

static void drop_request(NetWorld *w, NetRequest *r) {
  if (r->pieces) {
    r->pieces->next = w->free_pieces[r->pieces->size];
    w->free_pieces[r->pieces->size] = r->pieces;
  }
  r->next = w->idle;
  w->idle = r;
}

static void net_reserve(ProcessWorld *base, size_t pieces, size_t messages) {
  NetWorld *w = (NetWorld *)base;
  for (size_t i = 0; i < messages && pieces > 1; i++) make_pieces(w, size_for(pieces));
  for (size_t i = 0; i <= messages / NET_REQUESTS; i++) make_requests(w);
}

// Receives from any rank --------------------------------------------------------------------------------------------

static void list_both(NetWorld *w, NetRequest *r) {
  NetRequest **link = &w->both;
  while (*link) link = &(*link)->next;
  *link = r;
  r->next = NULL;
  r->is_both = true;
}

static void unlist_both(NetWorld *w, NetRequest *r) {
  NetRequest **link = &w->both;
  while (*link && *link != r) link = &(*link)->next;
  if (*link) *link = r->next;
  r->is_both = false;
}

// Those that the links have not brought: has UCX? The oldest is asked for first, so the order of a rank's messages is
// kept.
static int look_at_both(NetWorld *w) {
  for (NetRequest *r = w->both, *next; r; r = next) {
    next = r->next;
    if (r->link.entry.list) {
      int status = net_shared_take(w->shared, r->context, r->tag, pieces_of(r), r->count, &r->shared);
      if (status < 0) return status;
      if (!status) continue;
      links_forget(w->links, &r->link, -1, true);
      r->is_shared = true;
    }
    unlist_both(w, r);
  }
  return 0;
}

// Messages ----------------------------------------------------------------------------------------------------------

// What an error of a connection is about.
static int blame(NetWorld *w, int rank, int status, const char *words) {
  if (w->blamed < 0 && rank >= 0) w->blamed = rank;
  if (!*w->failure) snprintf(w->failure, sizeof w->failure, "%s", words);
  return status;
}

static int blame_shared(NetWorld *w, int rank, int status) {
  return status ? blame(w, rank, status, net_shared_words(w->shared, status)) : 0;
}

static int post_shared(NetWorld *w, WireKind kind, NetRequest *r) {
  r->is_shared = true;
  return net_shared_post(w->shared, kind, r->peer, r->context, r->tag, pieces_of(r), r->count, &r->shared);
}

static void post_link(NetWorld *w, WireKind kind, NetRequest *r) {
  uint64_t tag = r->context << TAG_BITS | (uint64_t)(unsigned)r->tag;
  r->link = link_message(pieces_of(r), r->count);
  if (kind == WIRE_RECEIVE) links_receive(w->links, &r->link, r->peer, tag);
  else links_send(w->links, &r->link, r->peer, tag, kind == WIRE_SYNCHRONOUS_SEND);
}

static bool is_shared(const NetWorld *w, int rank) {
  return rank < 0 ? w->is_all_shared : w->carriers[rank] == CARRIER_UCX;
}

// Done by now? Of one that has failed: the status, and whoever asks again is told again.
static int look(NetWorld *w, NetRequest *r, bool *done) {
  int is_done = 1, status = 0, rank = r->peer;
  if (r->is_shared) {
    if (r->shared) status = net_shared_test(w->shared, r->shared, r->peer, &is_done);
    *done = is_done;
    return w->leaves ? 0 : blame_shared(w, rank, status);
  }
  *done = r->link.done && r->link.status == LINK_FINE;
  if (*done) return 0;
  if (r->link.done) return blame(w, -1, NET_LENGTHS, "a message has another length than its receiver expects");
  const char *broken = links_broken(w->links, &rank, r->receives);
  return broken && !w->leaves ? blame(w, rank, NET_BROKEN, broken) : 0;
}

static int net_post(ProcessWorld *base, WireKind kind, const WirePeer *peer, const WirePiece *pieces, size_t n,
                    WireRequest *request) {
  NetWorld *w = (NetWorld *)base;
  *request = (WireRequest){0};
  if (abort_code(&base->base.abort)) return NET_CANCELED;
  NetRequest *r = take_request(w, pieces, n);
  r->peer = peer->world;
  r->receives = kind == WIRE_RECEIVE;
  r->context = peer->context.handle;
  r->tag = peer->tag;
  bool by_ucx = is_shared(w, peer->world);
  int status = by_ucx ? post_shared(w, kind, r) : 0;
  if (!by_ucx) post_link(w, kind, r);
  if (peer->world < 0 && !by_ucx && w->shared && r->link.entry.list) list_both(w, r);
  if (!status && !(by_ucx ? r->shared == NULL : r->link.done && !r->link.status)) {
    *request = (WireRequest){(uint64_t)(uintptr_t)r, 1, r->receives};
    return 0;
  }
  drop_request(w, r);
  return blame_shared(w, peer->world, status);
}

static unsigned progress(NetWorld *w, int *status) {
  unsigned moves = links_progress(w->links);
  if (w->shared) moves += net_shared_progress(w->shared);
  if (w->both) *status = look_at_both(w);
  return moves;
}

static int net_test(ProcessWorld *base, WireRequest *request, int *done) {
  NetWorld *w = (NetWorld *)base;
  NetRequest *r = (NetRequest *)(uintptr_t)request->handle;
  *done = !request->pending;
  if (*done || abort_code(&base->base.abort)) return 0;
  bool is_done;
  int status = look(w, r, &is_done), failed = 0;
  unsigned moves = 1;
  for (int i = 0; !status && !is_done && moves && i < PROGRESS_AT_ONCE; i++) {
    moves = progress(w, &failed);
    base->moved += moves;
    status = failed ? blame_shared(w, -1, failed) : look(w, r, &is_done);
  }
  if (status || !is_done) return status;
  drop_request(w, r);
  *request = (WireRequest){0};
  *done = 1;
  return 0;
}

// The pieces of one that a carrier may still read are kept until the world is destroyed.
static void net_forget(ProcessWorld *base, WireRequest *request) {
  NetWorld *w = (NetWorld *)base;
  NetRequest *r = (NetRequest *)(uintptr_t)request->handle;
  if (!request->pending) return;
  if (r->is_both) unlist_both(w, r);
  if (!r->is_shared) links_forget(w->links, &r->link, r->peer, r->receives);
  else if (r->shared) net_shared_forget(w->shared, r->shared, r->receives);
  *request = (WireRequest){0};
}

// A communicator is named by the lowest of its ranks and a number that this rank counts. The number begins anew after
// 16382 of them: a communicator is long gone then, or a program keeps more than memory has room for.
static int net_context_create(ProcessWorld *base, const int *ranks, int n, uint64_t id, WireContext *context) {
  uint64_t low = id >> 32, number = (id & UINT32_MAX) % CONTEXTS;
  context->handle = low << RANK_BITS | (number + OWN_CONTEXTS); // everybody's are before
  return 0;
}
static void net_context_free(ProcessWorld *base, WireContext *context) {}

// Failures ----------------------------------------------------------------------------------------------------------

static ErrorRank net_explain(ProcessWorld *base, int status, char *text, size_t size) {
  NetWorld *w = (NetWorld *)base;
  if (w->blamed >= 0)
    snprintf(text, size, "its connection to rank %d on %s failed: %s", w->blamed, w->hosts[w->blamed], w->failure);
  else snprintf(text, size, "%s", *w->failure ? w->failure : "the world has failed");
  return error_rank(w->blamed, w->blamed < 0 ? NULL : w->hosts[w->blamed]);
}

static void net_notify(ProcessWorld *base) {
  Notice notice = {.error = base->base.abort.error};
  net_watch_notify(((NetWorld *)base)->watch, &notice);
}

static void net_settle(ProcessWorld *base) { net_watch_settle(((NetWorld *)base)->watch); }

static int net_rank_is_gone(const ProcessWorld *base, int rank) {
  return net_watch_is_gone(((const NetWorld *)base)->watch, rank);
}

static void net_end(ProcessWorld *base, int status, const Error *error) {
  Notice notice = {.error = *error};
  net_watch_notify(((NetWorld *)base)->watch, &notice);
  _exit(status);
}

// World -------------------------------------------------------------------------------------------------------------

// What this rank has sent has gone, then all say that they are done. Nobody closes a connection before.
static void net_leave(ProcessWorld *base) {
  NetWorld *w = (NetWorld *)base;
  Backoff backoff = {0};
  int said = 0, status = 0;
  process_lock(base);
  w->leaves = true;
  void *flush = abort_code(&base->base.abort) || !w->shared ? NULL : net_shared_flush(w->shared);
  process_unlock(base);
  while (!abort_code(&base->base.abort) && !net_watch_left(w->watch)) {
    int is_done = 1;
    process_lock(base);
    progress(w, &status);
    if (flush) net_shared_test(w->shared, flush, -1, &is_done);
    if (is_done) flush = NULL;
    bool is_idle = links_are_idle(w->links);
    process_unlock(base);
    if (!flush && is_idle && !said) net_watch_leave(w->watch), said = 1;
    process_pause(base, &backoff);
  }
  if (flush) net_shared_forget(w->shared, flush, false);
}

static void net_world_destroy(ProcessWorld *base) {
  NetWorld *w = (NetWorld *)base;
  bool has_failed = abort_code(&base->base.abort) != 0;
  if (!has_failed) {
    heartbeats_forget(base);
    departures_forget(base);
  }
  if (w->shared) net_shared_end(w->shared, has_failed);
  bool silent = net_watch_met_silence(w->watch);
  net_watch_destroy(w->watch);
  net_shared_close(w->shared, silent);
  w->shared = NULL;
  net_close(w);
  process_world_free(base);
  free(w);
}

void net_close(NetWorld *w) {
  net_shared_close(w->shared, false);
  links_destroy(w->links);
  for (NetRequests *all = w->requests, *next; all; all = next) {
    next = all->next;
    free(all);
  }
  for (NetPieces *all = w->pieces, *next; all; all = next) {
    next = all->all;
    free(all);
  }
  free(w->carriers);
  free(w->hosts);
}

const Wire net_wire = {
    .name = "net",
    .post = net_post,
    .test = net_test,
    .forget = net_forget,
    .reserve = net_reserve,
    .context_create = net_context_create,
    .context_free = net_context_free,
    .explain = net_explain,
    .settle = net_settle,
    .notify = net_notify,
    .rank_is_gone = net_rank_is_gone,
    .leave = net_leave,
    .world_destroy = net_world_destroy,
    .end = net_end,
};
