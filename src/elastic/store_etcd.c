// A store that etcd keeps, through its v3 JSON gateway. Keys are below plait/ID/, versions are etcd's revisions.
//
// What a job leaves must not be found by a later one of its id. So all keys that have no lease of a machine have one
// lease together, the job's, which all clients renew: its number is the value of the key plait/ID/lease. Who says
// goodbye last gives it back; where all were killed, it lapses soon after.
#include "base/clock.h"
#include "base/fault.h"
#include "base/vec.h"
#include "elastic/etcd_http.h"
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double usual_patience = 10, retry_seconds = 0.05, job_seconds = 15, look_seconds = 1, least_try = 0.5;
enum { LEASE_GONE = 1 }; // beside PLAIT_OK and the errors

typedef struct Etcd {
  Store base;
  EtcdUrl url;
  EtcdHttp *http;
  char where[200];       // the addresses without the password
  char *prefix, *watched; // the key that is watched; NULL: none
  int at;                // the endpoint that has answered last
  char token[ETCD_NAME]; // "": none, or one is to be fetched
  bool asks_nobody;      // etcd has no users
  bool met;              // it has answered once
  uint64_t job;          // the job's lease; 0: not known
  uint64_t lease;        // the one that this client has renewed last
  double job_renewed, renewed;
} Etcd;

// Calls ---------------------------------------------------------------------------------------------------------------

static int no_answer(Etcd *e, const char *why, Error *error) {
  return error_set(error, PLAIT_FAILED, "etcd at %s does not answer (%s)", e->where, why);
}

static int refused(const Etcd *e, const char *sentence, Error *error) {
  return error_set(error, PLAIT_BAD_INPUT, "etcd at %s refuses %s: %s", e->where,
                   *e->url.user ? "this user (ETCDCTL_USER, or USER:PASSWORD@ in --rdzv)"
                                : "who has no user (set ETCDCTL_USER=USER:PASSWORD)",
                   sentence);
}

static int is_strange(const Etcd *e, const EtcdAnswer *a, Error *error) {
  return error_set(error, PLAIT_BAD_INPUT,
                   "what listens at %s is not etcd 3.4 or later with its JSON gateway (HTTP status %ld)", e->where,
                   a->status);
}

typedef struct Verdict {
  bool again;  // the same may be asked again
  bool undone; // nothing has come of it
} Verdict;

// What an answer means: PLAIT_OK, LEASE_GONE or an error.
static int judge(Etcd *e, const EtcdAnswer *a, Verdict *v, Error *error) {
  char sentence[200];
  *v = (Verdict){.undone = !a->status && !a->sent};
  if (a->status == 200) return PLAIT_OK;
  if (a->never)
    return error_set(error, PLAIT_BAD_INPUT,
                     "TLS with etcd at %s: %s (ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY name its files)", e->where,
                     a->why);
  if (!a->status) {
    v->again = true;
    snprintf(sentence, sizeof sentence, "%.150s%s", a->why,
             a->closed && !e->met && !e->url.tls ? "; if it talks TLS, say etcds://" : "");
    return no_answer(e, sentence, error);
  }
  switch (etcd_take_trouble(a->body, a->bytes, sentence, sizeof sentence)) {
  case ETCD_LEASE_GONE: return LEASE_GONE;
  case ETCD_STRANGE: return is_strange(e, a, error);
  case ETCD_BUSY: return v->again = true, no_answer(e, sentence, error);
  case ETCD_STALE:
    if (!*e->url.user) return refused(e, sentence, error);
    *e->token = 0;
    v->again = v->undone = true;
    return no_answer(e, sentence, error);
  default: return refused(e, sentence, error);
  }
}

static int authenticate(Etcd *e, double seconds, Error *error) {
  char *body = etcd_ask_token(e->url.user, e->url.password), sentence[200];
  EtcdAnswer a;
  etcd_http_post(e->http, e->at, "/v3/auth/authenticate", body, "", seconds, &a);
  explicit_bzero(body, strlen(body));
  free(body);
  if (a.never || !a.status) return judge(e, &a, &(Verdict){0}, error);
  if (a.status == 200) return etcd_take_token(a.body, a.bytes, e->token) ? PLAIT_OK : is_strange(e, &a, error);
  switch (etcd_take_trouble(a.body, a.bytes, sentence, sizeof sentence)) {
  case ETCD_NO_AUTH: return e->asks_nobody = true, PLAIT_OK;
  case ETCD_STRANGE: return is_strange(e, &a, error);
  case ETCD_BUSY: return no_answer(e, sentence, error);
  default: return refused(e, sentence, error);
  }
}

static int ask_once(Etcd *e, const char *path, const char *body, double seconds, EtcdAnswer *a, Verdict *v,
                    Error *error) {
  if (*e->url.user && !*e->token && !e->asks_nobody) {
    int code = authenticate(e, seconds, error);
    *v = (Verdict){code == PLAIT_FAILED, true};
    if (code) return code;
  }
  etcd_http_post(e->http, e->at, path, body, e->token, seconds, a);
  return judge(e, a, v, error);
}

// Endpoints are tried in turn, until patience ends. idempotent: it may be done twice; else it is not asked again where
// it may have been done already. (libcurl asks again where the connection of an earlier call turns out to have ended. A
// compare-and-set that was done twice says that it was not done, and its caller looks at what is there.)
static int call(Etcd *e, const char *path, char *body, bool idempotent, EtcdAnswer *a, Error *error) {
  double until = clock_seconds() + e->base.patience, share = fmax(least_try, e->base.patience / e->url.count);
  int code;
  for (int tries = 1;; tries++) {
    Error why = {0};
    Verdict v;
    code = ask_once(e, path, body, fmin(until - clock_seconds(), share), a, &v, &why);
    if (code >= 0) e->met = true;
    if (code >= 0 || !v.again || !(idempotent || v.undone) || clock_seconds() + least_try >= until) {
      if (code < 0) error_set(error, why.code, "%s", why.message);
      break;
    }
    e->at = (e->at + 1) % e->url.count;
    if (tries % e->url.count == 0) poll(NULL, 0, (int)(1000 * retry_seconds));
  }
  free(body);
  return code;
}

static char *key_of(const Etcd *e, const char *key) { return xformat("%s%s", e->prefix, key); }

static int look_up(Etcd *e, const char *key, StoreValue *now, uint64_t *revision, Error *error) {
  EtcdAnswer a;
  char *name = key_of(e, key);
  int code = call(e, "/v3/kv/range", etcd_ask_get(name), true, &a, error);
  free(name);
  *now = (StoreValue){0};
  return code || etcd_take_get(a.body, a.bytes, now, revision) ? code : is_strange(e, &a, error);
}

static int put(Etcd *e, const char *key, uint64_t version, const void *data, size_t bytes, uint64_t lease, bool *done,
               StoreValue *now, Error *error) {
  EtcdAnswer a;
  char *name = key_of(e, key);
  int code = call(e, "/v3/kv/txn", etcd_ask_set(name, version, data, bytes, lease), false, &a, error);
  free(name);
  *now = (StoreValue){0};
  if (code) return code;
  if (!etcd_take_set(a.body, a.bytes, done, now)) return is_strange(e, &a, error);
  if (!*done) return PLAIT_OK;
  now->data = xcalloc(bytes + 1, 1);
  now->bytes = bytes;
  if (bytes) memcpy(now->data, data, bytes);
  return PLAIT_OK;
}

// lease 0: makes one. *lease 0 afterwards: it has lapsed.
static int renew(Etcd *e, uint64_t *lease, double seconds, Error *error) {
  EtcdAnswer a;
  double left = 0;
  int code = *lease ? call(e, "/v3/lease/keepalive", etcd_ask_lease(*lease), true, &a, error)
                    : call(e, "/v3/lease/grant", etcd_ask_grant(seconds), true, &a, error);
  if (code < 0) return code;
  if (code == LEASE_GONE) return *lease = 0, PLAIT_OK;
  if (!etcd_take_lease(a.body, a.bytes, lease, &left)) return is_strange(e, &a, error);
  if (left <= 0) *lease = 0;
  return PLAIT_OK;
}

static void give_back(Etcd *e, uint64_t lease) {
  EtcdAnswer a;
  Error ignored = {0};
  if (lease) call(e, "/v3/lease/revoke", etcd_ask_lease(lease), true, &a, &ignored);
}

// The job's lease -----------------------------------------------------------------------------------------------------

static int find_job(Etcd *e, Error *error) {
  StoreValue now;
  uint64_t revision;
  int code = look_up(e, "lease", &now, &revision, error);
  if (code) return code;
  e->job = now.version ? strtoull(now.data, NULL, 10) : 0;
  bool is_new = !now.version;
  store_value_free(&now);
  if (!is_new) return e->job ? renew(e, &e->job, 0, error) : PLAIT_OK;
  if ((code = renew(e, &e->job, job_seconds, error))) return code;
  bool done = false;
  char text[24];
  snprintf(text, sizeof text, "%" PRIu64, e->job);
  code = put(e, "lease", 0, text, strlen(text), e->job, &done, &now, error);
  store_value_free(&now);
  if (!code && done) return PLAIT_OK;
  give_back(e, e->job); // another one was here first
  e->job = 0;
  return code < 0 ? code : PLAIT_OK;
}

static int keep_job(Etcd *e, Error *error) {
  if (e->job && clock_seconds() - e->job_renewed < job_seconds / 5) return PLAIT_OK;
  int code = e->job ? renew(e, &e->job, 0, error) : PLAIT_OK;
  double until = clock_seconds() + e->base.patience;
  while (!code && !e->job) {
    code = find_job(e, error);
    if (!code && !e->job && clock_seconds() >= until)
      return no_answer(e, "the job's lease lapses again and again", error);
  }
  if (!code) e->job_renewed = clock_seconds();
  return code;
}

// The vtable ----------------------------------------------------------------------------------------------------------

static int check_size(const char *key, size_t bytes, Error *error) {
  if (strlen(key) <= STORE_KEY && bytes <= STORE_VALUE) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "the store takes keys of %d and values of %d bytes at most", STORE_KEY,
                   STORE_VALUE);
}

static int get(Store *store, const char *key, StoreValue *now, Error *error) {
  uint64_t revision;
  int code = check_size(key, 0, error);
  return code ? code : look_up((Etcd *)store, key, now, &revision, error);
}

static int compare_and_set(Store *store, const char *key, uint64_t version, const void *data, size_t bytes,
                           uint64_t lease, bool *done, StoreValue *now, Error *error) {
  Etcd *e = (Etcd *)store;
  int code = check_size(key, bytes, error);
  for (int tries = 0; !code; tries++) {
    if (!lease && (code = keep_job(e, error))) return code;
    code = put(e, key, version, data, bytes, lease ? lease : e->job, done, now, error);
    if (code != LEASE_GONE) return code;
    *done = false;
    if (lease || tries > 2) return get(store, key, now, error);
    e->job = 0;
    code = PLAIT_OK;
  }
  return code;
}

// Watching only says when it is worth looking again. Where it fails, `wait` polls.
static int wait_for(Store *store, const char *key, uint64_t version, double seconds, StoreValue *now, Error *error) {
  Etcd *e = (Etcd *)store;
  double until = clock_seconds() + seconds;
  uint64_t revision;
  int code = check_size(key, 0, error);
  if (code) return code;
  if (!e->watched || strcmp(e->watched, key)) {
    free(e->watched);
    e->watched = xstrdup(key);
    etcd_http_unwatch(e->http);
  }
  for (;;) {
    etcd_http_changed(e->http, 0); // all that has changed until now is in what comes next
    if ((code = look_up(e, key, now, &revision, error))) return code;
    double left = until - clock_seconds();
    if (now->version != version || left <= 0) return PLAIT_OK;
    if (!etcd_http_watches(e->http)) {
      char *name = key_of(e, key), *body = etcd_ask_watch(name, revision + 1);
      etcd_http_watch(e->http, e->at, body, e->token);
      free(body);
      free(name);
    }
    if (!etcd_http_changed(e->http, fmin(left, look_seconds)) && !etcd_http_watches(e->http))
      poll(NULL, 0, (int)(1000 * fmin(left, retry_seconds)));
    store_value_free(now);
  }
}

// The last of those who had a lease takes all of the job along.
static int say_goodbye(Etcd *e, uint64_t lease, Error *error) {
  bool others = true;
  EtcdAnswer a;
  int code = call(e, "/v3/lease/revoke", etcd_ask_lease(lease), true, &a, error);
  if (code >= 0) code = call(e, "/v3/kv/range", etcd_ask_leased(e->prefix), true, &a, error);
  if (code) return code;
  if (!etcd_take_leased(a.body, a.bytes, e->job, 0, &others)) return is_strange(e, &a, error);
  if (FAULT(etcd_keeps_the_job, !others, 0)) give_back(e, e->job);
  return PLAIT_OK;
}

static int lease_of_machine(Store *store, uint64_t *lease, double seconds, Error *error) {
  Etcd *e = (Etcd *)store;
  if (seconds <= 0) {
    uint64_t last = *lease;
    *lease = 0;
    return last ? say_goodbye(e, last, error) : PLAIT_OK;
  }
  int code = keep_job(e, error);
  if (code || (*lease && *lease == e->lease && clock_seconds() - e->renewed < seconds / 6)) return code;
  code = renew(e, lease, seconds, error);
  if (code) return code;
  e->lease = *lease;
  e->renewed = clock_seconds();
  return PLAIT_OK;
}

static void own_address(const Store *store, char *text, size_t size) {
  const char *own = etcd_http_own_address(((const Etcd *)store)->http);
  snprintf(text, size, "%s", *own ? own : "127.0.0.1");
}

static void close_client(Store *store) {
  Etcd *e = (Etcd *)store;
  etcd_http_close(e->http);
  explicit_bzero(&e->url, sizeof e->url);
  explicit_bzero(e->token, sizeof e->token);
  free(e->watched);
  free(e->prefix);
  free(e);
}

// ETCDCTL_USER=NAME:PASSWORD, or NAME with ETCDCTL_PASSWORD, where the address has none.
static int add_user(EtcdUrl *url, Error *error) {
  const char *user = getenv("ETCDCTL_USER"), *password = getenv("ETCDCTL_PASSWORD");
  if (*url->user || !user || !*user) return PLAIT_OK;
  size_t name = strcspn(user, ":");
  if (user[name]) password = user + name + 1;
  if (!password) password = "";
  if (!name || name >= sizeof url->user || strlen(password) >= sizeof url->password)
    return error_set(error, PLAIT_BAD_INPUT, "ETCDCTL_USER is not USER:PASSWORD of less than %d bytes each", ETCD_NAME);
  snprintf(url->user, sizeof url->user, "%.*s", (int)name, user);
  snprintf(url->password, sizeof url->password, "%s", password);
  return PLAIT_OK;
}

int store_etcd_open(const char *endpoints, const char *id, double patience, Store **store, Error *error) {
  Etcd *e = xcalloc(1, sizeof *e);
  e->base = (Store){get, compare_and_set, wait_for, lease_of_machine, own_address, close_client, patience};
  e->prefix = etcd_prefix(id);
  etcd_url_describe(endpoints, e->where, sizeof e->where);
  int code = etcd_url_parse(endpoints, &e->url, error);
  if (!code) code = add_user(&e->url, error);
  if (!code) code = etcd_http_open(&e->url, &e->http, error);
  if (!code) code = keep_job(e, error);
  e->base.patience = usual_patience;
  if (!code) *store = &e->base;
  else close_client(&e->base);
  return code;
}
