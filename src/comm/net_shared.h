// UCX as a carrier of messages of net: shared memory between the ranks of a machine, or with run.wire: ucx all of them.
// A build without UCX has these functions, too (net_shared_none.c): there is none to open.
#pragma once
#include "comm/wire.h"
#include "net/secret.h"
#include "plait/comm.h"
#include <stdbool.h>

typedef struct NetShared NetShared;

typedef struct NetSharedTerms {
  int rank, ranks;
  const char *host;      // of this rank, for sentences; borrowed
  const char *interface; // that UCX may use
  bool memory_only;      // it opens no port; else it may use all that it has
  bool is_users;         // the user's UCX_TLS counts (run.wire: ucx)
} NetSharedTerms;

bool net_shared_is_built(void);
int net_shared_load(Error *error); // PLAIT_FAILED with what to install; PLAIT_BAD_INPUT: a build without it
int net_shared_open(const NetSharedTerms *terms, NetShared **shared, Error *error);
// How others reach this rank: malloc'ed.
int net_shared_address(NetShared *shared, void **address, size_t *bytes, Error *error);
// What a rank has told (copied). secret: of this world, before any message.
void net_shared_set_peer(NetShared *shared, int rank, const void *address, size_t bytes);
void net_shared_begin(NetShared *shared, const Secret *secret);
void net_shared_close(NetShared *shared, bool abandon); // abandon: it may not be able to end its connections

// Tags: the context and the call's, of TAG_BITS; UCX has the sender in its own.
// 0: *request is NULL where it is done, or is to be tested. Below: a code of UCX. rank: -1 receives from any.
int net_shared_post(NetShared *shared, WireKind kind, int rank, uint64_t context, int tag, const WirePiece *pieces,
                    size_t n, void **request);
// Has a message of this tag come from any rank? Then it goes to where the pieces say. 1; 0: none; below: a code.
int net_shared_take(NetShared *shared, uint64_t context, int tag, const WirePiece *pieces, size_t n, void **request);
int net_shared_test(NetShared *shared, void *request, int rank, int *done); // frees one that is done
void net_shared_forget(NetShared *shared, void *request, bool receives);
unsigned net_shared_progress(NetShared *shared); // how often something has moved
const char *net_shared_words(NetShared *shared, int status);
void *net_shared_flush(NetShared *shared); // NULL: nothing is under way; else as a request

void net_shared_end(NetShared *shared, bool has_failed); // says how many messages of strangers were dropped
uint64_t net_shared_strangers(const NetShared *shared);
void net_shared_describe(NetShared *shared, int rank, char *text, size_t size); // as UCX calls what it uses
