// A build without UCX.
#ifndef PLAIT_UCX
#include "comm/net.h"
#include "comm/net_shared.h"

bool net_shared_is_built(void) { return false; }

int net_shared_load(Error *error) {
  return error_set(
      error, PLAIT_BAD_INPUT,
      "run.wire: ucx needs UCX, without which this plait was built; leave run.wire out, or install UCX (on "
      "Debian libucx-dev) and build again, with -DPLAIT_UCX=ON to be sure");
}

int net_shared_open(const NetSharedTerms *terms, NetShared **shared, Error *error) { return net_shared_load(error); }
int net_shared_address(NetShared *shared, void **address, size_t *bytes, Error *error) { return PLAIT_FAILED; }
void net_shared_set_peer(NetShared *shared, int rank, const void *address, size_t bytes) {}
void net_shared_begin(NetShared *shared, const Secret *secret) {}
void net_shared_close(NetShared *shared, bool abandon) {}
int net_shared_post(NetShared *shared, WireKind kind, int rank, uint64_t context, int tag, const WirePiece *pieces,
                    size_t n, void **request) {
  return -1;
}
int net_shared_take(NetShared *shared, uint64_t context, int tag, const WirePiece *pieces, size_t n, void **request) {
  return 0;
}
int net_shared_test(NetShared *shared, void *request, int rank, int *done) { return -1; }
void net_shared_forget(NetShared *shared, void *request, bool receives) {}
unsigned net_shared_progress(NetShared *shared) { return 0; }
const char *net_shared_words(NetShared *shared, int status) { return "there is no UCX"; }
void *net_shared_flush(NetShared *shared) { return NULL; }
void net_shared_end(NetShared *shared, bool has_failed) {}
uint64_t net_shared_strangers(const NetShared *shared) { return 0; }
void net_shared_describe(NetShared *shared, int rank, char *text, size_t size) { *text = 0; }
const char *net_version(void) { return NULL; }
#endif
