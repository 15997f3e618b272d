// The wire of UCX: tagged messages. A tag of 64 bits has the context, the rank that sends, and the tag of the call, and
// is known to the ranks of this world only (net_key.c).
//
// Failures: shared memory and TCP move bytes only while both sides make progress. So when the world has failed, and
// with it all calls, no memory of a caller is touched any more: no thread makes progress from then on. UCX ends sends
// to a peer that is gone, but never receives from it: those are found here; and who died is mostly known earlier, by
// the watch (net_watch.h).
//
// So endpoints are made without UCX's error handling: with it UCX lets nobody write into a receiver's memory, and
// copies all that TCP brings once more. A broken connection is reported without it, too. An adapter of InfiniBand or
// RoCE moves memory while nobody makes progress; where the user lets UCX have one, endpoints have error handling.
#ifdef PLAIT_UCX
#include "base/fault.h"
#include "comm/net_world.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OWN_CONTEXTS = 2, CONTEXTS = (1 << (CONTEXT_BITS - RANK_BITS)) - OWN_CONTEXTS };
enum { PROGRESS_AT_ONCE = 16 }; // while bytes move: about a MiB of TCP's, during which the lock is held

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
  size_t bytes = sizeof(NetPieces) + ((size_t)1 << size) * sizeof(ucp_dt_iov_t);
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

static NetRequest *take_request(NetWorld *w, size_t pieces) {
  if (!w->idle) make_requests(w);
  NetRequest *r = w->idle;
  w->idle = r->next;
  r->pieces = pieces > 1 ? take_pieces(w, pieces) : NULL;
  return r;
}

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

// Messages ----------------------------------------------------------------------------------------------------------

static ucp_tag_t tag_of(const WirePeer *peer, int sender) {
  return peer->context.handle << (RANK_BITS + TAG_BITS) | (ucp_tag_t)(unsigned)sender << TAG_BITS |
         (ucp_tag_t)(unsigned)peer->tag;
}

// What an error of a connection is about.
static int blame(NetWorld *w, int rank, ucs_status_t status) {
  if (w->blamed < 0 && rank >= 0) w->blamed = rank;
  return status;
}

static void *post(NetWorld *w, WireKind kind, const WirePeer *peer, void *data, size_t count,
                  const ucp_request_param_t *how) {
  static const ucp_tag_t any = ~((((ucp_tag_t)1 << RANK_BITS) - 1) << TAG_BITS);
  if (kind == WIRE_RECEIVE)
    return w->ucx->ucp_tag_recv_nbx(w->worker, data, count, tag_of(peer, peer->world < 0 ? 0 : peer->world) ^ w->key,
                                    peer->world < 0 ? any : ~(ucp_tag_t)0, how);
  ucs_status_t status = net_connect_peer(w, peer->world);
  if (status != UCS_OK) return UCS_STATUS_PTR(status);
  ucp_ep_h to = w->peers[peer->world].endpoint;
  ucp_tag_t tag = tag_of(peer, w->base.rank) ^ w->peers[peer->world].key;
  return kind == WIRE_SEND ? w->ucx->ucp_tag_send_nbx(to, data, count, tag, how)
                           : w->ucx->ucp_tag_send_sync_nbx(to, data, count, tag, how);
}

static int net_post(ProcessWorld *base, WireKind kind, const WirePeer *peer, const Piece *pieces, size_t n,
                    WireRequest *request) {
  NetWorld *w = (NetWorld *)base;
  ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE, .memory_type = UCS_MEMORY_TYPE_HOST};
  *request = (WireRequest){0};
  if (abort_code(&base->base.abort)) return UCS_ERR_CANCELED;
  NetRequest *r = take_request(w, n);
  void *data = pieces->data;
  size_t count = pieces->bytes;
  if (n > 1) {
    for (size_t i = 0; i < n; i++) r->pieces->list[i] = (ucp_dt_iov_t){pieces[i].data, pieces[i].bytes};
    how.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    how.datatype = UCP_DATATYPE_IOV;
    data = r->pieces->list;
    count = n;
  }
  r->peer = peer->world;
  r->receives = kind == WIRE_RECEIVE;
  r->ucx = post(w, kind, peer, data, count, &how);
  if (UCS_PTR_IS_PTR(r->ucx)) {
    *request = (WireRequest){(uint64_t)(uintptr_t)r, 1, r->receives};
    return UCS_OK;
  }
  ucs_status_t status = UCS_PTR_RAW_STATUS(r->ucx);
  drop_request(w, r);
  return status == UCS_OK ? UCS_OK : blame(w, peer->world, status);
}

static int net_test(ProcessWorld *base, WireRequest *request, int *done) {
  NetWorld *w = (NetWorld *)base;
  NetRequest *r = (NetRequest *)(uintptr_t)request->handle;
  *done = !request->pending;
  if (*done || abort_code(&base->base.abort)) return UCS_OK;
  ucs_status_t status = w->ucx->ucp_request_check_status(r->ucx);
  unsigned before = base->moved;
  for (int i = 0, moves = 1; status == UCS_INPROGRESS && moves && i < PROGRESS_AT_ONCE; i++) {
    moves = w->ucx->ucp_worker_progress(w->worker) != 0;
    base->moved += (unsigned)moves;
    status = w->ucx->ucp_request_check_status(r->ucx);
  }
  net_strangers_look(w, base->moved - before);
  if (status == UCS_INPROGRESS)
    return r->peer >= 0 && w->peers[r->peer].failed ? blame(w, r->peer, w->peers[r->peer].failed) : UCS_OK;
  if (status != UCS_OK) return blame(w, r->peer, status); // and whoever asks again is told again
  w->ucx->ucp_request_free(r->ucx);
  drop_request(w, r);
  *request = (WireRequest){0};
  *done = 1;
  return UCS_OK;
}

// The pieces of one that UCX may still read are kept until the world is destroyed.
static void net_forget(ProcessWorld *base, WireRequest *request) {
  NetWorld *w = (NetWorld *)base;
  NetRequest *r = (NetRequest *)(uintptr_t)request->handle;
  if (!request->pending) return;
  if (r->receives) w->ucx->ucp_request_cancel(w->worker, r->ucx);
  w->ucx->ucp_request_free(r->ucx);
  *request = (WireRequest){0};
}

// A communicator is named by the lowest of its ranks and a number that this rank counts. The number begins anew after
// 16382 of them: a communicator is long gone then, or a program keeps more than memory has room for.
static int net_context_create(ProcessWorld *base, const int *ranks, int n, uint64_t id, WireContext *context) {
  uint64_t low = id >> 32, number = (id & UINT32_MAX) % CONTEXTS;
  context->handle = low << RANK_BITS | (number + OWN_CONTEXTS); // everybody's are before
  return UCS_OK;
}
static void net_context_free(ProcessWorld *base, WireContext *context) {}

// Failures ----------------------------------------------------------------------------------------------------------

static int net_explain(ProcessWorld *base, int status, char *text, size_t size) {
  NetWorld *w = (NetWorld *)base;
  const char *words = w->ucx->ucs_status_string((ucs_status_t)status);
  if (w->blamed >= 0)
    snprintf(text, size, "its connection to rank %d on %s failed: %s", w->blamed, w->hosts[w->blamed], words);
  else snprintf(text, size, "%s", words);
  return w->blamed;
}

static void net_notify(ProcessWorld *base) {
  Abort *abort = &base->base.abort;
  Notice notice = {.code = abort_code(abort), .rank = abort->rank};
  memcpy(notice.message, abort->error.message, sizeof notice.message);
  net_watch_notify(((NetWorld *)base)->watch, &notice);
}

static void net_settle(ProcessWorld *base) { net_watch_settle(((NetWorld *)base)->watch); }

static int net_rank_is_gone(const ProcessWorld *base, int rank) {
  return net_watch_is_gone(((const NetWorld *)base)->watch, rank);
}

static void net_end(ProcessWorld *base, int status, const char *message) {
  Notice notice = {.code = PLAIT_FAILED, .rank = -1};
  snprintf(notice.message, sizeof notice.message, "%.1000s", message);
  net_watch_notify(((NetWorld *)base)->watch, &notice);
  _exit(status);
}

// World -------------------------------------------------------------------------------------------------------------

// What this rank has sent has arrived, then all say that they are done. Nobody closes a connection before.
static void net_leave(ProcessWorld *base) {
  NetWorld *w = (NetWorld *)base;
  ucp_request_param_t none = {0};
  Backoff backoff = {0};
  int said = 0;
  process_lock(base);
  void *flush = abort_code(&base->base.abort) ? NULL : w->ucx->ucp_worker_flush_nbx(w->worker, &none);
  process_unlock(base);
  while (!abort_code(&base->base.abort) && !net_watch_left(w->watch)) {
    process_lock(base);
    w->ucx->ucp_worker_progress(w->worker);
    int done = !UCS_PTR_IS_PTR(flush) || w->ucx->ucp_request_check_status(flush) != UCS_INPROGRESS;
    process_unlock(base);
    if (done && !said) net_watch_leave(w->watch), said = 1;
    process_pause(base, &backoff);
  }
  if (UCS_PTR_IS_PTR(flush)) w->ucx->ucp_request_free(flush);
}

// UCX ends a connection over TCP with a message, and waits until the system takes it: for minutes, where nothing gets
// through to the other side any more and earlier messages have filled the socket. Such a worker is left as it is.
// Nobody advances it, so it writes nowhere. The list is for leak checkers.
static void abandon(NetWorld *w) {
  static struct Abandoned { ucp_worker_h worker; ucp_context_h context; struct Abandoned *next; } *all;
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  struct Abandoned *one = xcalloc(1, sizeof *one);
  pthread_mutex_lock(&mutex);
  *one = (struct Abandoned){w->worker, w->context, all};
  all = one;
  pthread_mutex_unlock(&mutex);
  w->worker = NULL;
  w->context = NULL;
}

static void net_world_destroy(ProcessWorld *base) {
  NetWorld *w = (NetWorld *)base;
  if (!abort_code(&base->base.abort)) {
    heartbeats_forget(base);
    departures_forget(base);
  }
  net_strangers_end(w);
  bool silent = net_watch_met_silence(w->watch);
  net_watch_destroy(w->watch);
  if (silent) abandon(w);
  net_close(w);
  process_world_free(base);
  free(w);
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

// UCX ---------------------------------------------------------------------------------------------------------------

static int failed(const NetWorld *w, const char *what, ucs_status_t status, Error *error) {
  return error_set(error, PLAIT_FAILED, "rank %d on %s: UCX %s: %s", w->base.rank, w->base.host, what,
                   w->ucx->ucs_status_string(status));
}

// What may carry messages, unless the user says so. UCX obeys whoever connects to its TCP port, up to writing where the
// stranger says, so there is none where shared memory reaches all ranks; its segments are open to their owner and the
// owner's group. Never xpmem: another process's memory is read by system calls, since they report that it is gone.
static const char *transports(bool one_machine) {
  return FAULT(one_machine_opens_ports, one_machine, false) ? "self,posix,sysv,cma" : "^xpmem";
}

int net_open(NetWorld *w, const char *interface, bool one_machine, Error *error) {
  ucp_config_t *config;
  ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                         .features = UCP_FEATURE_TAG, .estimated_num_eps = (size_t)w->base.base.ranks};
  ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                .thread_mode = UCS_THREAD_MODE_SERIALIZED};
  ucs_status_t status = w->ucx->ucp_config_read(NULL, NULL, &config);
  if (status != UCS_OK) return failed(w, "cannot read its settings", status, error);
  if (!getenv("UCX_TLS")) status = w->ucx->ucp_config_modify(config, "TLS", transports(one_machine));
  if (status == UCS_OK && !getenv("UCX_NET_DEVICES"))
    status = w->ucx->ucp_config_modify(config, "NET_DEVICES", interface);
  if (status == UCS_OK)
    status = w->ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &w->context);
  w->ucx->ucp_config_release(config);
  if (status == UCS_OK) status = w->ucx->ucp_worker_create(w->context, &worker, &w->worker);
  return status == UCS_OK ? PLAIT_OK : failed(w, "cannot start", status, error);
}

// From within ucp_worker_progress, so with the lock: it only takes note.
static void connection_failed(void *peer, ucp_ep_h endpoint, ucs_status_t status) {
  ((NetPeer *)peer)->failed = status;
}

// When the first message goes to it. Many ranks never talk to each other. When the world ends its endpoints end with
// the worker: in net_leave everything has been sent, and after a failure nobody may make progress for them.
ucs_status_t net_connect_peer(NetWorld *w, int rank) {
  NetPeer *peer = &w->peers[rank];
  ucp_ep_params_t params = {
      .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
      .address = peer->address,
      .err_mode = ucx_uses_adapters() ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE,
      .err_handler = {connection_failed, peer}};
  if (peer->endpoint) return UCS_OK;
  ucs_status_t status = w->ucx->ucp_ep_create(w->worker, &params, &peer->endpoint);
  peer->key = net_key(w, rank);
  return status;
}

void net_close(NetWorld *w) {
  if (w->worker) w->ucx->ucp_worker_destroy(w->worker);
  if (w->context) w->ucx->ucp_cleanup(w->context);
  for (NetRequests *all = w->requests, *next; all; all = next) {
    next = all->next;
    free(all);
  }
  for (NetPieces *all = w->pieces, *next; all; all = next) {
    next = all->all;
    free(all);
  }
  for (int r = 0; w->peers && r < w->base.base.ranks; r++) free(w->peers[r].address);
  free(w->peers);
  free(w->hosts);
}
#endif
