// A store that the supervisors of a job share: keys with values and versions, and leases. A vtable: a supervisor serves
// it itself, or etcd keeps it.
#pragma once
#include "base/error.h"
#include "net/socket.h"
#include <stdbool.h>
#include <stdint.h>

enum { STORE_KEY = 200, STORE_VALUE = 1 << 20 }; // most bytes of a key (text) and of a value

// version 0: the key does not exist. Each change of any key has a higher version than all before, so a key that was
// removed and made again is not taken for the old one.
typedef struct StoreValue { void *data; size_t bytes; uint64_t version; } StoreValue; // data: malloc'ed, the caller's

typedef struct Store Store;
struct Store {
  int (*get)(Store *store, const char *key, StoreValue *now, Error *error);
  // Sets the key where its version is still `version` (0: where it does not exist). *now: the value that the key has
  // afterwards, *done: whether it is this one. lease 0: the key stays as long as the job has a client, else it goes
  // with the lease.
  int (*compare_and_set)(Store *store, const char *key, uint64_t version, const void *data, size_t bytes,
                         uint64_t lease, bool *done, StoreValue *now, Error *error);
  // Returns when the key's version is not `version`, at the latest after so many seconds; *now tells which.
  int (*wait)(Store *store, const char *key, uint64_t version, double seconds, StoreValue *now, Error *error);
  // *lease 0: makes one. Else renews it; it becomes 0 where it has lapsed. It lapses when it was not renewed for so
  //   many seconds, or soon after the connection that made or renewed it has ended; its keys are removed then.
  int (*lease)(Store *store, uint64_t *lease, double seconds, Error *error);
  // The address of this machine by which it reaches the store.
  void (*own_address)(const Store *store, char *text, size_t size);
  void (*close)(Store *store); // frees it
  double patience;             // seconds that a call may take
};

void store_value_free(StoreValue *value); // safe on a zeroed one, and twice

// The embedded store --------------------------------------------------------------------------------------------------

typedef struct StoreServer StoreServer;

// Endpoint i of "hostA:29400,hostB:29400". 1, or 0 where there are not so many; PLAIT_BAD_INPUT.
int store_endpoint(const char *endpoints, int i, NetAddress *at, Error *error);
// PLAIT_BAD_INPUT: no endpoint, or a name that other machines are to find, and that is loopback's here.
int store_check_endpoint(const char *endpoints, int i, Error *error);
// 1: connected; 0: nobody answers within `seconds`; PLAIT_BAD_INPUT: somebody else than a store of the job `id` does.
// *refused (may be NULL): the host is there and says that nothing listens at the address.
int store_connect(const NetAddress *at, const char *id, double seconds, Store **store, bool *refused, Error *error);
// PLAIT_BAD_INPUT: not a loopback address, and not `insecure`: nothing is encrypted, nobody is asked who they are.
int store_check_address(const NetAddress *at, bool insecure, Error *error);
// Serves a store at the address from a thread. PLAIT_BAD_INPUT: as store_check_address; PLAIT_FAILED: the address is
// taken, or not this machine's.
int store_serve(const NetAddress *at, const char *id, bool insecure, StoreServer **server, Error *error);
void store_server_stop(StoreServer *server); // NULL is fine

// How machines reach and serve stores, and what time it is for them. In the functions: those above.
typedef struct StoreNetwork StoreNetwork;
struct StoreNetwork {
  double (*now)(StoreNetwork *network);
  void (*rest)(StoreNetwork *network, double seconds);
  int (*connect)(StoreNetwork *network, const NetAddress *at, const char *id, double seconds, Store **store,
                 bool *refused, Error *error);
  int (*listen)(StoreNetwork *network, const NetAddress *at); // 0: this machine could listen there; -errno
  int (*serve)(StoreNetwork *network, const NetAddress *at, const char *id, bool insecure, StoreServer **server,
               Error *error);
  void (*stop)(StoreNetwork *network, StoreServer *server); // NULL is fine
};
extern StoreNetwork store_network; // sockets, threads and clock_seconds(); tests have one of their own

// The store that the first of `endpoints` serves. Where that address is this machine's and free, this process serves
// it; *server is then not NULL, and is stopped after the store is closed. Others wait for it, at most `patience`
// seconds. PLAIT_BAD_INPUT: a wrong list, another job; PLAIT_FAILED: nobody answers.
int store_open(const char *endpoints, const char *id, bool insecure, double patience, StoreServer **server,
               Store **store, Error *error);

// etcd ----------------------------------------------------------------------------------------------------------------

// The store that etcd 3.4 or later keeps for the job `id`, at "etcd://hostA:2379,hostB:2379" (etcds://: by TLS, with
// the files that ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY name). User and password: ETCDCTL_USER, or before the
// hosts. Of those who had a lease the last to close it removes the keys of the job; where all are killed, they lapse
// within 15 s. PLAIT_BAD_INPUT: a wrong
// address, a user that etcd refuses, no TLS, no libcurl; PLAIT_FAILED: it does not answer within `patience` seconds.
int store_etcd_open(const char *endpoints, const char *id, double patience, Store **store, Error *error);
