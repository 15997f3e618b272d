// tier 1; rooms elastic
// Names of machines that are loopback's, as Debian's /etc/hosts has a machine's own: refused where others are to come.
// In a namespace of its own with another /etc/hosts; skipped where that is not allowed.
#include "comm/launcher.h"
#include "comm/net.h"
#include "net/socket.h"
#include "elastic/store.h"
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

static bool has_hosts(void) {
  char name[] = "/tmp/plait-hosts.XXXXXX";
  int file = mkstemp(name);
  FILE *f = fdopen(file, "w");
  fputs("127.0.0.1 localhost\n127.0.1.1 host-a\n127.0.1.1 host-b\n10.77.0.9 host-b\n", f);
  fclose(f);
  bool done = !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
              !mount(name, "/etc/hosts", NULL, MS_BIND, NULL);
  unlink(name);
  return done;
}

static const char refusal[] =
    "host-a is 127.0.1.1 on this machine, where no other machine can reach it; give the address";

static void own_names_are_not_loopback(void **state) {
  (void)state;
  Error error = {0};
  NetAddress at;
  char text[80];
  if (!has_hosts()) skip();
  assert_int_equal(net_resolve("host-b", 5, &at, &error), PLAIT_OK);
  net_describe(&at, text, sizeof text);
  assert_string_equal(text, "10.77.0.9:5"); // not the first one
  assert_int_equal(net_check_name("host-b", &at, &error), PLAIT_OK);
  assert_int_equal(store_check_endpoint("host-b:29400,host-a:29400", 1, &error), PLAIT_BAD_INPUT);
  if (strncmp(error.message, "--rdzv: ", 8) || strncmp(error.message + 8, refusal, strlen(refusal)))
    fail_msg("%s", error.message);
  error = (Error){0};
  assert_int_equal(store_check_endpoint("localhost:29400,127.0.0.1:29400,[::1]:29400", 0, &error), 1);
  assert_int_equal(store_check_endpoint("localhost:29400,127.0.0.1:29400,[::1]:29400", 1, &error), 1);
  assert_int_equal(store_check_endpoint("localhost:29400,127.0.0.1:29400,[::1]:29400", 2, &error), 1);
  assert_int_equal(store_check_endpoint("localhost:29400", 1, &error), 0);
  PlaitWorld *world = NULL;
  setenv("SLURM_STEP_NUM_TASKS", "2", 1);
  setenv("SLURM_PROCID", "0", 1);
  setenv("SLURM_STEP_NUM_NODES", "2", 1);
  setenv("SLURM_STEP_NODELIST", "host-a,host-b", 1);
  assert_int_equal(world_launched_create(WORLD_NET, 0, NET_WIRE_AUTO, &world, &error), PLAIT_BAD_INPUT);
  if (!strstr(error.message, refusal)) fail_msg("%s", error.message);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(own_names_are_not_loopback)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
