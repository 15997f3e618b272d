// tier 1; rooms comm
// What a probe makes of messages between pairs of ranks: levels by where the two are, and outliers by name.
#include "foresight/probe_pairs.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
// cmocka wants the four above first
#include <cmocka.h>

static const double LARGE = 1 << 23;

// Ranks on a number of machines, cyclically: 10 GB/s and 2 µs in one, 1 GB/s and 20 µs between two.
static LinkPairs measured(int ranks, int machines) {
  LinkPairs p = link_pairs_choose(ranks);
  for (int r = 0; r < ranks; r++) snprintf(p.host[r], LINK_HOST, "node-%d", r % machines);
  for (int i = 0; i < p.pair.count; i++) {
    LinkPair *pair = &p.pair.data[i];
    bool crosses = link_pair_crosses(&p, pair);
    pair->small = crosses ? 20e-6 : 2e-6;
    pair->large = pair->small + LARGE / (crosses ? 1e9 : 10e9);
  }
  return p;
}

static LinkPair *pair_of(LinkPairs *p, int a, int b) {
  for (int i = 0; i < p->pair.count; i++)
    if (p->pair.data[i].a == a && p->pair.data[i].b == b) return &p->pair.data[i];
  fail_msg("%d and %d are not a pair", a, b);
  return NULL;
}

// The lines that name outliers.
static int outliers(const LinkPairs *p, char *text, size_t size) {
  FILE *out = fmemopen(text, size, "w");
  int lines = link_pairs_outliers(p, out);
  fclose(out);
  return lines;
}

static void all_pairs_are_measured(void **state) {
  LinkPairs p = link_pairs_choose(6);
  assert_int_equal(p.pair.count, 15);
  for (int a = 0; a < 6; a++)
    for (int b = a + 1; b < 6; b++) pair_of(&p, a, b);
  link_pairs_free(&p);
  p = link_pairs_choose(64); // of many ranks some, and every rank's
  assert_false(p.all);
  assert_true(p.pair.count <= 64 * 6);
  for (int r = 0; r < 64; r++) pair_of(&p, r, (r + 1) % 64);
  link_pairs_free(&p);
}

static void a_machine_is_not_the_network(void **state) {
  Cluster c = {.levels = 0};
  LinkPairs p = measured(6, 2);
  pair_of(&p, 0, 2)->large *= 10; // one bad link is not all of them
  link_pairs_facts(&p, LARGE, &c);
  assert_true(fabs(c.level[0].bandwidth / 10e9 - 1) < 1e-9 && fabs(c.level[0].latency / 2e-6 - 1) < 1e-9);
  assert_true(fabs(c.level[1].bandwidth / 1e9 - 1) < 1e-9 && fabs(c.level[1].latency / 20e-6 - 1) < 1e-9);
  assert_int_equal(link_hosts(&p, 1), 1);
  assert_int_equal(link_hosts(&p, 6), 2);
  link_pairs_free(&p);
  p = measured(3, 3); // a rank a machine: nothing is known of what is in it
  c = (Cluster){.levels = 0};
  link_pairs_facts(&p, LARGE, &c);
  assert_true(c.level[0].bandwidth == 0 && fabs(c.level[1].bandwidth / 1e9 - 1) < 1e-9);
  link_pairs_free(&p);
}

static void outliers_have_names(void **state) {
  char text[4096];
  LinkPairs p = measured(6, 2);
  assert_int_equal(outliers(&p, text, sizeof text), 0); // the network is slower, and no outlier
  pair_of(&p, 1, 3)->large *= 3;
  pair_of(&p, 2, 5)->large *= 2;
  assert_int_equal(outliers(&p, text, sizeof text), 2);
  const char *first =
                 strstr(text, "messages between rank 1 (node-1) and rank 3 (node-1) take 3.0 times as long as those "
                              "of other ranks on one machine"),
             *second = strstr(text, "messages between rank 2 (node-0) and rank 5 (node-1) take 2.0 times as long as "
                                    "those of other ranks on two machines");
  assert_non_null(first);
  assert_non_null(second);
  assert_true(first < second); // the slowest first
  link_pairs_free(&p);
  p = measured(6, 1);
  for (int r = 0; r < 6; r++)
    if (r != 4) pair_of(&p, r < 4 ? r : 4, r < 4 ? 4 : r)->large *= 2;
  assert_int_equal(outliers(&p, text, sizeof text), 1); // not its five pairs
  assert_non_null(strstr(text, "all messages of rank 4 (node-0) take 2.0 to 2.0 times as long as others"));
  link_pairs_free(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_pairs_are_measured),
                                     cmocka_unit_test(a_machine_is_not_the_network),
                                     cmocka_unit_test(outliers_have_names)};
  if (getenv("TEST_ONLY")) cmocka_set_test_filter(getenv("TEST_ONLY")); // scripts/mutants chooses
  return cmocka_run_group_tests(tests, NULL, NULL);
}
