// tier 2 3; rooms comm; threads
// The store that supervisors share, the embedded one and etcd's: compare-and-set, waits, leases. Of the embedded one
// other jobs, secrets and bytes that are not a request; of etcd's what a job leaves, and several endpoints. The tests
// of etcd are in tier 3, and skipped where there is no etcd.
#include "base/clock.h"
#include "base/thread.h"
#include "net/socket.h"
#include "net/secret.h"
#include "elastic/etcd_http.h"
#include "elastic/store_protocol.h"
#include "elastic/store_table.h"
#include "tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { CLIENTS = 4, ADDS = 50 };

typedef struct Shared {
  bool etcd;
  StoreServer *server; // NULL: etcd's
  char endpoint[80], id[40];
  Error error;
} Shared;

static int try_to_open(const Shared *s, StoreServer **server, Store **store, Error *error) {
  *server = NULL;
  if (s->etcd) return store_etcd_open(s->endpoint, s->id, test_seconds(5), store, error);
  return store_open(s->endpoint, s->id, false, test_seconds(5), server, store, error);
}

static Store *open_store(Shared *s, StoreServer **server) {
  Store *store = NULL;
  if (try_to_open(s, server, &store, &s->error)) fail_msg("%s", s->error.message);
  return store;
}

static int free_port(void) {
  NetAddress any;
  assert_int_equal(net_resolve("127.0.0.1", 0, &any, NULL), PLAIT_OK);
  int fd = net_listen(&any);
  assert_true(fd >= 0);
  close(fd);
  return net_port(&any);
}

static int etcd_port; // 0: there is no etcd

// state: not NULL for etcd. A job of its own for each test.
static void begin(Shared *s, void **state) {
  static int jobs;
  *s = (Shared){.etcd = *state != NULL};
  if (s->etcd && !etcd_port) skip();
  snprintf(s->endpoint, sizeof s->endpoint, s->etcd ? "etcd://127.0.0.1:%d" : "127.0.0.1:%d",
           s->etcd ? etcd_port : free_port());
  snprintf(s->id, sizeof s->id, "job%d", jobs++);
}

static void values_and_versions(void **state) {
  Shared s;
  StoreServer *other;
  StoreValue v;
  bool done;
  begin(&s, state);
  Store *a = open_store(&s, &s.server), *b = open_store(&s, &other);
  assert_true(s.etcd || s.server);
  assert_null(other); // one serves
  assert_int_equal(a->get(a, "round", &v, &s.error), PLAIT_OK);
  assert_true(v.version == 0 && !v.data);
  assert_int_equal(a->compare_and_set(a, "round", 0, "one", 3, 0, &done, &v, &s.error), PLAIT_OK);
  assert_true(done && v.version > 0 && v.bytes == 3);
  assert_string_equal(v.data, "one");
  uint64_t first = v.version;
  store_value_free(&v);
  assert_int_equal(b->compare_and_set(b, "round", 0, "two", 3, 0, &done, &v, &s.error), PLAIT_OK);
  assert_true(!done && v.version == first && v.bytes == 3);
  assert_string_equal(v.data, "one");
  store_value_free(&v);
  assert_int_equal(b->compare_and_set(b, "round", first, "", 0, 0, &done, &v, &s.error), PLAIT_OK);
  assert_true(done && v.version > first && v.bytes == 0);
  store_value_free(&v);
  assert_int_equal(a->get(a, "round", &v, &s.error), PLAIT_OK);
  assert_true(v.version > first && v.bytes == 0);
  store_value_free(&v);
  static char large[STORE_VALUE];
  for (size_t i = 0; i < sizeof large; i++) large[i] = (char)(i * 7 >> 3);
  for (size_t bytes = 1; bytes <= sizeof large; bytes *= 32) {
    assert_int_equal(b->compare_and_set(b, "round", v.version, "", 0, 0, &done, &v, &s.error), PLAIT_OK);
    uint64_t version = v.version;
    store_value_free(&v);
    assert_int_equal(b->compare_and_set(b, "round", version, large, bytes, 0, &done, &v, &s.error), PLAIT_OK);
    assert_true(done);
    store_value_free(&v);
    assert_int_equal(a->get(a, "round", &v, &s.error), PLAIT_OK);
    assert_int_equal(v.bytes, bytes);
    assert_memory_equal(v.data, large, bytes);
    store_value_free(&v);
  }
  char key[STORE_KEY + 2] = "";
  memset(key, 'k', STORE_KEY + 1);
  assert_int_equal(a->get(a, key, &v, &s.error), PLAIT_BAD_INPUT);
  a->close(a);
  b->close(b);
  store_server_stop(s.server);
}

// Each adds 1 to a number, ADDS times; none may be lost.
static void *add(void *argument) {
  Shared *s = argument;
  StoreServer *server;
  Store *store = NULL;
  Error error = {0};
  int code = try_to_open(s, &server, &store, &error);
  for (int i = 0; i < ADDS && !code; i++)
    for (bool done = false; !done && !code;) {
      StoreValue v = {0};
      code = store->get(store, "number", &v, &error);
      int number = 1 + (v.data ? *(int *)v.data : 0);
      uint64_t version = v.version;
      store_value_free(&v);
      if (!code) code = store->compare_and_set(store, "number", version, &number, sizeof number, 0, &done, &v, &error);
      store_value_free(&v);
    }
  if (store) store->close(store);
  return code ? "failed" : NULL;
}

static void many_clients(void **state) {
  Shared s;
  pthread_t thread[CLIENTS];
  StoreValue v;
  begin(&s, state);
  Store *store = open_store(&s, &s.server);
  for (int i = 0; i < CLIENTS; i++) assert_int_equal(thread_start(&thread[i], add, &s, &s.error, "a client"), 0);
  for (int i = 0; i < CLIENTS; i++) {
    void *failed;
    pthread_join(thread[i], &failed);
    assert_null(failed);
  }
  assert_int_equal(store->get(store, "number", &v, &s.error), PLAIT_OK);
  assert_int_equal(*(int *)v.data, CLIENTS * ADDS);
  store_value_free(&v);
  store->close(store);
  store_server_stop(s.server);
}

static void waits_and_leases(void **state) {
  Shared s;
  StoreServer *other;
  StoreValue v;
  bool done;
  uint64_t lease = 0;
  const double seconds = 2; // that shall be over; test_store_table.c has the rest of the embedded store's leases
  begin(&s, state);
  Store *a = open_store(&s, &s.server), *b = open_store(&s, &other);
  assert_int_equal(a->wait(a, "member", 0, 0.01, &v, &s.error), PLAIT_OK); // nothing comes
  assert_true(v.version == 0);
  assert_int_equal(a->lease(a, &lease, seconds, &s.error), PLAIT_OK);
  assert_true(lease > 0);
  assert_int_equal(a->compare_and_set(a, "member", 0, "a", 1, lease, &done, &v, &s.error), PLAIT_OK);
  assert_true(done);
  uint64_t version = v.version;
  store_value_free(&v);
  double until = clock_seconds() + (s.etcd ? 2 * seconds : 0); // renewed, it outlives its seconds
  while (clock_seconds() < until) {
    assert_int_equal(a->lease(a, &lease, seconds, &s.error), PLAIT_OK);
    assert_int_equal(b->wait(b, "member", version, 0.02, &v, &s.error), PLAIT_OK);
    assert_true(v.version == version);
    store_value_free(&v);
  }
  assert_int_equal(b->wait(b, "member", version, test_seconds(20), &v, &s.error), PLAIT_OK); // then it lapses
  assert_true(v.version == 0);
  assert_null(v.data);
  assert_int_equal(a->lease(a, &lease, 1, &s.error), PLAIT_OK);
  assert_true(lease == 0);
  assert_int_equal(a->compare_and_set(a, "member", 0, "a", 1, version + 1000, &done, &v, &s.error), PLAIT_OK);
  assert_false(done); // a lease that does not exist
  store_value_free(&v);
  assert_int_equal(a->lease(a, &lease, 600, &s.error), PLAIT_OK);
  assert_int_equal(a->compare_and_set(a, "member", 0, "a", 1, lease, &done, &v, &s.error), PLAIT_OK);
  assert_true(done);
  version = v.version;
  store_value_free(&v);
  assert_int_equal(a->lease(a, &lease, 0, &s.error), PLAIT_OK); // given back
  assert_int_equal(b->wait(b, "member", version, test_seconds(20), &v, &s.error), PLAIT_OK);
  assert_true(v.version == 0);
  a->close(a);
  b->close(b);
  store_server_stop(s.server);
}

// With the secret all goes by TLS, with values of all lengths; without it, or with another, nobody gets in.
static void secrets(void **state) {
  Shared s;
  StoreServer *other;
  Store *none = NULL;
  StoreValue v;
  bool done;
  char mine[64], another[64];
  static char large[STORE_VALUE];
  if (!tls_is_built()) return;
  snprintf(mine, sizeof mine, "tmp/store.%d", getpid());
  snprintf(another, sizeof another, "tmp/store.%d.other", getpid());
  begin(&s, state);
  assert_int_equal(secret_make(mine, &s.error), PLAIT_OK);
  assert_int_equal(secret_make(another, &s.error), PLAIT_OK);
  setenv("PLAIT_SECRET", mine, 1);
  Store *a = open_store(&s, &s.server), *b = open_store(&s, &other);
  for (size_t i = 0; i < sizeof large; i++) large[i] = (char)(i * 7 >> 3);
  for (size_t bytes = 1; bytes <= sizeof large; bytes *= 32) {
    assert_int_equal(a->get(a, "key", &v, &s.error), PLAIT_OK);
    uint64_t version = v.version;
    store_value_free(&v);
    assert_int_equal(a->compare_and_set(a, "key", version, large, bytes, 0, &done, &v, &s.error), PLAIT_OK);
    assert_true(done);
    store_value_free(&v);
    assert_int_equal(b->get(b, "key", &v, &s.error), PLAIT_OK);
    assert_int_equal(v.bytes, bytes);
    assert_memory_equal(v.data, large, bytes);
    store_value_free(&v);
  }
  setenv("PLAIT_SECRET", another, 1);
  Error error = {0};
  assert_int_equal(store_open(s.endpoint, s.id, false, 0.1, &other, &none, &error), PLAIT_BAD_INPUT);
  if (!strstr(error.message, "does not have the secret of tmp/store.")) fail_msg("%s", error.message);
  unsetenv("PLAIT_SECRET");
  error = (Error){0};
  assert_true(store_open(s.endpoint, s.id, false, 0.1, &other, &none, &error) < 0);
  assert_null(none);
  a->close(a);
  b->close(b);
  store_server_stop(s.server);
  unlink(mine);
  unlink(another);
}

// Takes a connection, and ends it without a word, as a machine without descriptors does.
static void *hang_up(void *argument) {
  char hello;
  double until = clock_seconds() + test_seconds(10);
  int fd = net_accept(*(int *)argument, until);
  if (fd >= 0) net_read(fd, &hello, 1, until), close(fd);
  return NULL;
}

// It is not said to lack the secret, which nobody knows.
static void connections_that_end(void **state) {
  NetAddress at;
  Error error = {0};
  Store *store = NULL;
  pthread_t thread;
  char mine[64];
  if (!tls_is_built()) return;
  snprintf(mine, sizeof mine, "tmp/store.%d", getpid());
  assert_int_equal(secret_make(mine, &error), PLAIT_OK);
  setenv("PLAIT_SECRET", mine, 1);
  assert_int_equal(net_resolve("127.0.0.1", 0, &at, &error), PLAIT_OK);
  int listener = net_listen(&at);
  assert_int_equal(thread_start(&thread, hang_up, &listener, &error, "a server"), PLAIT_OK);
  int found = store_connect(&at, "job", test_seconds(10), &store, NULL, &error);
  pthread_join(thread, NULL);
  if (found) fail_msg("%d: %s", found, error.message);
  unsetenv("PLAIT_SECRET");
  unlink(mine);
  close(listener);
}

static void refused(const char *endpoint, const char *id, const char *sentence) {
  StoreServer *server = NULL;
  Store *store = NULL;
  Error error = {0};
  assert_true(store_open(endpoint, id, false, 0.1, &server, &store, &error) < 0);
  assert_null(store);
  assert_null(server);
  if (!strstr(error.message, sentence)) fail_msg("%s", error.message);
}

static void what_is_refused(void **state) {
  Shared s;
  NetAddress at;
  StoreValue v;
  begin(&s, state);
  Store *store = open_store(&s, &s.server);
  refused(s.endpoint, "another", "is another job than --rdzv-id another");
  refused("nothing", "job", "\"nothing\" is not HOST:PORT, as in hostA:29400");
  refused("host:port,127.0.0.1:29400", "job", "\"host:port\" is not HOST:PORT");
  refused("192.0.2.7:29400", "job", "no store answers at 192.0.2.7:29400");
  refused("0.0.0.0:29477", "job", "where others could reach it");
  // Bytes that are not a request end that connection, and no other.
  int port = atoi(strrchr(s.endpoint, ':') + 1);
  double until = clock_seconds() + test_seconds(5);
  assert_int_equal(net_resolve("127.0.0.1", port, &at, NULL), PLAIT_OK);
  int fd = net_connect(&at, until);
  StoreGreeting greeting = STORE_GREETING(store_job(s.id));
  StoreRequest wrong = {.call = 77, .value_bytes = ~0u};
  char byte;
  assert_true(net_write(fd, &greeting, sizeof greeting, until) && net_read(fd, &greeting, sizeof greeting, until));
  assert_true(net_write(fd, &wrong, sizeof wrong, until));
  assert_false(net_read(fd, &byte, 1, until));
  assert_true(clock_seconds() < until); // it has ended
  close(fd);
  s.error = (Error){0};
  assert_int_equal(store->get(store, "round", &v, &s.error), PLAIT_OK);
  store_server_stop(s.server); // its end is an error of the clients
  assert_int_equal(store->get(store, "round", &v, &s.error), PLAIT_FAILED);
  assert_non_null(strstr(s.error.message, "does not answer"));
  store->close(store);
}

// A server by hand, which answers one call with this.
typedef struct Answerer { int listener; StoreReply reply; } Answerer;

static void *answer(void *argument) {
  Answerer *a = argument;
  double until = clock_seconds() + test_seconds(10);
  StoreGreeting greeting;
  StoreRequest request;
  char key[STORE_KEY], byte;
  int fd = net_accept(a->listener, until);
  if (fd < 0) return NULL;
  if (net_read(fd, &greeting, sizeof greeting, until) && net_write(fd, &greeting, sizeof greeting, until) &&
      net_read(fd, &request, sizeof request, until) && net_read(fd, key, request.key_bytes, until) &&
      net_write(fd, &a->reply, sizeof a->reply, until))
    net_read(fd, &byte, 1, until); // until the client closes it
  close(fd);
  return NULL;
}

// A client that receives a malformed reply closes the connection.
static void replies_are_refused(void **state) {
  static const StoreReply wrong[] = {{1, 5, 0, 0}, {1, STORE_VALUE + 1, 1, 0}, {7, 0, 1, 0}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    NetAddress at;
    Error error = {0};
    Store *store;
    StoreValue v = {0};
    pthread_t thread;
    assert_int_equal(net_resolve("127.0.0.1", 0, &at, &error), PLAIT_OK);
    Answerer a = {net_listen(&at), wrong[i]};
    assert_true(a.listener >= 0);
    assert_int_equal(thread_start(&thread, answer, &a, &error, "a server"), PLAIT_OK);
    assert_int_equal(store_connect(&at, "job", test_seconds(10), &store, NULL, &error), 1);
    assert_int_equal(store->get(store, "round", &v, &error), PLAIT_FAILED);
    assert_non_null(strstr(error.message, "has sent what is not a reply, so the connection was closed"));
    assert_null(v.data);
    pthread_join(thread, NULL);
    error = (Error){0};
    assert_int_equal(store->get(store, "round", &v, &error), PLAIT_FAILED);
    assert_non_null(strstr(error.message, "does not answer"));
    store->close(store);
    close(a.listener);
  }
}

// etcd ----------------------------------------------------------------------------------------------------------------

static pid_t etcd = -1;
static char etcd_folder[80];

static bool is_answering(void) {
  NetAddress at;
  assert_int_equal(net_resolve("127.0.0.1", etcd_port, &at, NULL), PLAIT_OK);
  int fd = net_connect(&at, clock_seconds() + 1);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

static int start_etcd(void **state) {
  char client[60], peer[60], cluster[80];
  *state = &etcd_port;
  if (!etcd_http_is_built() || system("command -v etcd >/dev/null 2>&1")) return 0;
  etcd_port = free_port();
  snprintf(client, sizeof client, "http://127.0.0.1:%d", etcd_port);
  snprintf(peer, sizeof peer, "http://127.0.0.1:%d", free_port());
  snprintf(cluster, sizeof cluster, "default=%s", peer);
  snprintf(etcd_folder, sizeof etcd_folder, "tmp/etcd.%d", getpid());
  etcd = fork();
  if (!etcd) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int log = open("/dev/null", O_WRONLY);
    dup2(log, 1);
    dup2(log, 2);
    execlp("etcd", "etcd", "--data-dir", etcd_folder, "--listen-client-urls", client, "--advertise-client-urls", client,
           "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, NULL);
    _exit(127);
  }
  for (double until = clock_seconds() + test_seconds(30); !is_answering() && clock_seconds() < until;) usleep(20000);
  return 0;
}

static int stop_etcd(void **state) {
  char command[120];
  if (etcd <= 0) return 0;
  kill(etcd, SIGKILL);
  waitpid(etcd, NULL, 0);
  snprintf(command, sizeof command, "rm -rf %s", etcd_folder);
  return system(command);
}

static void set(Store *store, const char *key, uint64_t lease) {
  StoreValue v;
  Error error = {0};
  bool done = false;
  assert_int_equal(store->compare_and_set(store, key, 0, key, strlen(key), lease, &done, &v, &error), PLAIT_OK);
  assert_true(done);
  store_value_free(&v);
}

static bool has(Store *store, const char *key) {
  StoreValue v;
  Error error = {0};
  if (store->get(store, key, &v, &error)) fail_msg("%s", error.message);
  bool there = v.version != 0;
  store_value_free(&v);
  return there;
}

// A key without a lease stays while a machine has one, and goes when the last one says goodbye; jobs do not see each
// other.
static void a_job_leaves_nothing(void **state) {
  Shared s, other;
  StoreServer *none;
  uint64_t lease[2] = {0};
  begin(&s, state);
  begin(&other, state);
  snprintf(other.id, sizeof other.id, "%.20s/state", s.id);
  Store *a = open_store(&s, &none), *b = open_store(&s, &none), *c = open_store(&other, &none);
  set(a, "state", 0);
  assert_int_equal(a->lease(a, &lease[0], 3, &s.error), PLAIT_OK);
  assert_int_equal(b->lease(b, &lease[1], 3, &s.error), PLAIT_OK);
  set(a, "here/a", lease[0]);
  set(b, "here/b", lease[1]);
  assert_false(has(c, "state"));
  set(c, "state", 0);
  a->close(a); // its connection may just be lost
  assert_true(has(b, "here/a"));
  a = open_store(&s, &none);
  assert_int_equal(a->lease(a, &lease[0], 0, &s.error), PLAIT_OK);
  assert_false(has(b, "here/a"));
  assert_true(has(b, "state"));
  a->close(a);
  assert_int_equal(b->lease(b, &lease[1], 0, &s.error), PLAIT_OK);
  b->close(b);
  b = open_store(&s, &none);
  assert_false(has(b, "state"));
  assert_false(has(b, "here/b"));
  b->close(b);
  assert_true(has(c, "state"));
  c->close(c);
}

// Endpoints at which nobody answers are passed over.
static void several_endpoints(void **state) {
  Shared s;
  StoreServer *none;
  char address[64];
  begin(&s, state);
  snprintf(s.endpoint, sizeof s.endpoint, "etcd://127.0.0.1:%d,localhost:%d,127.0.0.1:%d", free_port(), free_port(),
           etcd_port);
  Store *store = open_store(&s, &none);
  set(store, "state", 0);
  store->own_address(store, address, sizeof address);
  assert_string_equal(address, "127.0.0.1");
  store->close(store);
}

// Addresses: the first column is taken apart as the second says, or refused with its words.
static void addresses(void **state) {
  static const struct { const char *url, *text; } rows[] = {
      {"etcd://hostA", "0 hostA:2379"},
      {"etcds://hostA:1,[::1]:2,[fe80::2]", "1 hostA:1 ::1:2 fe80::2:2379"},
      {"etcd://::1,::1:23790,fe80::2%lo", "0 ::1:2379 ::1:23790 fe80::2%lo:2379"},
      {"etcd://me:a%40%3ab@h:5", "0 h:5 me/a@:b"},
      {"etcd://me@h", "0 h:2379 me/"},
      {"etcd://", "\"\" is not HOST:PORT, as in etcd://hostA:2379,hostB:2379"},
      {"etcd://a,,b", "\"\" is not HOST:PORT"},
      {"etcd://h:0", "\"h:0\" is not HOST:PORT"},
      {"etcd://h:1/path", "\"h:1/path\" is not HOST:PORT"},
      {"etcd://h:+1", "\"h:+1\" is not HOST:PORT"},
      {"etcd://[::1", "\"[::1\" is not HOST:PORT"},
      {"etcd://a b", "\"a b\" is not HOST:PORT"},
      {"etcd://:secret@h", "what stands before the @ is not USER:PASSWORD"},
      {"etcd://me:secret%4@h", "what stands before the @ is not USER:PASSWORD"},
      {"http://h", "not etcd://HOST:2379"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    EtcdUrl url;
    Error error = {0};
    char text[400];
    int n = 0;
    if (!etcd_url_parse(rows[i].url, &url, &error)) {
      n = snprintf(text, sizeof text, "%d", url.tls);
      for (int k = 0; k < url.count; k++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %s:%d", url.endpoint[k].host, url.endpoint[k].port);
      if (*url.user) snprintf(text + n, sizeof text - (size_t)n, " %s/%s", url.user, url.password);
      assert_string_equal(text, rows[i].text);
    } else if (!strstr(error.message, rows[i].text)) fail_msg("%s: %s", rows[i].url, error.message);
    assert_null(strstr(error.message, "secret"));
    etcd_url_describe(rows[i].url, text, sizeof text);
    assert_null(strstr(text, "me"));
    assert_null(strstr(text, "secret"));
  }
}

// --rdzv: each endpoint in all its forms, and what plait prints of it is read again.
static void places(void **state) {
  static const struct { const char *list, *printed[3]; } rows[] = {
      {"127.0.0.1:29400", {"127.0.0.1:29400"}},
      {"[::1]:24430,::1:24430,127.0.0.2:1", {"[::1]:24430", "[::1]:24430", "127.0.0.2:1"}},
      {"[::1]", {NULL}},
      {"[::1]:1,hostA", {"[::1]:1", NULL}},
      {"::1", {NULL}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int k = 0; k < 3; k++) {
      NetAddress at;
      Error error = {0};
      char text[80], own[80];
      int found = store_endpoint(rows[i].list, k, &at, &error);
      if (!rows[i].printed[k]) {
        if (found > 0 || (found < 0 && !strstr(error.message, "is not HOST:PORT")))
          fail_msg("%s: %s", rows[i].list, error.message);
        break;
      }
      if (found != 1) fail_msg("%s: %s", rows[i].list, error.message);
      net_describe(&at, text, sizeof text);
      assert_string_equal(text, rows[i].printed[k]);
      assert_int_equal(store_endpoint(text, 0, &at, &error), 1);
      net_describe_host(&at, own, sizeof own);
      assert_int_equal(net_resolve(own, 5, &at, &error), 0);
    }
}

int main(void) {
  const struct CMUnitTest embedded[] = {
      cmocka_unit_test(values_and_versions),
      cmocka_unit_test(many_clients),
      cmocka_unit_test(waits_and_leases),
      cmocka_unit_test(secrets),
      cmocka_unit_test(connections_that_end),
      cmocka_unit_test(what_is_refused),
      cmocka_unit_test(replies_are_refused),
      cmocka_unit_test(addresses),
      cmocka_unit_test(places),
  };
  const struct CMUnitTest in_etcd[] = {
      {"etcd_values_and_versions", values_and_versions, NULL, NULL, NULL},
      {"etcd_many_clients", many_clients, NULL, NULL, NULL},
      {"etcd_waits_and_leases", waits_and_leases, NULL, NULL, NULL},
      cmocka_unit_test(a_job_leaves_nothing),
      cmocka_unit_test(several_endpoints),
  };
  mkdir("tmp", 0777);
  unsetenv("PLAIT_SECRET");
  unsetenv("ETCDCTL_USER");
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  int failed = cmocka_run_group_tests(embedded, NULL, NULL);
  if (test_tier() < 3 && !getenv("TEST_ONLY")) return failed;
  return failed + cmocka_run_group_tests(in_etcd, start_etcd, stop_etcd);
}
