// tier 1
// The secret of a job: what the environment says of it, what follows from it, and connections that it opens.
#include "base/clock.h"
#include "comm/launcher.h"
#include "net/channel.h"
#include "net/tls.h"
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static void clear(void) {
  unsetenv("PLAIT_SECRET");
  unsetenv(secret_drawn_variable);
  unsetenv("PLAIT_ENCRYPT");
  unsetenv("PLAIT_INSECURE");
}

static void is_refused(int code, const char *words) {
  Secret secret;
  bool there;
  Error error = {0};
  assert_int_equal(secret_of_environment(&secret, &there, &error), code);
  if (!strstr(error.message, words)) fail_msg("\"%s\" lacks \"%s\"", error.message, words);
}

// Whether there is one.
static bool find(Secret *secret) {
  bool there;
  Error error = {0};
  if (secret_of_environment(secret, &there, &error)) fail_msg("%s", error.message);
  return there;
}

static void drawn(void **state) {
  char text[SECRET_TEXT], other[SECRET_TEXT];
  Secret secret, again;
  Error error = {0};
  clear();
  assert_false(find(&secret));
  secret_draw(text);
  secret_draw(other);
  assert_int_equal(strlen(text), SECRET_TEXT - 1);
  assert_string_not_equal(text, other);
  assert_int_equal(secret_of_text("00ff"
                                  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab",
                                  &secret, &error),
                   0);
  assert_true(secret.key[0] == 0 && secret.key[1] == 0xff && secret.key[2] == 1 && secret.key[31] == 0xab);
  setenv(secret_drawn_variable, text, 1);
  assert_true(find(&secret));
  assert_false(secret.encrypts || secret_is_users() || secret_lets_listen());
  assert_int_equal(secret_of_text(text, &again, &error), PLAIT_OK);
  assert_memory_equal(secret.key, again.key, SECRET_BYTES);
  text[SECRET_TEXT - 2] = 0; // one digit less
  setenv(secret_drawn_variable, text, 1);
  is_refused(PLAIT_FAILED, "the secret of the job that plait launch has drawn (PLAIT_JOB_SECRET) is not one");
  for (const char *bad = "G \nA/"; *bad; bad++) {
    memcpy(text, other, sizeof text);
    text[7] = *bad;
    setenv(secret_drawn_variable, text, 1);
    is_refused(PLAIT_FAILED, "is not one");
  }
  setenv(secret_drawn_variable, "", 1); // there is none
  assert_false(find(&secret));
  clear();
}

static void users(void **state) {
  char path[] = "/tmp/test_secrets_XXXXXX", text[SECRET_TEXT];
  Secret secret, of_launch;
  Error error = {0};
  if (!tls_is_built() || tls_check(&error)) skip();
  clear();
  assert_non_null(mkdtemp(path));
  char *file = xformat("%s/key", path);
  assert_int_equal(secret_make(file, &error), PLAIT_OK);
  setenv("PLAIT_SECRET", file, 1);
  assert_true(find(&secret));
  assert_true(secret.encrypts && secret_is_users() && secret_lets_listen());
  assert_false(secret_encrypts());
  secret_draw(text); // the user's counts
  setenv(secret_drawn_variable, text, 1);
  assert_int_equal(secret_of_text(text, &of_launch, &error), PLAIT_OK);
  assert_true(find(&secret));
  assert_true(secret.encrypts && memcmp(secret.key, of_launch.key, SECRET_BYTES));
  setenv("PLAIT_ENCRYPT", "1", 1);
  assert_true(find(&secret));
  assert_true(secret_encrypts());
  assert_int_equal(chmod(file, 0640), 0);
  is_refused(PLAIT_BAD_INPUT, "its mode is 640");
  unlink(file);
  rmdir(path);
  free(file);
  clear();
}

static void encrypting(void **state) {
  char text[SECRET_TEXT];
  Secret secret;
  PlaitWorld *world;
  Error error = {0};
  clear();
  setenv("PLAIT_ENCRYPT", "0", 1);
  assert_false(find(&secret) || secret_encrypts());
  setenv("PLAIT_ENCRYPT", "yes", 1);
  is_refused(PLAIT_BAD_INPUT, "PLAIT_ENCRYPT is \"yes\"; it must be 1 or 0");
  setenv("PLAIT_ENCRYPT", "1", 1);
  is_refused(PLAIT_BAD_INPUT, "PLAIT_ENCRYPT is 1, which needs a secret as its key");
  secret_draw(text); // which others may have read
  setenv(secret_drawn_variable, text, 1);
  is_refused(PLAIT_BAD_INPUT, "PLAIT_ENCRYPT is 1, which needs a secret as its key");
  unsetenv(secret_drawn_variable);
  assert_int_equal(world_launched_create(WORLD_MPI, 0, NET_WIRE_AUTO, &world, &error), PLAIT_BAD_INPUT);
  if (!strstr(error.message, "MPI carries what these ranks say")) fail_msg("%s", error.message);
  clear();
}

static void derived(void **state) {
  const uint64_t one[] = {1}, two[] = {2};
  const Secret secret = {.key = "the job's", .encrypts = true}, other = {.key = "another's"};
  Secret a = secret_derive(&secret, "purpose", one, 1), again = secret_derive(&secret, "purpose", one, 1);
  const Secret others[] = {secret_derive(&secret, "purpose", two, 1), secret_derive(&secret, "purpos", one, 1),
                           secret_derive(&other, "purpose", one, 1), secret_derive(NULL, "purpose", one, 1), secret};
  assert_true(a.encrypts);
  assert_false(others[2].encrypts || others[3].encrypts);
  assert_memory_equal(a.key, again.key, SECRET_BYTES);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    assert_memory_not_equal(a.key, others[i].key, SECRET_BYTES);
}

// Whether the two ends meet.
static bool meet(const Secret *of_server, const Secret *of_client, char *reason) {
  int ends[2], met = 0, let_in = 0;
  char next[8] = "";
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Channel *server = channel_open(ends[0], true, of_server), *client = channel_open(ends[1], false, of_client);
  for (int i = 0; i < 20 && (!met || !let_in); i++) {
    if (!let_in) let_in = channel_greet(server);
    if (!met) met = channel_greet(client);
  }
  if (met > 0 && let_in > 0) {
    assert_int_equal(channel_send(server, "next", 5), 5);
    assert_int_equal(channel_receive(client, next, sizeof next), 5);
    assert_string_equal(next, "next");
  }
  if (reason) strcpy(reason, channel_reason(client));
  channel_close(server);
  channel_close(client);
  return met > 0 && let_in > 0;
}

static void channels(void **state) {
  const Secret ours = {.key = "the job's"}, other = {.key = "another's"};
  char reason[200];
  assert_true(meet(NULL, NULL, NULL));
  assert_true(meet(&ours, &ours, NULL));
  assert_false(meet(&ours, &other, reason));
  assert_string_equal(reason, "does not have the secret of this job");
  int ends[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Channel *client = channel_open(ends[1], false, &ours); // nobody speaks first
  assert_false(channel_meet(client, clock_seconds() + 0.02));
  assert_string_equal(channel_reason(client), "does not answer");
  assert_int_equal(channel_waits_for(client), POLLIN);
  assert_int_equal(write(ends[0], "GET / HTTP/1.1, and more than a head of a hello has bytes", 57), 57);
  assert_false(channel_meet(client, clock_seconds() + 5));
  assert_string_equal(channel_reason(client), "is not plait");
  channel_close(client);
  close(ends[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(drawn), cmocka_unit_test(users), cmocka_unit_test(encrypting),
                                     cmocka_unit_test(derived), cmocka_unit_test(channels)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
