// Flows on shared links: cases that one can compute by hand, and random ones against a slow reference that fills rates
// by bisection.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include "machines.h"
#include "machine/flows.h"

enum { MOST_FLOWS = 12, MOST_LINKS = 6 };
static const int first[] = {0}, second[] = {1}, both[] = {0, 1};

static void two_flows_halve(void **state) {
  Flow f[] = {{.bytes = 100, .link = first, .links = 1}, {.bytes = 100, .link = first, .links = 1}};
  flows_run(f, 1, (double[]){10}, 1);
  assert_true(f[0].end == 10);
  flows_run(f, 2, (double[]){10}, 1);
  assert_true(f[0].end == 20 && f[1].end == 20);
}

// The second begins when half of the first is through, and the third on another link meets nobody.
static void later_ones_join(void **state) {
  Flow f[] = {{.bytes = 100, .link = first, .links = 1},
              {.start = 3, .latency = 2, .bytes = 100, .link = first, .links = 1},
              {.start = 1, .bytes = 100, .link = second, .links = 1},
              {.start = 4, .latency = 1, .bytes = 0, .link = first, .links = 1},
              {.start = 4, .latency = 1, .bytes = 7}};
  flows_run(f, 5, (double[]){10, 20}, 2);
  assert_true(f[0].end == 15 && f[1].end == 20 && f[2].end == 6 && f[3].end == 5 && f[4].end == 5);
}

// Bertsekas and Gallager's point: a flow over two links gets what its narrower one allows, others take the rest.
static void the_rest_goes_to_others(void **state) {
  Flow f[] = {{.link = both, .links = 2}, {.link = first, .links = 1}, {.link = second, .links = 1}};
  const Flow *at[] = {&f[0], &f[1], &f[2]};
  double rate[3];
  flows_rates(at, 3, (double[]){10, 30}, 2, rate);
  assert_true(rate[0] == 5 && rate[1] == 5 && rate[2] == 25);
}

// Whether these rates fit on all links.
static int fits(const Flow *const *flow, int flows, const double *capacity, int links, const double *rate) {
  for (int l = 0; l < links; l++) {
    double sum = 0;
    for (int f = 0; f < flows; f++)
      for (int i = 0; i < flow[f]->links; i++) sum += flow[f]->link[i] == l ? rate[f] : 0;
    if (sum > capacity[l] * (1 + 1e-13)) return 0;
  }
  return 1;
}

// Max-min by its definition: all that may still grow grow alike, as far as fits (bisection); whoever cannot grow alone
// from there stays.
static void slow_rates(const Flow *const *flow, int flows, const double *capacity, int links, double *rate) {
  int done[MOST_FLOWS] = {0};
  for (int rest = flows; rest;) {
    double low = 0, high = 1e6, trial[MOST_FLOWS];
    for (int i = 0; i < 200; i++) {
      double middle = (low + high) / 2;
      for (int f = 0; f < flows; f++) trial[f] = done[f] ? rate[f] : middle;
      *(fits(flow, flows, capacity, links, trial) ? &low : &high) = middle;
    }
    for (int f = 0; f < flows; f++) trial[f] = done[f] ? rate[f] : low;
    int stopped = 0;
    for (int f = 0; f < flows; f++) {
      if (done[f]) continue;
      rate[f] = low;
      double was = trial[f];
      trial[f] = low * (1 + 1e-9);
      if (!fits(flow, flows, capacity, links, trial)) done[f] = 1, stopped++;
      trial[f] = was;
    }
    assert_true(stopped > 0);
    rest -= stopped;
  }
}

// From moment to moment: everything again from the beginning of each, nothing kept but the bytes left.
static void slow_run(Flow *flow, int flows, const double *capacity, int links) {
  double left[MOST_FLOWS], now = 0;
  for (int f = 0; f < flows; f++) left[f] = flow[f].bytes;
  for (;;) {
    const Flow *moving[MOST_FLOWS];
    int index[MOST_FLOWS], count = 0;
    double rate[MOST_FLOWS], step = INFINITY;
    for (int f = 0; f < flows; f++) {
      double wait = flow[f].start + flow[f].latency - now;
      if (left[f] <= 0) continue;
      if (wait > 1e-12) step = fmin(step, wait);
      else moving[count] = &flow[f], index[count++] = f;
    }
    slow_rates(moving, count, capacity, links, rate);
    for (int i = 0; i < count; i++) step = fmin(step, left[index[i]] / rate[i]);
    if (step == INFINITY) return;
    now += step;
    for (int i = 0; i < count; i++) {
      int f = index[i];
      left[f] -= step * rate[i];
      if (left[f] <= 1e-9 * flow[f].bytes) left[f] = 0, flow[f].end = now;
    }
  }
}

static void random_cases(void **state) {
  Random r = {philox_key(3, 0, 0)};
  for (int n = 0; n < 500; n++) {
    Flow f[MOST_FLOWS], g[MOST_FLOWS];
    int link[MOST_FLOWS][MOST_LINKS], flows = random_int(&r, 1, MOST_FLOWS), links = random_int(&r, 1, MOST_LINKS);
    double capacity[MOST_LINKS];
    for (int l = 0; l < links; l++) capacity[l] = random_between(&r, 1, 100);
    for (int i = 0; i < flows; i++) {
      int used = 0;
      for (int l = 0; l < links; l++)
        if (random_int(&r, 0, 2) == 0) link[i][used++] = l;
      if (!used) link[i][used++] = random_int(&r, 0, links - 1);
      f[i] = (Flow){.start = random_int(&r, 0, 1) * random_between(&r, 0.1, 10),
                    .latency = random_int(&r, 0, 1) * random_between(&r, 0.01, 1),
                    .bytes = random_between(&r, 1, 1000),
                    .link = link[i],
                    .links = used};
    }
    for (int i = 0; i < flows; i++) g[i] = f[i];
    flows_run(f, flows, capacity, links);
    slow_run(g, flows, capacity, links);
    for (int i = 0; i < flows; i++) assert_true(fabs(f[i].end - g[i].end) <= 1e-7 * g[i].end);
  }
}

// All capacities × k: bytes take 1/k of the time.
static void scales(void **state) {
  Flow f[] = {{.bytes = 100, .link = both, .links = 2}, {.bytes = 300, .link = first, .links = 1}};
  flows_run(f, 2, (double[]){10, 30}, 2);
  double end[] = {f[0].end, f[1].end};
  flows_run(f, 2, (double[]){70, 210}, 2);
  for (int i = 0; i < 2; i++) assert_true(fabs(f[i].end * 7 / end[i] - 1) < 1e-12);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(two_flows_halve), cmocka_unit_test(later_ones_join),
                                     cmocka_unit_test(the_rest_goes_to_others), cmocka_unit_test(random_cases),
                                     cmocka_unit_test(scales)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
