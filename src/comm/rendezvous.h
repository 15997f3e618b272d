// How the ranks of a world that net makes find each other: each gives a record, and gets everybody's, as often as
// all ranks want to. Here rank 0 gathers them at an address that all know. A store with get, compare-and-set, wait and
// leases can take its place: a rank sets the key of its own record, and waits for all others'.
#pragma once
#include "comm/net.h"
#include "net/socket.h"
#include "net/secret.h"

typedef struct Rendezvous Rendezvous;
struct Rendezvous {
  // Waits until all ranks have called it. records: (ranks) malloc'ed, of lengths[r] bytes each.
  int (*exchange)(Rendezvous *rendezvous, const void *mine, size_t bytes, void **records, size_t *lengths,
                  Error *error);
  void (*close)(Rendezvous *rendezvous); // frees it
};

// Rank 0 listens at the address, or at the next free port. Others look there for a greeting of the same run: what else
// listens there, as torchrun's store does, says nothing, and is told nothing.
// secret (borrowed; may be NULL): who does not have it is not let in; all goes by TLS where it encrypts.
int rendezvous_tcp(const NetOptions *options, const NetAddress *address, const Secret *secret, Rendezvous **rendezvous,
                   Error *error);
