// Times of collectives: the α–β formulas, groups over several levels, shared ports, measurements, and what must never
// happen when something gets faster.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "machines.h"
#include "machine/collective_time.h"

static int close_to(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }
static double share(ConstantId id) { return constant(NULL, id); }

// One level: base + hops · latency + what a rank sends, for 2 … 64 ranks.
static void formulas(void **state) {
  for (int n = 2; n <= 64; n++) {
    Cluster c = {.level = {{"switch", LEVEL_SWITCH, 64, 2, 10e9, 3e-6, 1}}, .levels = 1, .base = {7e-6, 9e-6}};
    GroupOnLinks g = {n, {n}, {1}};
    double s = 1e6 * n, rate = 20e9 * share(CONSTANT_LINK_SHARE), up = ceil(log2(n));
    struct { CollectiveKind kind; CollectiveAlgorithm algorithm; double hops, bytes; } row[] = {
        {COLLECTIVE_ALL_REDUCE, COLLECTIVE_BY_RING, 2 * (n - 1), 2 * (n - 1.) / n * s},
        {COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_BY_RING, n - 1, (n - 1.) / n * s},
        {COLLECTIVE_ALL_GATHER, COLLECTIVE_BY_RING, n - 1, (n - 1.) / n * s},
        {COLLECTIVE_ALL_TO_ALL, COLLECTIVE_BY_PAIRWISE, n - 1, (n - 1.) / n * s},
        {COLLECTIVE_BROADCAST, COLLECTIVE_BY_RING, n - 1, s},
        {COLLECTIVE_REDUCE, COLLECTIVE_BY_TREE, up, s / share(CONSTANT_TREE_SHARE)},
        {COLLECTIVE_ALL_REDUCE, COLLECTIVE_BY_TREE, 2 * up, 2 * s / share(CONSTANT_TREE_SHARE)},
        {COLLECTIVE_SHIFT, COLLECTIVE_BY_RING, 1, s},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
      CollectiveTime t = collective_by(&c, row[i].kind, row[i].algorithm, &g, s);
      assert_true(close_to(t.seconds, 7e-6 + row[i].hops * 3e-6 + row[i].bytes / rate));
      assert_true(close_to(t.latency, row[i].hops * 3e-6) && close_to(t.transfer, row[i].bytes / rate));
    }
    double all = collective_by(&c, COLLECTIVE_ALL_REDUCE, COLLECTIVE_BY_RING, &g, s).transfer;
    double parts = collective_by(&c, COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_BY_RING, &g, s).transfer +
                   collective_by(&c, COLLECTIVE_ALL_GATHER, COLLECTIVE_BY_RING, &g, s).transfer;
    assert_true(close_to(all, parts));
  }
}

static void one_rank(void **state) {
  Cluster c = two_levels(8, 4, 8);
  GroupOnLinks g = {1, {1, 1}, {1, 1}};
  for (int k = 0; k < COLLECTIVE_KINDS; k++) {
    CollectiveTime t = collective_seconds(&c, k, &g, 1e9);
    assert_true(t.seconds == 0 && t.algorithm == COLLECTIVE_BY_NONE);
    assert_int_equal(collective_kind_by_name(collective_kind_name(k)), k);
  }
  assert_int_equal(collective_kind_by_name("allreduce"), -1);
}

// 8 devices and 8 ports a node: a group with one rank a node has one port, with all 8 ranks it has 8. With 4 ports two
// such groups share one.
static void ports(void **state) {
  double port = 25e9 * share(CONSTANT_NETWORK_SHARE);
  Cluster eight = two_levels(8, 16, 8), four = two_levels(8, 16, 4), sixteen = two_levels(8, 16, 16);
  GroupOnLinks one = {16, {1, 16}, {1, 1}}, two = {32, {2, 16}, {1, 1}}, all = {128, {8, 16}, {1, 1}};
  assert_true(close_to(group_bandwidth(&eight, 1, &one), port));
  assert_true(close_to(group_bandwidth(&eight, 1, &two), 2 * port));
  assert_true(close_to(group_bandwidth(&eight, 1, &all), 8 * port));
  assert_true(close_to(group_bandwidth(&four, 1, &all), 4 * port));
  assert_true(close_to(group_bandwidth(&sixteen, 1, &one), 2 * port));
  one.sharing[1] = 2;
  assert_true(close_to(group_bandwidth(&four, 1, &one), port / 2));
  CollectiveTime t = collective_by(&four, COLLECTIVE_ALL_REDUCE, COLLECTIVE_BY_RING, &one, 1e9);
  assert_true(close_to(t.transfer, 2 * 15. / 16 * 1e9 / (port / 2)) && t.level == 1);
}

// A ring through 2 nodes of 4: 6 hops inside of 8 - 1 and one across; the nodes' ports bound it. Hierarchical: a turn
// inside, one across, none of them at once.
static void two_levels_deep(void **state) {
  Cluster c = two_levels(4, 2, 4);
  c.base[0] = 1e-6, c.base[1] = 2e-6;
  GroupOnLinks g = {8, {4, 2}, {1, 1}};
  double inner = 300e9 * share(CONSTANT_LINK_SHARE), outer = 4 * 25e9 * share(CONSTANT_NETWORK_SHARE), s = 1e9;
  CollectiveTime ring = collective_by(&c, COLLECTIVE_ALL_REDUCE, COLLECTIVE_BY_RING, &g, s);
  assert_true(close_to(ring.latency, 2 * (6 * 1e-6 + 1 * 5e-6)));
  assert_true(close_to(ring.transfer, 2 * 7. / 8 * s / outer) && ring.level == 1 && ring.base == 2e-6);
  CollectiveTime h = collective_by(&c, COLLECTIVE_ALL_REDUCE, COLLECTIVE_BY_HIERARCHICAL, &g, s);
  assert_true(close_to(h.transfer, 2 * (3. / 4 * s / inner + 1. / 2 * s / outer)));
  assert_true(close_to(h.latency, 2 * (3 * 1e-6 + 5e-6)) && close_to(h.base, 2e-6 + 2 * 1e-6));
  CollectiveTime best = collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &g, s);
  assert_true(best.algorithm == COLLECTIVE_BY_HIERARCHICAL && best.seconds == h.seconds);
  CollectiveTime a = collective_by(&c, COLLECTIVE_ALL_TO_ALL, COLLECTIVE_BY_PAIRWISE, &g, s);
  assert_true(close_to(a.transfer, 4 * s / 8 * 4 / outer) && close_to(a.latency, 3 * 1e-6 + 4 * 5e-6));
}

// Few bytes on many ranks: the tree's few hops. Many bytes in a node: the ring.
static void cheapest(void **state) {
  Cluster c = two_levels(8, 64, 8);
  GroupOnLinks g = {64, {1, 64}, {1, 1}}, node = {8, {8, 1}, {1, 1}};
  assert_int_equal(collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &g, 1e3).algorithm, COLLECTIVE_BY_TREE);
  assert_int_equal(collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &node, 1e10).algorithm, COLLECTIVE_BY_RING);
  assert_int_equal(collective_seconds(&c, COLLECTIVE_BROADCAST, &g, 1e3).algorithm, COLLECTIVE_BY_TREE);
}

static double rate_on(LevelKind kind, int ports, int span, int sharing) {
  Cluster c = {.level = {{"links", kind, 8, ports, 10e9, 0, 2}}, .levels = 1};
  GroupOnLinks g = {span, {span}, {sharing}};
  return group_bandwidth(&c, 0, &g) / share(CONSTANT_LINK_SHARE);
}

static void kinds_of_levels(void **state) {
  assert_true(close_to(rate_on(LEVEL_SWITCH, 1, 8, 1), 5e9));   // oversubscription 2
  assert_true(close_to(rate_on(LEVEL_RING, 2, 8, 1), 20e9));    // both ways round
  assert_true(close_to(rate_on(LEVEL_RING, 2, 4, 1), 10e9));    // a part of the ring does not close
  assert_true(close_to(rate_on(LEVEL_MESH, 7, 8, 1), 70e9));    // a link to each of the others
  assert_true(close_to(rate_on(LEVEL_MESH, 7, 2, 1), 10e9));
  assert_true(close_to(rate_on(LEVEL_BUS, 1, 8, 1), 10e9 / 8)); // all share one
  assert_true(close_to(rate_on(LEVEL_BUS, 1, 2, 4), 10e9 / 8));
}

// Nodes in pods: what leaves a pod also goes through the ports of its nodes.
static void three_levels(void **state) {
  Cluster c = {.level = {{"nvlink", LEVEL_SWITCH, 8, 1, 300e9, 1e-6, 1},
                         {"rail", LEVEL_SWITCH, 4, 8, 10e9, 2e-6, 1},
                         {"spine", LEVEL_SWITCH, 4, 1000, 10e9, 4e-6, 1}},
               .levels = 3};
  GroupOnLinks g = {4, {1, 1, 4}, {1, 1, 1}}; // a rank in each pod: one port of its node bounds it
  CollectiveTime t = collective_by(&c, COLLECTIVE_ALL_GATHER, COLLECTIVE_BY_RING, &g, 1e9);
  assert_true(t.level == 1 && close_to(t.transfer, 3. / 4 * 1e9 / (10e9 * share(CONSTANT_NETWORK_SHARE))));
  assert_true(close_to(t.latency, 3 * 4e-6));
  CollectiveTime h = collective_by(&c, COLLECTIVE_ALL_GATHER, COLLECTIVE_BY_HIERARCHICAL, &g, 1e9);
  assert_true(close_to(h.transfer, t.transfer));
}

// Switches that add: an all_reduce in a node moves its bytes once; other kinds and few bytes keep their rings.
static void switches_that_add(void **state) {
  Cluster c = two_levels(8, 2, 8);
  GroupOnLinks node = {8, {8, 1}, {1, 1}}, both = {16, {8, 2}, {1, 1}};
  assert_true(collective_by(&c, COLLECTIVE_ALL_REDUCE, COLLECTIVE_BY_NVLS, &node, 1e9).seconds == INFINITY);
  c.level[0].reduces = 1;
  double inside = 1e9 / (300e9 * share(CONSTANT_NVLS_SHARE));
  CollectiveTime t = collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &node, 1e9);
  assert_true(t.algorithm == COLLECTIVE_BY_NVLS && close_to(t.seconds, inside + share(CONSTANT_NVLS_LATENCY)));
  CollectiveTime across = collective_by(&c, COLLECTIVE_ALL_REDUCE, COLLECTIVE_BY_NVLS, &both, 1e9);
  assert_true(close_to(across.transfer, inside + 1e9 / (8 * 25e9 * share(CONSTANT_NETWORK_SHARE))) &&
              across.level == 0);
  assert_int_equal(collective_seconds(&c, COLLECTIVE_ALL_GATHER, &node, 1e9).algorithm, COLLECTIVE_BY_RING);
  assert_true(collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &node, 1e3).algorithm != COLLECTIVE_BY_NVLS);
}

// Bus bandwidths that others measured with NCCL, in GB/s: 2 (n - 1) / n · bytes / seconds of an all_reduce of 1 GiB.
static void check_bus(const char *what, double link, int nodes, int ports, double port, int nvls, double measured,
                      double most_error) {
  Cluster c = two_levels(8, nodes, ports);
  c.level[0].bandwidth = link, c.level[1].bandwidth = port, c.level[0].reduces = nvls;
  c.base[0] = c.base[1] = -1;
  GroupOnLinks g = {8 * nodes, {8, nodes}, {1, 1}};
  double bytes = 1 << 30, n = g.ranks, seconds = collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &g, bytes).seconds;
  double bus = 2 * (n - 1) / n * bytes / seconds / 1e9, error = bus / measured - 1;
  printf("all_reduce of 1 GiB, %s: %.1f GB/s of bus bandwidth, measured %.1f (%+.1f%%)\n", what, bus, measured,
         100 * error);
  assert_true(fabs(error) < most_error);
}

static void measured_elsewhere(void **state) {
  check_bus("8 A100 (nccl issue 527)", 300e9, 1, 8, 25e9, 0, 230.8, 0.1);
  check_bus("8 H100, ring (nccl-tests issue 212)", 450e9, 1, 8, 50e9, 0, 370, 0.1);
  check_bus("8 H100, NVLS (nccl-tests issue 212)", 450e9, 1, 8, 50e9, 1, 480, 0.1);
  // Networks that fall short of their links: a formula does not know; `measured:` of the cluster file does.
  check_bus("2 nodes of 8 A100, 4 ports of 200 Gb/s (nccl issue 1048)", 300e9, 2, 4, 25e9, 0, 86, 0.25);
  check_bus("4 nodes of 8 A100, 4 ports of 100 Gb/s, EFA (nccl issue 527)", 300e9, 4, 4, 12.5e9, 0, 29.6, 0.7);
}

static void messages(void **state) {
  Cluster c = two_levels(8, 4, 8);
  c.base[0] = 1e-6, c.base[1] = 2e-6;
  double outer = 25e9 * share(CONSTANT_NETWORK_SHARE);
  assert_true(close_to(transfer_seconds(&c, 0, 1, 3e8), 2e-6 + 1e-3 / share(CONSTANT_LINK_SHARE)));
  assert_true(close_to(transfer_seconds(&c, 1, 1, 1e9), 7e-6 + 1e9 / outer));
  assert_true(close_to(transfer_seconds(&c, 1, 2, 1e9), 7e-6 + 2e9 / outer));
  c.base[1] = -1;
  assert_true(close_to(transfer_seconds(&c, 1, 1, 0), share(CONSTANT_COLLECTIVE_BASE) + 5e-6));
}

// Measurements of these ranks on these nodes go before formulas, between them by logarithms.
static void measurements(void **state) {
  MeasuredCollective rows[] = {{"all_reduce", 16, 2, 1e6, 1e-4}, {"all_reduce", 16, 2, 1e8, 1e-2},
                               {"all_reduce", 16, 2, 1e7, 5e-5}, {"all_reduce", 8, 1, 1e6, 1},
                               {"all_gather", 16, 2, 1e6, 2},    {"all_reduce", 16, 4, 1e6, 3}};
  Cluster c = two_levels(8, 4, 8);
  c.measured.data = rows, c.measured.count = 2;
  GroupOnLinks g = {16, {8, 2}, {1, 1}};
  CollectiveTime t = collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &g, 1e7);
  assert_true(t.algorithm == COLLECTIVE_BY_MEASURED && close_to(t.seconds, 1e-3) && t.level == 1);
  c.measured.count = 6;
  assert_true(close_to(collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &g, 1e6).seconds, 1e-4));
  assert_true(close_to(collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &g, 1e7).seconds, 1e-4)); // not faster than 1e6
  assert_true(close_to(collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &g, 10).seconds, 1e-4));
  assert_true(close_to(collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &g, 1e9).seconds, 1e-1));
  assert_true(collective_seconds(&c, COLLECTIVE_REDUCE_SCATTER, &g, 1e7).algorithm != COLLECTIVE_BY_MEASURED);
  GroupOnLinks shared = {16, {8, 2}, {1, 2}}; // as if it moved twice the bytes
  assert_true(close_to(collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &shared, 5e7).seconds, 1e-2));
  GroupOnLinks other = {16, {4, 4}, {1, 1}};
  assert_true(collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &other, 1e6).seconds == 3);
  GroupOnLinks more = {12, {4, 3}, {1, 1}};
  assert_true(collective_seconds(&c, COLLECTIVE_ALL_REDUCE, &more, 1e6).algorithm != COLLECTIVE_BY_MEASURED);
}

static Cluster random_cluster(Random *r, GroupOnLinks *g) {
  Cluster c = {.levels = random_int(r, 1, 4)};
  *g = (GroupOnLinks){.ranks = 1};
  for (int l = 0; l < c.levels; l++) {
    int count = random_int(r, 1, 9);
    c.level[l] = (LevelFacts){"level",
                              random_int(r, 0, LEVEL_KINDS - 1),
                              count,
                              random_int(r, 1, 16),
                              random_between(r, 1e8, 1e12),
                              random_between(r, 1e-7, 1e-5),
                              random_between(r, 1, 3),
                              random_int(r, 0, 1)};
    g->span[l] = random_int(r, 1, count), g->sharing[l] = random_int(r, 0, 4);
    g->ranks *= g->span[l];
  }
  c.base[0] = random_between(r, 1e-7, 1e-5), c.base[1] = random_between(r, 1e-7, 1e-5);
  return c;
}

// All bandwidths × k, all latencies ÷ k: the time ÷ k. More bandwidth or fewer groups on a link: never slower. More
// bytes: never faster.
static void laws(void **state) {
  Random r = {philox_key(5, 0, 0)};
  for (int i = 0; i < 3000; i++) {
    GroupOnLinks g;
    Constants scaled = constants_default();
    Cluster c = random_cluster(&r, &g), d = c;
    CollectiveKind kind = random_int(&r, 0, COLLECTIVE_KINDS - 1);
    double bytes = random_between(&r, 1, 1e10), k = random_between(&r, 0.1, 10);
    CollectiveTime t = collective_seconds(&c, kind, &g, bytes);
    assert_true(isfinite(t.seconds) && t.seconds >= 0 && (g.ranks > 1) == (t.seconds > 0));
    for (int l = 0; l < d.levels; l++) d.level[l].bandwidth *= k, d.level[l].latency /= k;
    d.base[0] /= k, d.base[1] /= k, scaled.value[CONSTANT_NVLS_LATENCY] /= k, d.constants = &scaled;
    assert_true(fabs(collective_seconds(&d, kind, &g, bytes).seconds * k - t.seconds) <= 1e-9 * t.seconds);
    double message = transfer_seconds(&c, t.level, 2, bytes);
    assert_true(close_to(transfer_seconds(&d, t.level, 2, bytes) * k, message));
    assert_true(transfer_seconds(&c, t.level, 3, bytes) >= message);
    int l = random_int(&r, 0, c.levels - 1);
    d = c, d.level[l].bandwidth *= 1.5;
    assert_true(collective_seconds(&d, kind, &g, bytes).seconds <= t.seconds * (1 + 1e-12));
    d = c, d.level[l].latency /= 1.5;
    assert_true(collective_seconds(&d, kind, &g, bytes).seconds <= t.seconds * (1 + 1e-12));
    assert_true(collective_seconds(&c, kind, &g, bytes * 1.1).seconds >= t.seconds * (1 - 1e-12));
    g.sharing[l]++;
    assert_true(collective_seconds(&c, kind, &g, bytes).seconds >= t.seconds * (1 - 1e-12));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(formulas),        cmocka_unit_test(one_rank),     cmocka_unit_test(ports),
      cmocka_unit_test(two_levels_deep), cmocka_unit_test(cheapest),     cmocka_unit_test(kinds_of_levels),
      cmocka_unit_test(three_levels),    cmocka_unit_test(messages),     cmocka_unit_test(measurements),
      cmocka_unit_test(switches_that_add), cmocka_unit_test(measured_elsewhere),
      cmocka_unit_test(laws)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
