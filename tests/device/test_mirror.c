// tier 1 2; rooms comm runtime; numbers
// A device whose memory neither the host nor its communicators reach: collectives and messages go through host memory
// beside it (PLAIT_SPACE=mirror).
#include "proof.h"
#include "runtime/session.h"
#include "tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
// cmocka wants the three above first
#include <cmocka.h>

static const Device *mirrored(void) {
  static Device device;
  if (!device.spaces) device = device_in_mirror(device_cpu());
  return &device;
}

static void nobody_has_a_pointer(void **state) {
  Device far = device_in_far(device_cpu()), planned = *device_cuda();
  assert_false(mirrored()->space[0].is_host);
  assert_null(mirrored()->implementation->host_pointer);
  assert_true(device_needs_mirror(mirrored()));
  assert_false(device_needs_mirror(device_cpu()));
  assert_false(device_needs_mirror(&far));
  assert_true(device_needs_mirror(&planned));
}

static void collectives_go_through_it(void **state) {
  proof_of(&(Proof){.device = mirrored()});
}

// The rank's thread, which puts kernels into the queue, and those of its streams.
static _Thread_local int is_rank;
static atomic_int rank_waits, stream_waits;

static void run(DeviceQueue *queue, const DeviceBound *bound, const KernelCall *call) {
  is_rank = 1;
  mirrored()->implementation->run(queue, bound, call);
}

static int wait_for(DeviceEvent event, Error *e) {
  atomic_fetch_add(is_rank ? &rank_waits : &stream_waits, 1);
  return mirrored()->implementation->wait(event, e);
}

static int waits_of(const char *keys, int *by_streams) {
  DeviceImplementation counting = *mirrored()->implementation;
  Device device = *mirrored();
  counting.run = run;
  counting.wait = wait_for;
  device.implementation = &counting;
  rank_waits = stream_waits = 0;
  proof_run(&(Proof){.keys = keys, .device = &device, .first = 1, .last = 1});
  *by_streams = stream_waits;
  return rank_waits;
}

// What is in flight waits for kernels on its stream, and the rank puts further ones into the queue meanwhile.
static void collectives_in_flight_do_not_stop_the_rank(void **state) {
  int early, late;
  int in_flight = waits_of("mesh.dp=2 parallel.zero=2", &early),
      alone = waits_of("mesh.dp=2 parallel.zero=2 parallel.overlap=false", &late);
  assert_in_range(early - late, 8, alone); // `late`: those of ranks that write their State before the first kernel
  assert_true(in_flight + early - late <= alone);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(nobody_has_a_pointer),
                                     cmocka_unit_test(collectives_go_through_it),
                                     cmocka_unit_test(collectives_in_flight_do_not_stop_the_rank)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
