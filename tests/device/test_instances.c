// tier 1 2; rooms runtime; numbers
// Devices by table, and a kind of which a process has several: each rank has its own instance.
#include "proof.h"
#include "twin.h"
#include "runtime/session.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the three above first
#include <cmocka.h>

static void every_kind_is_described(void **state) {
  for (int k = 0; k < DEVICE_KINDS; k++) {
    const Device *device = device_describe((DeviceKind)k);
    assert_int_equal(device->kind, k);
    assert_true(device->dtypes >> DTYPE_F32 & 1);
    Error error = {0};
    const Device *instance = NULL;
    int code = device_instance(device, 3, &instance, &error);
    if (device_shares_host((DeviceKind)k)) assert_int_equal(code, PLAIT_OK);
    assert_non_null(device->implementation);
    if (!code && !device->implementation->instance) assert_ptr_equal(instance, device);
  }
  assert_ptr_equal(device_describe(DEVICE_AUTO), device_cpu()); // asks no driver
  assert_string_equal(device_kind_name(DEVICE_CPU), "cpu");
}

static void spaces_have_names(void **state) {
  char text[160], *before = getenv("PLAIT_SPACE") ? xstrdup(getenv("PLAIT_SPACE")) : NULL;
  setenv("PLAIT_SPACE", "far", 1);
  assert_int_equal(device_space_wish(text, sizeof text), 1);
  assert_false(device_cpu()->space[0].is_host);
  setenv("PLAIT_SPACE", "mirror", 1);
  assert_int_equal(device_space_wish(text, sizeof text), 2);
  assert_true(device_needs_mirror(device_cpu()));
  setenv("PLAIT_SPACE", "host", 1);
  assert_int_equal(device_space_wish(text, sizeof text), 0);
  assert_true(device_cpu()->space[0].is_host);
  setenv("PLAIT_SPACE", "moon", 1);
  assert_int_equal(device_space_wish(text, sizeof text), -1);
  assert_string_equal(text, "PLAIT_SPACE is \"moon\"; allowed: host, and far or mirror for tests");
  if (before) setenv("PLAIT_SPACE", before, 1);
  else unsetenv("PLAIT_SPACE");
  free(before);
}

static void ranks_have_instances_of_their_own(void **state) {
  const Device *device = twin_device(device_cpu());
  proof_run(&(Proof){.keys = "mesh.dp=3", .device = device, .first = 1, .last = 1});
  assert_int_equal(twin_allocations(0), 2); // of ranks 0 and 2
  assert_int_equal(twin_allocations(1), 1);
  assert_true(twin_runs(1) > 100);
  assert_int_equal(twin_runs(0), 2 * twin_runs(1));
}

static void a_second_device_trains(void **state) {
  proof_of(&(Proof){.device = twin_device(device_cpu())});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_is_described), cmocka_unit_test(spaces_have_names),
      cmocka_unit_test(ranks_have_instances_of_their_own), cmocka_unit_test(a_second_device_trains)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
