// Tagged messages of UCX. A tag of 64 bits has the context, the rank that sends, and the tag of the call, and a key is
// added that only the ranks of this world know: UCX asks nobody who they are, and who reaches it may send messages of
// any tag. What strangers send matches no receive, and is dropped and counted. This does not protect from a sender that
// uses UCX's own protocol, which writes where the sender says; so plait opens no port of UCX unless run.wire is ucx.
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
#include "comm/net_shared.h"
#include "base/fault.h"
#include "comm/net.h"
#include "comm/net_tag.h"
#include "comm/net_ucx.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOVES_PER_LOOK = 16 }; // about a MiB of TCP's: UCX_TCP_RX_SEG_SIZE each
_Static_assert(sizeof(WirePiece) == sizeof(ucp_dt_iov_t) &&
                   offsetof(WirePiece, data) == offsetof(ucp_dt_iov_t, buffer) &&
                   offsetof(WirePiece, bytes) == offsetof(ucp_dt_iov_t, length),
               "pieces of the wire are UCX's");

typedef struct SharedPeer {
  ucp_ep_h endpoint;   // NULL: nothing was sent to it yet
  void *address;       // of its worker
  ucs_status_t failed; // what UCX has said of the connection; UCS_OK: nothing
  ucp_tag_t key;       // of messages to it; once there is an endpoint
} SharedPeer;

struct NetShared {
  const Ucx *ucx;
  ucp_context_h context;
  ucp_worker_h worker;
  int rank, ranks;
  const char *host;
  SharedPeer *peers;     // (ranks)
  Secret secret;
  ucp_tag_t key;         // of messages to this rank
  uint64_t strangers;    // messages without it that were dropped
  unsigned moves, looks; // steps of progress since the last look for them; the check bit of that look
};

bool net_shared_is_built(void) { return true; }

int net_shared_load(Error *error) {
  const Ucx *ucx;
  return ucx_load(&ucx, error);
}

const char *net_version(void) {
  const Ucx *ucx;
  Error error = {0};
  return ucx_load(&ucx, &error) ? NULL : ucx->ucp_get_version_string();
}

// Opening -----------------------------------------------------------------------------------------------------------

static int failed(const NetShared *s, const char *what, ucs_status_t status, Error *error) {
  return error_set_about(error, PLAIT_FAILED, &(ErrorFacts){.rank = error_rank(s->rank, s->host)},
                         "rank %d on %s: UCX %s: %s", s->rank, s->host, what, s->ucx->ucs_status_string(status));
}

// What may carry messages. UCX obeys whoever connects to its TCP port, up to writing where the stranger says, so there
// is none unless the user asks for it; segments of shared memory are open to their owner and the owner's group. Never
// xpmem: another process's memory is read by system calls, since they report that it is gone.
static const char *transports(bool memory_only) {
  return FAULT(one_machine_opens_ports, memory_only, false) ? "self,posix,sysv,cma" : "^xpmem";
}

static ucs_status_t configure(NetShared *s, const NetSharedTerms *terms, ucp_config_t *config) {
  ucs_status_t status = UCS_OK;
  if (!terms->is_users || !getenv("UCX_TLS"))
    status = s->ucx->ucp_config_modify(config, "TLS", transports(terms->memory_only));
  if (status == UCS_OK && !getenv("UCX_NET_DEVICES"))
    status = s->ucx->ucp_config_modify(config, "NET_DEVICES", terms->interface);
  return status;
}

int net_shared_open(const NetSharedTerms *terms, NetShared **shared, Error *error) {
  NetShared *s = *shared = xcalloc(1, sizeof *s);
  ucp_config_t *config;
  ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                         .features = UCP_FEATURE_TAG, .estimated_num_eps = (size_t)terms->ranks};
  ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                .thread_mode = UCS_THREAD_MODE_SERIALIZED};
  s->rank = terms->rank;
  s->ranks = terms->ranks;
  s->host = terms->host;
  s->peers = xcalloc((size_t)terms->ranks, sizeof *s->peers);
  int code = ucx_load(&s->ucx, error);
  if (code) return code;
  ucs_status_t status = s->ucx->ucp_config_read(NULL, NULL, &config);
  if (status != UCS_OK) return failed(s, "cannot read its settings", status, error);
  status = configure(s, terms, config);
  if (status == UCS_OK)
    status = s->ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &s->context);
  s->ucx->ucp_config_release(config);
  if (status == UCS_OK) status = s->ucx->ucp_worker_create(s->context, &worker, &s->worker);
  return status == UCS_OK ? PLAIT_OK : failed(s, "cannot start", status, error);
}

int net_shared_address(NetShared *s, void **address, size_t *bytes, Error *error) {
  ucp_address_t *own;
  if (s->ucx->ucp_worker_get_address(s->worker, &own, bytes) != UCS_OK)
    return error_set(error, PLAIT_FAILED, "UCX has no address");
  *address = memcpy(xcalloc(*bytes, 1), own, *bytes);
  s->ucx->ucp_worker_release_address(s->worker, own);
  return PLAIT_OK;
}

void net_shared_set_peer(NetShared *s, int rank, const void *address, size_t bytes) {
  s->peers[rank].address = memcpy(xcalloc(bytes, 1), address, bytes);
}

// An HMAC with the world's secret over the receiver's rank; the tag has the sender's.
static ucp_tag_t key_of(const NetShared *s, int rank) {
  const uint64_t words[] = {(uint64_t)rank};
  unsigned char proof[PROOF_BYTES];
  ucp_tag_t key;
  secret_proof(&s->secret, "plait: messages of UCX", words, 1, proof);
  memcpy(&key, proof, sizeof key);
  return FAULT(tags_have_no_key, key, 0);
}

void net_shared_begin(NetShared *s, const Secret *secret) {
  s->secret = *secret;
  s->key = key_of(s, s->rank);
}

// UCX ends a connection over TCP with a message, and waits until the system takes it: for minutes, where nothing gets
// through to the other side any more and earlier messages have filled the socket. Such a worker is left as it is.
// Nobody advances it, so it writes nowhere. The list is for leak checkers.
static void abandon_worker(NetShared *s) {
  static struct Abandoned { ucp_worker_h worker; ucp_context_h context; struct Abandoned *next; } *all;
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  struct Abandoned *one = xcalloc(1, sizeof *one);
  pthread_mutex_lock(&mutex);
  *one = (struct Abandoned){s->worker, s->context, all};
  all = one;
  pthread_mutex_unlock(&mutex);
  s->worker = NULL;
  s->context = NULL;
}

void net_shared_close(NetShared *s, bool abandon) {
  if (!s) return;
  if (abandon && s->worker) abandon_worker(s);
  if (s->worker) s->ucx->ucp_worker_destroy(s->worker);
  if (s->context) s->ucx->ucp_cleanup(s->context);
  for (int r = 0; r < s->ranks; r++) free(s->peers[r].address);
  free(s->peers);
  free(s);
}

// Messages ----------------------------------------------------------------------------------------------------------

// From within ucp_worker_progress, so with the lock: it only takes note.
static void connection_failed(void *peer, ucp_ep_h endpoint, ucs_status_t status) {
  ((SharedPeer *)peer)->failed = status;
}

// When the first message goes to it. Many ranks never talk to each other. When the world ends its endpoints end with
// the worker: when ranks leave everything has been sent, and after a failure nobody may make progress for them.
static ucs_status_t connect_peer(NetShared *s, int rank) {
  SharedPeer *peer = &s->peers[rank];
  ucp_ep_params_t params = {
      .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
      .address = peer->address,
      .err_mode = ucx_uses_adapters() ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE,
      .err_handler = {connection_failed, peer}};
  if (peer->endpoint) return UCS_OK;
  ucs_status_t status = s->ucx->ucp_ep_create(s->worker, &params, &peer->endpoint);
  peer->key = key_of(s, rank);
  return status;
}

static ucp_tag_t tag_of(uint64_t context, int tag, int sender) {
  return context << (RANK_BITS + TAG_BITS) | (ucp_tag_t)(unsigned)sender << TAG_BITS | (ucp_tag_t)(unsigned)tag;
}
static const ucp_tag_t any_sender = ~((((ucp_tag_t)1 << RANK_BITS) - 1) << TAG_BITS);

// How a message of these pieces is described: its memory, and how many elements of the datatype there are.
static void *describe(const WirePiece *pieces, size_t n, ucp_request_param_t *how, size_t *count) {
  *how = (ucp_request_param_t){.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE, .memory_type = UCS_MEMORY_TYPE_HOST};
  *count = n == 1 ? pieces->bytes : n;
  if (n == 1) return pieces->data;
  how->op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
  how->datatype = UCP_DATATYPE_IOV;
  return (void *)(uintptr_t)pieces;
}

static int begun(void *result, void **request) {
  *request = UCS_PTR_IS_PTR(result) ? result : NULL;
  return *request ? UCS_OK : UCS_PTR_RAW_STATUS(result);
}

int net_shared_post(NetShared *s, WireKind kind, int rank, uint64_t context, int tag, const WirePiece *pieces, size_t n,
                    void **request) {
  ucp_request_param_t how;
  size_t count;
  void *data = describe(pieces, n, &how, &count);
  *request = NULL;
  if (kind == WIRE_RECEIVE)
    return begun(s->ucx->ucp_tag_recv_nbx(s->worker, data, count, tag_of(context, tag, rank < 0 ? 0 : rank) ^ s->key,
                                          rank < 0 ? any_sender : ~(ucp_tag_t)0, &how),
                 request);
  ucs_status_t status = connect_peer(s, rank);
  if (status != UCS_OK) return status;
  ucp_ep_h to = s->peers[rank].endpoint;
  ucp_tag_t mine = tag_of(context, tag, s->rank) ^ s->peers[rank].key;
  return begun(kind == WIRE_SEND ? s->ucx->ucp_tag_send_nbx(to, data, count, mine, &how)
                                 : s->ucx->ucp_tag_send_sync_nbx(to, data, count, mine, &how),
               request);
}

int net_shared_take(NetShared *s, uint64_t context, int tag, const WirePiece *pieces, size_t n, void **request) {
  ucp_request_param_t how;
  ucp_tag_recv_info_t info;
  size_t count;
  void *data = describe(pieces, n, &how, &count);
  ucp_tag_message_h message =
      s->ucx->ucp_tag_probe_nb(s->worker, tag_of(context, tag, 0) ^ s->key, any_sender, 1, &info);
  if (!message) return 0;
  int status = begun(s->ucx->ucp_tag_msg_recv_nbx(s->worker, data, count, message, &how), request);
  return status == UCS_OK ? 1 : status;
}

int net_shared_test(NetShared *s, void *request, int rank, int *done) {
  ucs_status_t status = s->ucx->ucp_request_check_status(request);
  *done = status == UCS_OK;
  if (status == UCS_INPROGRESS) return rank >= 0 ? s->peers[rank].failed : UCS_OK;
  if (*done) s->ucx->ucp_request_free(request);
  return status; // and whoever asks again is told again
}

// The pieces of one that UCX may still read are kept until the world is destroyed.
void net_shared_forget(NetShared *s, void *request, bool receives) {
  if (receives) s->ucx->ucp_request_cancel(s->worker, request);
  s->ucx->ucp_request_free(request);
}

const char *net_shared_words(NetShared *s, int status) { return s->ucx->ucs_status_string((ucs_status_t)status); }

void *net_shared_flush(NetShared *s) {
  ucp_request_param_t none = {0};
  void *flush = s->ucx->ucp_worker_flush_nbx(s->worker, &none);
  return UCS_PTR_IS_PTR(flush) ? flush : NULL;
}

// Strangers ---------------------------------------------------------------------------------------------------------

// Those that have come and whose tag has this bit wrong: in tags of ranks it is the key's.
static void drop(NetShared *s, ucp_tag_t bit) {
  ucp_request_param_t none = {0};
  ucp_tag_recv_info_t info;
  ucp_tag_message_h message;
  if (FAULT(strangers_are_kept, false, true)) return;
  while ((message = s->ucx->ucp_tag_probe_nb(s->worker, ~s->key & bit, bit, 1, &info))) {
    void *request = s->ucx->ucp_tag_msg_recv_nbx(s->worker, NULL, 0, message, &none); // it is too long for no memory
    if (UCS_PTR_IS_PTR(request)) s->ucx->ucp_request_free(request);                   // the rest of it goes likewise
    s->strangers++;
  }
}

unsigned net_shared_progress(NetShared *s) {
  unsigned moves = s->ucx->ucp_worker_progress(s->worker) != 0;
  s->moves += moves;
  if (s->moves < MOVES_PER_LOOK) return moves;
  s->moves = 0;
  s->looks = (s->looks + 1) % CHECK_BITS;
  drop(s, (ucp_tag_t)1 << (64 - CHECK_BITS + s->looks));
  return moves;
}

void net_shared_end(NetShared *s, bool has_failed) {
  for (int i = 0; i < CHECK_BITS && !has_failed; i++) drop(s, (ucp_tag_t)1 << (64 - CHECK_BITS + i));
  if (s->strangers)
    fprintf(stderr,
            "note: rank %d on %s has dropped %llu message%s of UCX from somebody who is not of this run\n", s->rank,
            s->host, (unsigned long long)s->strangers, s->strangers > 1 ? "s" : "");
}

uint64_t net_shared_strangers(const NetShared *s) { return s->strangers; }

void net_shared_describe(NetShared *s, int rank, char *text, size_t size) {
  char *printed = NULL;
  size_t bytes = 0;
  FILE *file = open_memstream(&printed, &bytes);
  CHECK(file);
  connect_peer(s, rank);
  s->ucx->ucp_ep_print_info(s->peers[rank].endpoint, file);
  fclose(file);
  *text = 0;
  for (char *lane = strstr(printed, "lane["); lane; lane = strstr(lane + 1, "lane[")) {
    char name[64] = "";
    if (sscanf(lane, "lane[%*d]: %*d:%63s", name) == 1 && strlen(text) + strlen(name) + 2 < size)
      sprintf(text + strlen(text), "%s%s", *text ? " " : "", name);
  }
  free(printed);
}
#endif
