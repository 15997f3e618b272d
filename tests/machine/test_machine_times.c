// tier 1; rooms machine foresight setup; numbers
// MachineTimes: the same questions asked of a cluster, of one measured product, and of a device of which only the kind
// is known.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "machine/devices.h"
#include "machine/machine_times.h"
#include "program/cost.h"
#include "program/traffic.h"
#include "simulated.h"

// A product of (1000, 500) and (500, 200), and 3e6 other FLOPs.
static const OpWork work = {.matrix = 2e8, .vector = 3e6, .read = 2.4e6, .written = 8e5, .products = 1,
                            .product = {{.m = 1000, .n = 200, .k = 500, .c = 1}}};

static void a_cluster_answers_as_the_simulator(void **state) {
  Cluster cluster = machines(0);
  const MachineTimes times = machine_times(&cluster, NULL);
  const GroupOnLinks group = {.ranks = 8, .span = {4, 2}};
  assert_true(machine_seconds(&times, DTYPE_BF16, &work) ==
              kernel_seconds(&cluster.device, &cluster.software, DTYPE_BF16, &work, 0, 0, cluster.constants));
  assert_true(machine_collective_seconds(&times, COLLECTIVE_ALL_GATHER, &group, 1e8) ==
              collective_seconds(&cluster, COLLECTIVE_ALL_GATHER, &group, 1e8).seconds);
  IslandFacts island = {.device = cluster.device, .first = 4, .count = 4};
  island.device.matrix[DTYPE_BF16] *= 3;
  assert_true(machine_rate(&times, DTYPE_BF16) == cluster.device.matrix[DTYPE_BF16]);
  vec_push(&cluster.island, island);
  assert_true(machine_rate(&times, DTYPE_BF16) == island.device.matrix[DTYPE_BF16]);
  vec_free(&cluster.island);
  Case c = compiled_by("mesh.dp=2 mesh.pp=2");
  double step;
  Error error = {0};
  if (machine_step_seconds(&times, job_train(c.job)->program, &step, &error)) fail_msg("%s", error.message);
  assert_true(step == seconds(&c, &cluster));
  release(&c);
}

// Without products: bytes alone. A device of the host moves more bytes for each FLOP than a GPU.
static void kinds_of_devices_weigh_bytes(void **state) {
  const MachineTimes host = machine_times(NULL, device_cpu()), other = machine_times(NULL, device_cuda());
  const OpWork copy = {.read = 1e6, .written = 1e6};
  assert_near(machine_seconds(&host, DTYPE_F32, &work), 1e-12 * 2e8 + 8e-12 * 3e6, 1e-12, "FLOPs count");
  assert_near(machine_seconds(&other, DTYPE_F32, &work), 1e-12 * 150 * 3.2e6 + 8e-12 * 3e6, 1e-12, "bytes count");
  assert_near(machine_seconds(&host, DTYPE_F32, &copy), 1e-12 * 16 * 2e6, 1e-12, "a copy");
  assert_true(machine_rate(&host, DTYPE_F32) == 0);
}

static double rank_seconds(const Program *p, double peak, double threads) {
  ProgramCost cost = program_cost(p);
  TrafficList traffic = {0};
  program_traffic(p, &traffic);
  for (int i = 0; i < traffic.count; i++) cost.bytes += 2 * traffic.data[i].bytes;
  vec_free(&traffic);
  return cost.flops / (0.95 * peak) + cost.bytes / (12e9 * threads) + 6e-6 * cost.calls +
         cost.reference / (200e6 * fmin(1, threads));
}

// 1F1B of 2 stages and 4 microbatches leaves each rank a fifth of the time without work, (p - 1) / (m + p - 1).
static void one_product_answers_for_all(void **state) {
  const MachineTimes half = machine_times_of_peak(1e11, 0.5, false), two = machine_times_of_peak(4e11, 2, true);
  assert_near(machine_seconds(&two, DTYPE_F32, &work), 2e8 / (0.95 * 4e11) + 3.2e6 / 24e9 + 6e-6, 1e-12, "a call");
  assert_true(machine_rate(&two, DTYPE_F32) == 4e11);
  Case c = compiled_by("mesh.dp=2 mesh.pp=2 batch.global=16 parallel.pipeline=1f1b");
  Program *const *p = job_train(c.job)->program;
  assert_int_equal(p[0]->schedule->microbatches, 4);
  double step, a = rank_seconds(p[0], 1e11, 0.5), b = rank_seconds(p[1], 1e11, 0.5);
  assert_int_equal(machine_step_seconds(&half, p, &step, NULL), PLAIT_OK);
  assert_near(step, fmax(a, b) / (1 - 1.0 / 5), 1e-9, "ranks that wait");
  a = rank_seconds(p[0], 4e11, 2), b = rank_seconds(p[1], 4e11, 2);
  assert_int_equal(machine_step_seconds(&two, p, &step, NULL), PLAIT_OK);
  assert_near(step, (a + b) / 2, 1e-9, "ranks that help each other");
  release(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_cluster_answers_as_the_simulator),
                                     cmocka_unit_test(kinds_of_devices_weigh_bytes),
                                     cmocka_unit_test(one_product_answers_for_all)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, make_model, remove_folder);
}
