// What a message of UCX needs to be received. UCX asks nobody who they are: who reaches its port may send messages of
// any tag. So tags of messages to a rank have a key added, which strangers do not know. What they send matches no
// receive, and is dropped and counted. This does not protect from a sender that uses UCX's own protocol, which writes
// where the sender says. The key is an HMAC with the world's secret over the receiver's rank (the tag has the
// sender's).
#ifdef PLAIT_UCX
#include "base/fault.h"
#include "comm/net_world.h"
#include <stdio.h>
#include <string.h>

enum { MOVES_PER_LOOK = 16 }; // about a MiB of TCP's: UCX_TCP_RX_SEG_SIZE each

ucp_tag_t net_key(const NetWorld *w, int rank) {
  const uint64_t words[] = {(uint64_t)rank};
  unsigned char proof[PROOF_BYTES];
  ucp_tag_t key;
  secret_proof(&w->secret, "plait: messages of UCX", words, 1, proof);
  memcpy(&key, proof, sizeof key);
  return FAULT(tags_have_no_key, key, 0);
}

// Those that have come and whose tag has this bit wrong: in tags of ranks it is the key's.
static void drop(NetWorld *w, ucp_tag_t bit) {
  ucp_request_param_t none = {0};
  ucp_tag_recv_info_t info;
  ucp_tag_message_h message;
  if (FAULT(strangers_are_kept, false, true)) return;
  while ((message = w->ucx->ucp_tag_probe_nb(w->worker, ~w->key & bit, bit, 1, &info))) {
    void *request = w->ucx->ucp_tag_msg_recv_nbx(w->worker, NULL, 0, message, &none); // it is too long for no memory
    if (UCS_PTR_IS_PTR(request)) w->ucx->ucp_request_free(request);                   // the rest of it goes likewise
    w->strangers++;
  }
}

void net_strangers_look(NetWorld *w, unsigned moves) {
  w->moves += moves;
  if (w->moves < MOVES_PER_LOOK) return;
  w->moves = 0;
  w->looks = (w->looks + 1) % CHECK_BITS;
  drop(w, (ucp_tag_t)1 << (64 - CHECK_BITS + w->looks));
}

void net_strangers_end(NetWorld *w) {
  for (int i = 0; i < CHECK_BITS && !abort_code(&w->base.base.abort); i++)
    drop(w, (ucp_tag_t)1 << (64 - CHECK_BITS + i));
  if (w->strangers)
    fprintf(stderr,
            "note: rank %d on %s has dropped %llu message%s of UCX from somebody who is not of this run\n",
            w->base.rank, w->base.host, (unsigned long long)w->strangers, w->strangers > 1 ? "s" : "");
}
#endif
