// libcurl, and what a build without it says.
#include "elastic/etcd_http.h"
#ifdef PLAIT_CURL
#include "base/clock.h"
#define CURL_DISABLE_TYPECHECK // its macros take calls by a pointer for none
#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_ANSWER = 4 * STORE_VALUE, MOST_LINE = 2 * STORE_VALUE };

typedef struct Functions {
#define CURL_FUNCTION(name) __typeof__(&name) name;
#include "elastic/etcd_http.def"
#undef CURL_FUNCTION
} Functions;

static Functions lib;
static char problem[256];

static void load(void) {
  void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (!library) library = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(problem, sizeof problem, "%s", dlerror());
    return;
  }
  static const struct { const char *name; size_t place; } functions[] = {
#define CURL_FUNCTION(name) {#name, offsetof(Functions, name)},
#include "elastic/etcd_http.def"
#undef CURL_FUNCTION
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions && !*problem; i++) {
    void *function = dlsym(library, functions[i].name);
    if (!function) snprintf(problem, sizeof problem, "%s", dlerror());
    memcpy((char *)&lib + functions[i].place, &function, sizeof function);
  }
  if (!*problem && lib.curl_global_init(CURL_GLOBAL_DEFAULT)) snprintf(problem, sizeof problem, "it does not start");
}

static bool is_loaded(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return !*problem;
}

int etcd_http_check(Error *error) {
  if (is_loaded()) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT,
                   "--rdzv etcd:// needs libcurl, which cannot be loaded (%s); install libcurl4", problem);
}

bool etcd_http_is_built(void) { return true; }
const char *etcd_http_version(void) { return is_loaded() ? lib.curl_version() : NULL; }

typedef struct Text { char *data; size_t bytes, room; } Text;

struct EtcdHttp {
  const EtcdUrl *url;
  CURL *call, *watch;  // watch NULL: there is none
  CURLM *watching;     // drives it
  struct curl_slist *call_headers, *watch_headers;
  char token[ETCD_NAME]; // that the headers of calls have
  Text answer, line;     // what has come; of the watch since the last end of a line
  char *watch_body;
  bool changed, over;    // what the watch has said
  char own[64], why[CURL_ERROR_SIZE];
};

static size_t add(Text *text, const char *data, size_t bytes, size_t most) {
  if (text->bytes + bytes > most) return 0;
  if (text->bytes + bytes + 1 > text->room) {
    text->room = 2 * (text->bytes + bytes) + 1024;
    text->data = xrealloc(text->data, text->room);
  }
  memcpy(text->data + text->bytes, data, bytes);
  text->bytes += bytes;
  text->data[text->bytes] = 0;
  return bytes;
}

static size_t take_answer(char *data, size_t one, size_t bytes, void *http) {
  return add(&((EtcdHttp *)http)->answer, data, one * bytes, MOST_ANSWER);
}

static size_t take_lines(char *data, size_t one, size_t bytes, void *user) {
  EtcdHttp *http = user;
  for (size_t i = 0; i < bytes; i++) {
    bool changed, over;
    if (data[i] != '\n' && !add(&http->line, data + i, 1, MOST_LINE)) return 0;
    if (data[i] != '\n') continue;
    if (!etcd_take_watch(http->line.data ? http->line.data : "", http->line.bytes, &changed, &over)) return 0;
    http->changed |= changed;
    http->over |= over;
    http->line.bytes = 0;
  }
  return one * bytes;
}

// Workers do not inherit it.
static curl_socket_t open_socket(void *unused, curlsocktype purpose, struct curl_sockaddr *at) {
  return socket(at->family, at->socktype | SOCK_CLOEXEC, at->protocol);
}

static int check_file(const char *variable, Error *error) {
  const char *path = getenv(variable);
  if (!path || !*path || !access(path, R_OK)) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "%s is %.200s: %s", variable, path, strerror(errno));
}

static void set_file(CURL *easy, CURLoption option, const char *variable) {
  const char *path = getenv(variable);
  if (path && *path) lib.curl_easy_setopt(easy, option, path);
}

static CURL *make_handle(EtcdHttp *http) {
  CURL *easy = lib.curl_easy_init();
  CHECK(easy, "libcurl has no memory");
  lib.curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  lib.curl_easy_setopt(easy, CURLOPT_NOPROXY, "*"); // what lies between is for the Web
  lib.curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, http->url->tls ? "https" : "http");
  lib.curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
  lib.curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, http->why);
  lib.curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
  lib.curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
  if (!http->url->tls) return easy;
  lib.curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
  set_file(easy, CURLOPT_CAINFO, "ETCDCTL_CACERT");
  set_file(easy, CURLOPT_SSLCERT, "ETCDCTL_CERT");
  set_file(easy, CURLOPT_SSLKEY, "ETCDCTL_KEY");
  return easy;
}

int etcd_http_open(const EtcdUrl *url, EtcdHttp **http, Error *error) {
  int code = etcd_http_check(error);
  if (!code && url->tls) code = check_file("ETCDCTL_CACERT", error);
  if (!code && url->tls) code = check_file("ETCDCTL_CERT", error);
  if (!code && url->tls) code = check_file("ETCDCTL_KEY", error);
  if (code) return code;
  EtcdHttp *h = *http = xcalloc(1, sizeof **http);
  h->url = url;
  h->call = make_handle(h);
  h->watching = lib.curl_multi_init();
  CHECK(h->watching, "libcurl has no memory");
  lib.curl_easy_setopt(h->call, CURLOPT_WRITEFUNCTION, take_answer);
  lib.curl_easy_setopt(h->call, CURLOPT_WRITEDATA, h);
  return PLAIT_OK;
}

void etcd_http_unwatch(EtcdHttp *h) {
  if (h->watch) {
    lib.curl_multi_remove_handle(h->watching, h->watch);
    lib.curl_easy_cleanup(h->watch);
  }
  lib.curl_slist_free_all(h->watch_headers);
  free(h->watch_body);
  h->watch = NULL;
  h->watch_headers = NULL;
  h->watch_body = NULL;
  h->line.bytes = 0;
}

void etcd_http_close(EtcdHttp *h) {
  if (!h) return;
  etcd_http_unwatch(h);
  lib.curl_multi_cleanup(h->watching);
  lib.curl_easy_cleanup(h->call);
  lib.curl_slist_free_all(h->call_headers);
  explicit_bzero(h->token, sizeof h->token);
  free(h->answer.data);
  free(h->line.data);
  free(h);
}

static void set_address(EtcdHttp *h, CURL *easy, int endpoint, const char *path) {
  const Endpoint *at = &h->url->endpoint[endpoint];
  char where[ENDPOINT_TEXT], text[ENDPOINT_TEXT + 100];
  snprintf(text, sizeof text, "%s://%s%s", h->url->tls ? "https" : "http", endpoint_print(at->host, at->port, where),
           path);
  lib.curl_easy_setopt(easy, CURLOPT_URL, text);
}

static struct curl_slist *make_headers(const char *token) {
  char line[ETCD_NAME + 20];
  struct curl_slist *list = lib.curl_slist_append(NULL, "Content-Type: application/json");
  list = lib.curl_slist_append(list, "Expect:"); // no round trip before long values
  snprintf(line, sizeof line, "Authorization: %s", token);
  if (*token) list = lib.curl_slist_append(list, line);
  explicit_bzero(line, sizeof line);
  return list;
}

static bool is_final(CURLcode code) {
  static const CURLcode final[] = {CURLE_SSL_CERTPROBLEM, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE,
                                   CURLE_SSL_CIPHER, CURLE_SSL_ISSUER_ERROR, CURLE_SSL_ENGINE_NOTFOUND};
  for (size_t i = 0; i < sizeof final / sizeof *final; i++)
    if (code == final[i]) return true;
  return false;
}

void etcd_http_post(EtcdHttp *h, int endpoint, const char *path, const char *body, const char *token, double seconds,
                    EtcdAnswer *a) {
  long limit = (long)fmax(1, 1000 * seconds);
  char *own = NULL;
  *a = (EtcdAnswer){0};
  h->answer.bytes = 0;
  *h->why = 0;
  if (!h->call_headers || strcmp(token, h->token)) {
    lib.curl_slist_free_all(h->call_headers);
    h->call_headers = make_headers(token);
    snprintf(h->token, sizeof h->token, "%s", token);
    lib.curl_easy_setopt(h->call, CURLOPT_HTTPHEADER, h->call_headers);
  }
  set_address(h, h->call, endpoint, path);
  lib.curl_easy_setopt(h->call, CURLOPT_POSTFIELDS, body);
  lib.curl_easy_setopt(h->call, CURLOPT_TIMEOUT_MS, limit);
  lib.curl_easy_setopt(h->call, CURLOPT_CONNECTTIMEOUT_MS, limit);
  CURLcode code = lib.curl_easy_perform(h->call);
  long sent = 0;
  lib.curl_easy_getinfo(h->call, CURLINFO_REQUEST_SIZE, &sent);
  if (!code) {
    lib.curl_easy_getinfo(h->call, CURLINFO_RESPONSE_CODE, &a->status);
    lib.curl_easy_getinfo(h->call, CURLINFO_LOCAL_IP, &own);
    if (own) snprintf(h->own, sizeof h->own, "%s", own);
    a->body = h->answer.data ? h->answer.data : "";
    a->bytes = h->answer.bytes;
    return;
  }
  a->sent = sent > 0;
  a->closed = code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR;
  a->never = is_final(code);
  snprintf(a->why, sizeof a->why, "%.190s", *h->why ? h->why : lib.curl_easy_strerror(code));
  for (char *c = a->why; *c; c++)
    if (*c == '\n' || *c == '\r') *c = ' ';
}

const char *etcd_http_own_address(const EtcdHttp *h) { return h->own; }

// The watch -----------------------------------------------------------------------------------------------------------

void etcd_http_watch(EtcdHttp *h, int endpoint, const char *body, const char *token) {
  etcd_http_unwatch(h);
  h->watch = make_handle(h);
  h->watch_headers = make_headers(token);
  h->watch_body = xstrdup(body);
  h->changed = h->over = false;
  set_address(h, h->watch, endpoint, "/v3/watch");
  lib.curl_easy_setopt(h->watch, CURLOPT_HTTPHEADER, h->watch_headers);
  lib.curl_easy_setopt(h->watch, CURLOPT_POSTFIELDS, h->watch_body);
  lib.curl_easy_setopt(h->watch, CURLOPT_WRITEFUNCTION, take_lines);
  lib.curl_easy_setopt(h->watch, CURLOPT_WRITEDATA, h);
  if (lib.curl_multi_add_handle(h->watching, h->watch)) etcd_http_unwatch(h);
}

bool etcd_http_watches(const EtcdHttp *h) { return h->watch != NULL; }

bool etcd_http_changed(EtcdHttp *h, double seconds) {
  double until = clock_seconds() + seconds;
  while (h->watch) {
    int running = 0;
    if (lib.curl_multi_perform(h->watching, &running) || h->over || !running) etcd_http_unwatch(h);
    if (h->changed) return h->changed = false, true;
    double left = until - clock_seconds();
    if (left <= 0) return false;
    if (h->watch && lib.curl_multi_poll(h->watching, NULL, 0, (int)ceil(1000 * left), NULL)) etcd_http_unwatch(h);
  }
  return false;
}
#else
int etcd_http_check(Error *error) {
  return error_set(error, PLAIT_BAD_INPUT,
                   "--rdzv etcd://: this plait was built without libcurl; install it (on Debian libcurl4-openssl-dev) "
                   "and build again, with -DPLAIT_CURL=ON to be sure");
}
bool etcd_http_is_built(void) { return false; }
const char *etcd_http_version(void) { return NULL; }
int etcd_http_open(const EtcdUrl *url, EtcdHttp **http, Error *error) { return etcd_http_check(error); }
void etcd_http_close(EtcdHttp *http) {}
void etcd_http_post(EtcdHttp *http, int endpoint, const char *path, const char *body, const char *token, double seconds,
                    EtcdAnswer *answer) {
  *answer = (EtcdAnswer){0};
}
const char *etcd_http_own_address(const EtcdHttp *http) { return ""; }
void etcd_http_watch(EtcdHttp *http, int endpoint, const char *body, const char *token) {}
void etcd_http_unwatch(EtcdHttp *http) {}
bool etcd_http_watches(const EtcdHttp *http) { return false; }
bool etcd_http_changed(EtcdHttp *http, double seconds) { return false; }
#endif
