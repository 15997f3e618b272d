// What a connection of UCX begins with where the job has a secret: UCX asks nobody who they are. The proof is an HMAC
// over the world's token, which only a holder of the secret has been told, and both ranks. Messages of one rank arrive
// in the order of sending, so a message whose sender has not proved itself by then is a stranger's.
#ifdef PLAIT_UCX
#include "comm/net_world.h"
#include <string.h>

static const char purpose[] = "plait: a connection of UCX";

ucs_status_t net_proof_send(NetWorld *w, int rank) {
  NetPeer *peer = &w->peers[rank];
  ucp_request_param_t how = {0};
  const uint64_t words[] = {w->token, (uint64_t)w->base.rank, (uint64_t)rank};
  if (!w->has_secret) return UCS_OK;
  peer->mine = (Proof){.from = (uint32_t)w->base.rank};
  secret_proof(&w->secret, purpose, words, 3, peer->mine.proof);
  peer->mine.proof[0] ^= w->spoils;
  peer->sending =
      w->ucx->ucp_tag_send_nbx(peer->endpoint, &peer->mine, sizeof peer->mine, net_proof_tag(), &how);
  ucs_status_t status = UCS_PTR_IS_ERR(peer->sending) ? UCS_PTR_STATUS(peer->sending) : UCS_OK;
  if (!UCS_PTR_IS_PTR(peer->sending)) peer->sending = NULL;
  return status;
}

static void take(NetWorld *w) {
  const Proof *p = &w->arrived;
  const uint64_t words[] = {w->token, p->from, (uint64_t)w->base.rank};
  if (p->from < (uint32_t)w->base.base.ranks && secret_proves(&w->secret, purpose, words, 3, p->proof))
    w->peers[p->from].proved = 1;
  else w->strangers++;
}

// All that have come.
static void look(NetWorld *w) {
  ucp_request_param_t how = {0};
  for (;;) {
    if (!w->arrival) {
      memset(&w->arrived, 0, sizeof w->arrived);
      void *request = w->ucx->ucp_tag_recv_nbx(w->worker, &w->arrived, sizeof w->arrived, net_proof_tag(),
                                               ~(ucp_tag_t)0, &how);
      if (UCS_PTR_IS_PTR(request)) w->arrival = request;
      else if (UCS_PTR_IS_ERR(request)) return;
    }
    if (w->arrival) {
      ucs_status_t status = w->ucx->ucp_request_check_status(w->arrival);
      if (status == UCS_INPROGRESS) return;
      w->ucx->ucp_request_free(w->arrival);
      w->arrival = NULL;
      if (status != UCS_OK) { // one of another length
        w->strangers++;
        continue;
      }
    }
    take(w);
  }
}

int net_proof_came(NetWorld *w, int rank) {
  if (w->peers[rank].proved) return 1;
  look(w);
  w->strangers += !w->peers[rank].proved;
  return w->peers[rank].proved;
}

void net_proofs_forget(NetWorld *w) {
  if (w->arrival) {
    w->ucx->ucp_request_cancel(w->worker, w->arrival);
    w->ucx->ucp_request_free(w->arrival);
    w->arrival = NULL;
  }
  for (int r = 0; r < w->base.base.ranks; r++)
    if (w->peers[r].sending) w->ucx->ucp_request_free(w->peers[r].sending), w->peers[r].sending = NULL;
}
#endif
