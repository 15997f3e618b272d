// The store that supervisors share: compare-and-set, waits, leases, other jobs, what is no request.
#include "base/clock.h"
#include "base/thread.h"
#include "comm/net_socket.h"
#include "comm/secret.h"
#include "elastic/store_protocol.h"
#include "elastic/store_table.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

enum { CLIENTS = 4, ADDS = 50 };

typedef struct Shared { StoreServer *server; char endpoint[40]; Error error; } Shared;

static Store *open_store(Shared *s, StoreServer **server) {
  Store *store;
  assert_int_equal(store_open(s->endpoint, "job", false, 5, server, &store, &s->error), PLAIT_OK);
  return store;
}

// A port that is free now.
static void begin(Shared *s) {
  NetAddress any;
  *s = (Shared){0};
  assert_int_equal(net_resolve("127.0.0.1", 0, &any, &s->error), PLAIT_OK);
  int fd = net_listen(&any);
  assert_true(fd >= 0);
  close(fd);
  net_describe(&any, s->endpoint, sizeof s->endpoint);
}

static void values_and_versions(void **state) {
  Shared s;
  StoreServer *other;
  StoreValue v;
  bool done;
  begin(&s);
  Store *a = open_store(&s, &s.server), *b = open_store(&s, &other);
  assert_non_null(s.server);
  assert_null(other); // one serves
  assert_int_equal(a->get(a, "round", &v, &s.error), PLAIT_OK);
  assert_true(v.version == 0 && !v.data);
  assert_int_equal(a->compare_and_set(a, "round", 0, "one", 3, 0, &done, &v, &s.error), PLAIT_OK);
  assert_true(done && v.version > 0);
  uint64_t first = v.version;
  store_value_free(&v);
  assert_int_equal(b->compare_and_set(b, "round", 0, "two", 3, 0, &done, &v, &s.error), PLAIT_OK);
  assert_true(!done && v.version == first && v.bytes == 3);
  assert_string_equal(v.data, "one");
  store_value_free(&v);
  assert_int_equal(b->compare_and_set(b, "round", first, "", 0, 0, &done, &v, &s.error), PLAIT_OK);
  assert_true(done && v.version > first && v.bytes == 0);
  store_value_free(&v);
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
  int code = store_open(s->endpoint, "job", false, 5, &server, &store, &error);
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
  begin(&s);
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
  begin(&s);
  Store *a = open_store(&s, &s.server), *b = open_store(&s, &other);
  assert_int_equal(a->wait(a, "member", 0, 0.01, &v, &s.error), PLAIT_OK); // nothing comes
  assert_true(v.version == 0);
  assert_int_equal(a->lease(a, &lease, 0.3, &s.error), PLAIT_OK);
  assert_true(lease > 0);
  assert_int_equal(a->compare_and_set(a, "member", 0, "a", 1, lease, &done, &v, &s.error), PLAIT_OK);
  assert_true(done);
  uint64_t version = v.version;
  store_value_free(&v);
  double until = clock_seconds() + 0.6; // renewed, it outlives its seconds
  while (clock_seconds() < until) {
    assert_int_equal(a->lease(a, &lease, 0.3, &s.error), PLAIT_OK);
    assert_int_equal(b->wait(b, "member", version, 0.02, &v, &s.error), PLAIT_OK);
    assert_true(v.version == version);
    store_value_free(&v);
  }
  assert_int_equal(b->wait(b, "member", version, 10, &v, &s.error), PLAIT_OK); // then it lapses
  assert_true(v.version == 0);
  assert_int_equal(a->lease(a, &lease, 0.3, &s.error), PLAIT_OK);
  assert_true(lease == 0);
  assert_int_equal(a->compare_and_set(a, "member", 0, "a", 1, version + 1000, &done, &v, &s.error), PLAIT_OK);
  assert_false(done); // a lease that does not exist
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
  begin(&s);
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
  assert_int_equal(store_open(s.endpoint, "job", false, 0.1, &other, &none, &error), PLAIT_BAD_INPUT);
  if (!strstr(error.message, "does not have the secret of tmp/store.")) fail_msg("%s", error.message);
  unsetenv("PLAIT_SECRET");
  error = (Error){0};
  assert_true(store_open(s.endpoint, "job", false, 0.1, &other, &none, &error) < 0);
  assert_null(none);
  a->close(a);
  b->close(b);
  store_server_stop(s.server);
  unlink(mine);
  unlink(another);
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
  begin(&s);
  Store *store = open_store(&s, &s.server);
  refused(s.endpoint, "another", "is another job than --rdzv-id another");
  refused("nothing", "job", "\"nothing\" is not HOST:PORT, as in hostA:29400");
  refused("host:port,127.0.0.1:29400", "job", "\"host:port\" is not HOST:PORT");
  refused("192.0.2.7:29400", "job", "no store answers at 192.0.2.7:29400");
  refused("0.0.0.0:29477", "job", "where others could reach it");
  char key[STORE_KEY + 2] = "";
  memset(key, 'k', STORE_KEY + 1);
  assert_int_equal(store->get(store, key, &v, &s.error), PLAIT_BAD_INPUT);
  // What is no request ends that connection, and no other.
  int port = atoi(strrchr(s.endpoint, ':') + 1);
  double until = clock_seconds() + 5;
  assert_int_equal(net_resolve("127.0.0.1", port, &at, NULL), PLAIT_OK);
  int fd = net_connect(&at, until);
  StoreGreeting greeting = STORE_GREETING(store_job("job"));
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_and_versions),
      cmocka_unit_test(many_clients),
      cmocka_unit_test(waits_and_leases),
      cmocka_unit_test(secrets),
      cmocka_unit_test(what_is_refused),
  };
  mkdir("tmp", 0777);
  unsetenv("PLAIT_SECRET");
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
