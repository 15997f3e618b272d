// tier 1; rooms elastic comm
// Endpoints: what is one, with and without a port, and that what is printed is read again.
#include "base/endpoint.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct Row { const char *text, *host; int port; } Row; // host NULL: it is none

// Where a port must be there.
static const Row with_port[] = {
    {"hostA:29400", "hostA", 29400},
    {"host-a.example_1.org:1", "host-a.example_1.org", 1},
    {"127.0.0.1:65535", "127.0.0.1", 65535},
    {"[::1]:24430", "::1", 24430},
    {"::1:24430", "::1", 24430},
    {"::1:2443", "::1", 2443},
    {"[fe80::1%eth0]:5", "fe80::1%eth0", 5},
    {"fe80::1%eth0:5", "fe80::1%eth0", 5},
    {"[::ffff:10.0.0.1]:80", "::ffff:10.0.0.1", 80},
    {"2001:db8:0:1:2:3:4:5:80", "2001:db8:0:1:2:3:4:5", 80},
    {"[2001:DB8::]:80", "2001:DB8::", 80},
    {"", NULL, 0},
    {"hostA", NULL, 0},
    {"hostA:", NULL, 0},
    {":29400", NULL, 0},
    {"hostA:0", NULL, 0},
    {"hostA:65536", NULL, 0},
    {"hostA:999999999999", NULL, 0},
    {"hostA:1x", NULL, 0},
    {"hostA:-1", NULL, 0},
    {"hostA:+1", NULL, 0},
    {"hostA: 1", NULL, 0},
    {"host A:1", NULL, 0},
    {"host/a:1", NULL, 0},
    {"[::1]", NULL, 0},
    {"[::1]24430", NULL, 0},
    {"[::1]:", NULL, 0},
    {"[::1:24430", NULL, 0},
    {"::1]:24430", NULL, 0},
    {"[]:1", NULL, 0},
    {"[hostA]:1", NULL, 0},
    {"[127.0.0.1]:1", NULL, 0},
    {"a:b:1", NULL, 0},
    {"::1", NULL, 0},
    {"1:2:3:4:5:6:7:8", NULL, 0},
    {"[fe80::1%]:5", NULL, 0},
    {"[:::1]:5", NULL, 0},
    {"http://a:1", NULL, 0},
    {"[[::1]]:1", NULL, 0},
};
// And where it may be left out.
static const Row without[] = {
    {"hostA", "hostA", 0}, {"hostA:29400", "hostA", 29400}, {"[::1]", "::1", 0}, {"::1", "::1", 0},
    {"::1:2443", "::1:2443", 0}, {"::1:24430", "::1", 24430}, {"[::1]:24430", "::1", 24430}, {"::", "::", 0},
    {"fe80::1%eth0", "fe80::1%eth0", 0}, {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8", 0}, {"10.0.0.1", "10.0.0.1", 0},
    {"", NULL, 0}, {"[]", NULL, 0}, {"hostA:", NULL, 0}, {"[::1", NULL, 0}, {"a:b", NULL, 0}, {"a b", NULL, 0},
};

static void check(const Row *rows, size_t count, bool needed) {
  for (size_t i = 0; i < count; i++) {
    const Row *row = &rows[i];
    Endpoint e, again;
    char text[ENDPOINT_TEXT], longer[300];
    snprintf(longer, sizeof longer, "%s,next:1", row->text); // only the bytes that are asked for count
    bool good = endpoint_parse(longer, strlen(row->text), needed, &e);
    if (good != (row->host != NULL)) fail_msg("%s: %d", row->text, good);
    if (!good) continue;
    if (strcmp(e.host, row->host) || e.port != row->port) fail_msg("%s: %s, %d", row->text, e.host, e.port);
    endpoint_print(e.host, e.port, text);
    if (!endpoint_parse(text, strlen(text), needed, &again) || strcmp(again.host, e.host) || again.port != e.port)
      fail_msg("%s is printed as %s", row->text, text);
  }
}

static void endpoints(void **state) {
  check(with_port, sizeof with_port / sizeof *with_port, true);
  check(without, sizeof without / sizeof *without, false);
}

static void long_hosts(void **state) {
  char text[400];
  Endpoint e;
  for (size_t n = 250; n < 260; n++) {
    memset(text, 'a', n);
    memcpy(text + n, ":29400", 7);
    assert_int_equal(endpoint_parse(text, n + 6, true, &e), n < ENDPOINT_HOST);
    assert_int_equal(endpoint_parse(text, n, false, &e), n < ENDPOINT_HOST);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(endpoints), cmocka_unit_test(long_hosts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
