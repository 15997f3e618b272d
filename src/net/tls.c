// TLS by GnuTLS, and what a build without it says.
#include "net/tls.h"
#ifdef PLAIT_GNUTLS
#include <dlfcn.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

// TLS 1.3 alone, and no way in but the key; a Diffie-Hellman exchange each time, so that what was recorded stays closed
// when the key is lost.
static const char priority[] = "SECURE128:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:+ECDHE-PSK";
static const char identity[] = "plait";

typedef struct Functions {
#define TLS_FUNCTION(name) __typeof__(&name) name;
#include "net/tls.def"
#undef TLS_FUNCTION
  gnutls_alloc_function *allocate; // whose memory the library frees
} Functions;

static Functions gnu;
static char problem[256];

static void load(void) {
  void *library = dlopen("libgnutls.so.30", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(problem, sizeof problem, "%s", dlerror());
    return;
  }
  static const struct { const char *name; size_t place; } functions[] = {
#define TLS_FUNCTION(name) {#name, offsetof(Functions, name)},
#include "net/tls.def"
#undef TLS_FUNCTION
      {"gnutls_malloc", offsetof(Functions, allocate)},
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions && !*problem; i++) {
    void *function = dlsym(library, functions[i].name);
    if (!function) snprintf(problem, sizeof problem, "%s", dlerror());
    memcpy((char *)&gnu + functions[i].place, &function, sizeof function);
  }
}

static int is_loaded(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return !*problem;
}

int tls_check(Error *error) {
  if (is_loaded()) return PLAIT_OK;
  return error_set(error, PLAIT_BAD_INPUT, "--secret needs GnuTLS, which cannot be loaded (%s); install libgnutls30",
                   problem);
}

struct Tls {
  gnutls_session_t session;
  gnutls_psk_client_credentials_t client;
  gnutls_psk_server_credentials_t server;
  Secret secret;
  int fd;
  size_t unsent; // bytes of a record that the socket has not taken whole; 0: none
};

static int find_key(gnutls_session_t session, const char *name, gnutls_datum_t *key) {
  const Tls *tls = gnu.gnutls_session_get_ptr(session);
  if (strcmp(name, identity)) return -1;
  key->data = (*gnu.allocate)(SECRET_BYTES);
  if (!key->data) return -1;
  memcpy(key->data, tls->secret.key, SECRET_BYTES);
  key->size = SECRET_BYTES;
  return 0;
}

// Without SIGPIPE.
static ssize_t push(gnutls_transport_ptr_t transport, const void *data, size_t bytes) {
  Tls *tls = transport;
  ssize_t n = send(tls->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) gnu.gnutls_transport_set_errno(tls->session, errno);
  return n;
}

static ssize_t pull(gnutls_transport_ptr_t transport, void *data, size_t bytes) {
  Tls *tls = transport;
  ssize_t n = recv(tls->fd, data, bytes, MSG_DONTWAIT);
  if (n < 0) gnu.gnutls_transport_set_errno(tls->session, errno);
  return n;
}

static int give_key(Tls *tls, bool is_server) {
  const gnutls_datum_t key = {tls->secret.key, SECRET_BYTES};
  if (is_server) {
    if (gnu.gnutls_psk_allocate_server_credentials(&tls->server)) return 0;
    gnu.gnutls_psk_set_server_credentials_function(tls->server, find_key);
    return !gnu.gnutls_credentials_set(tls->session, GNUTLS_CRD_PSK, tls->server);
  }
  if (gnu.gnutls_psk_allocate_client_credentials(&tls->client)) return 0;
  return !gnu.gnutls_psk_set_client_credentials(tls->client, identity, &key, GNUTLS_PSK_KEY_RAW) &&
         !gnu.gnutls_credentials_set(tls->session, GNUTLS_CRD_PSK, tls->client);
}

Tls *tls_open(int fd, bool is_server, const Secret *secret) {
  Tls *tls = xcalloc(1, sizeof *tls);
  tls->fd = fd;
  tls->secret = *secret;
  unsigned flags = (is_server ? GNUTLS_SERVER : GNUTLS_CLIENT) | GNUTLS_NONBLOCK | GNUTLS_NO_TICKETS;
  if (!is_loaded() || gnu.gnutls_init(&tls->session, flags)) return free(tls), NULL;
  gnu.gnutls_session_set_ptr(tls->session, tls);
  gnu.gnutls_transport_set_ptr(tls->session, tls);
  gnu.gnutls_transport_set_push_function(tls->session, push);
  gnu.gnutls_transport_set_pull_function(tls->session, pull);
  if (!gnu.gnutls_priority_set_direct(tls->session, priority, NULL) && give_key(tls, is_server)) return tls;
  tls_close(tls);
  return NULL;
}

int tls_handshake(Tls *tls) {
  int code = gnu.gnutls_handshake(tls->session);
  if (!code || !gnu.gnutls_error_is_fatal(code)) return !code;
  bool is_gone =
      code == GNUTLS_E_PREMATURE_TERMINATION || code == GNUTLS_E_PULL_ERROR || code == GNUTLS_E_PUSH_ERROR;
  if (!is_gone) gnu.gnutls_alert_send_appropriate(tls->session, code); // or the other side sees an end without a reason
  errno = is_gone ? ECONNRESET : EPROTO;
  return -1;
}

// What a call of the library means to who calls recv or send.
static ssize_t translate(ssize_t n) {
  if (n >= 0) return n;
  if (n == GNUTLS_E_PREMATURE_TERMINATION) return 0;
  errno = gnu.gnutls_error_is_fatal((int)n) ? EPROTO : EAGAIN;
  return -1;
}

ssize_t tls_receive(Tls *tls, void *data, size_t bytes) {
  return translate(gnu.gnutls_record_recv(tls->session, data, bytes));
}

// A record that the socket did not take whole is in the library, which wants to be called again, for these bytes.
ssize_t tls_send(Tls *tls, const void *data, size_t bytes) {
  ssize_t n = gnu.gnutls_record_send(tls->session, tls->unsent ? NULL : data, tls->unsent ? 0 : bytes);
  if (n >= 0) tls->unsent = 0;
  else if (!gnu.gnutls_error_is_fatal((int)n)) tls->unsent = bytes;
  return translate(n);
}

void tls_close(Tls *tls) {
  if (!tls) return;
  gnu.gnutls_deinit(tls->session);
  if (tls->client) gnu.gnutls_psk_free_client_credentials(tls->client);
  if (tls->server) gnu.gnutls_psk_free_server_credentials(tls->server);
  explicit_bzero(tls->secret.key, sizeof tls->secret.key);
  free(tls);
}

bool tls_is_built(void) { return true; }
const char *tls_version(void) { return is_loaded() ? gnu.gnutls_check_version(NULL) : NULL; }
#else
int tls_check(Error *error) {
  return error_set(error, PLAIT_BAD_INPUT,
                   "--secret: this plait was built without GnuTLS; install it (on Debian libgnutls28-dev) and build "
                   "again, with -DPLAIT_GNUTLS=ON to be sure");
}
Tls *tls_open(int fd, bool is_server, const Secret *secret) { return NULL; }
int tls_handshake(Tls *tls) { return -1; }
ssize_t tls_receive(Tls *tls, void *data, size_t bytes) { return 0; }
ssize_t tls_send(Tls *tls, const void *data, size_t bytes) { return -1; }
void tls_close(Tls *tls) {}
bool tls_is_built(void) { return false; }
const char *tls_version(void) { return NULL; }
#endif
