// HTTP to etcd's JSON gateway, by libcurl: one call at a time, and one watch beside it. What they say is others'
// matter.
#pragma once
#include "elastic/store_etcd_parse.h"

typedef struct EtcdHttp EtcdHttp;

typedef struct EtcdAnswer {
  long status; // of HTTP; 0: there is no answer
  bool never;  // and there will be none: TLS fails
  bool sent;   // the request may have come there, though there is no answer
  bool closed; // it was sent, and the connection then ended
  char *body;  // of `bytes` bytes; borrowed until the next call
  size_t bytes;
  char why[200]; // there is no answer
} EtcdAnswer;

int etcd_http_check(Error *error);   // PLAIT_BAD_INPUT: without libcurl; what to install
bool etcd_http_is_built(void);
const char *etcd_http_version(void); // NULL: it was not built in, or cannot be loaded

// The url is borrowed. Reads ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY for TLS. PLAIT_BAD_INPUT: one cannot be read.
int etcd_http_open(const EtcdUrl *url, EtcdHttp **http, Error *error);
void etcd_http_close(EtcdHttp *http); // NULL is fine

// token: "" or what etcd wants to see with each call. endpoint: of the url.
void etcd_http_post(EtcdHttp *http, int endpoint, const char *path, const char *body, const char *token, double seconds,
                    EtcdAnswer *answer);
// This machine's address in the last call that was answered; "": none was.
const char *etcd_http_own_address(const EtcdHttp *http);

// One watch; it replaces the one before.
void etcd_http_watch(EtcdHttp *http, int endpoint, const char *body, const char *token);
void etcd_http_unwatch(EtcdHttp *http);
bool etcd_http_watches(const EtcdHttp *http); // it has not ended
// true: what is watched has changed. false: not within so many seconds, or the watch has ended.
bool etcd_http_changed(EtcdHttp *http, double seconds);
