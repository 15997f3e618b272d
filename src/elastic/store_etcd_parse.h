// What goes to etcd and comes back through its v3 JSON gateway, and the addresses of --rdzv etcd://…: texts only, no
// sockets. 64-bit numbers of that JSON are strings, and keys and values are in base64.
#pragma once
#include "base/endpoint.h"
#include "elastic/store.h"

enum { ETCD_ENDPOINTS = 16, ETCD_NAME = 256, ETCD_PORT = 2379 };

// Of "etcd://user:password@hostA:2379,hostB" and "etcds://…".
typedef struct EtcdUrl {
  bool tls;
  int count;
  Endpoint endpoint[ETCD_ENDPOINTS]; // each has a port
  char user[ETCD_NAME], password[ETCD_NAME];                          // "": none
} EtcdUrl;

bool etcd_is_url(const char *text);
int etcd_url_parse(const char *text, EtcdUrl *url, Error *error); // its error messages never have the password
// The same text for messages and files: without user and password.
void etcd_url_describe(const char *text, char *out, size_t size);

// "plait/ID/": what all keys of a job begin with. A / of the id is written so that no job's keys are below another's.
char *etcd_prefix(const char *id); // the caller frees it, as all texts below

char *etcd_base64(const void *data, size_t bytes);
// NULL: it is not base64. The caller frees it; a NUL follows.
void *etcd_unbase64(const char *text, size_t length, size_t *bytes);

// Requests --------------------------------------------------------------------------------------------------------

char *etcd_ask_get(const char *key);
char *etcd_ask_leased(const char *prefix); // the keys that begin so, without values
char *etcd_ask_set(const char *key, uint64_t version, const void *data, size_t bytes, uint64_t lease);
char *etcd_ask_grant(double seconds);      // whole ones, at least 1
char *etcd_ask_lease(uint64_t lease);      // to renew and to revoke it
char *etcd_ask_token(const char *user, const char *password);
char *etcd_ask_watch(const char *key, uint64_t revision); // of changes from this revision on

// Answers ---------------------------------------------------------------------------------------------------------
// 1: *… hold what it says; 0: it is no such answer, or has more than STORE_VALUE bytes.

int etcd_take_get(const char *text, size_t bytes, StoreValue *now, uint64_t *revision);
int etcd_take_set(const char *text, size_t bytes, bool *done, StoreValue *now); // done: *now has only the version
int etcd_take_lease(const char *text, size_t bytes, uint64_t *lease, double *seconds); // seconds 0: it has lapsed
int etcd_take_token(const char *text, size_t bytes, char token[ETCD_NAME]);
// others: a key has a lease that is neither of these.
int etcd_take_leased(const char *text, size_t bytes, uint64_t one, uint64_t other, bool *others);
// A line of a watch. changed: the key has; over: the watch has ended.
int etcd_take_watch(const char *text, size_t bytes, bool *changed, bool *over);

typedef enum EtcdTrouble {
  ETCD_STRANGE,    // no answer of etcd
  ETCD_BUSY,       // no leader, or it takes too long: try again
  ETCD_STALE,      // the token is not known (any more): authenticate again
  ETCD_LEASE_GONE,
  ETCD_NO_AUTH,    // it asks nobody who they are
  ETCD_REFUSED     // this user may not, or a request that it does not take
} EtcdTrouble;
// Of an answer whose HTTP status is not 200; its sentence, made printable, too.
EtcdTrouble etcd_take_trouble(const char *text, size_t bytes, char *sentence, size_t size);
