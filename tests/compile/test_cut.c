// The cut of layers into stages, against all cuts that there are.
#include "compile/cut.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_LAYERS = 96 };

typedef struct Costs { double rank, stage; } Costs; // of the busiest

static Costs busiest(const double *sum, int layers, int stages, StageMap map, const int *cut) {
  double rank[MAX_STAGES] = {0};
  Costs most = {0};
  for (int s = 0; s < stages; s++) {
    double cost = sum[s == stages - 1 ? layers + 1 : cut[s + 1]] - (s ? sum[cut[s]] : 0);
    double *of_rank = &rank[stage_coordinate(s, map)];
    *of_rank += cost;
    most.stage = fmax(most.stage, cost);
    most.rank = fmax(most.rank, *of_rank);
  }
  return most;
}

static int is_better(Costs a, Costs b) {
  return a.rank < b.rank * (1 - 1e-9) || (a.rank <= b.rank * (1 + 1e-9) && a.stage < b.stage * (1 - 1e-9));
}

static void try_all(const double *sum, int layers, int stages, StageMap map, int *cut, int from, Costs *best) {
  if (from == stages) {
    Costs is = busiest(sum, layers, stages, map, cut);
    if (is_better(is, *best)) *best = is;
    return;
  }
  for (cut[from] = cut[from - 1] + 1; cut[from] <= layers; cut[from]++)
    try_all(sum, layers, stages, map, cut, from + 1, best);
}

static void check_cut(int layers, int stages, const int *cut) {
  assert_int_equal(cut[0], 0);
  assert_int_equal(cut[stages], layers);
  for (int s = 0; s < stages; s++) assert_true(cut[s + 1] >= cut[s] + (s < stages - 1));
}

// sum of layers of cost 1 between an embedding and a head.
static void alike(double *sum, int layers, double embedding, double head) {
  for (int l = 0; l <= layers; l++) sum[l] = embedding + l;
  sum[layers + 1] = sum[layers] + head;
}

static void no_cut_is_better(void **state) {
  static const double embeddings[] = {0, 0.3}, heads[] = {0, 0.4, 1, 1.7, 4.2};
  double sum[MOST_LAYERS + 2];
  int cut[MAX_STAGES + 1], tried[MAX_STAGES + 1] = {0};
  for (int i = 0; i < 10; i++)
    for (int layers = 2; layers <= 9; layers++)
      for (int p = 1; p <= 4; p++)
        for (int stages = p; stages <= 3 * p && stages <= layers; stages += p)
          for (int folded = 0; folded < 2; folded++) {
            StageMap map = {p, folded};
            Costs best = {INFINITY, INFINITY};
            alike(sum, layers, embeddings[i % 2], heads[i / 2]);
            cut_layers(sum, layers, stages, map, cut);
            check_cut(layers, stages, cut);
            tried[stages] = layers;
            try_all(sum, layers, stages, map, tried, 1, &best);
            Costs is = busiest(sum, layers, stages, map, cut);
            if (is_better(best, is))
              fail_msg("%d layers, embedding %g, head %g, %d stages on %d ranks%s: busiest rank %g and stage %g; "
                       "possible: %g and %g",
                       layers, embeddings[i % 2], heads[i / 2], stages, p, folded ? ", there and back" : "", is.rank,
                       is.stage, best.rank, best.stage);
          }
}

// Layers per stage, as plait plan prints them.
static void is_cut(int layers, double head, int stages, StageMap map, const char *expected) {
  double sum[MOST_LAYERS + 2];
  char text[512] = "";
  int cut[MAX_STAGES + 1];
  alike(sum, layers, 0, head);
  cut_layers(sum, layers, stages, map, cut);
  for (int s = 0; s < stages; s++)
    snprintf(text + strlen(text), sizeof text - strlen(text), " %d", cut[s + 1] - cut[s]);
  assert_string_equal(text, expected);
}

static void the_busiest_rank_counts(void **state) {
  is_cut(6, 0, 4, (StageMap){2, 1}, " 1 1 2 2");
  is_cut(6, 0.5, 4, (StageMap){2, 0}, " 1 2 2 1");
  is_cut(6, 0.5, 4, (StageMap){2, 1}, " 2 1 2 1");
  is_cut(8, 0.5, 4, (StageMap){2, 1}, " 2 2 2 2");
  is_cut(4, 2, 2, (StageMap){2, 0}, " 3 1"); // one stage a rank
  is_cut(4, 2, 3, (StageMap){3, 0}, " 2 2 0");
}

// 96 layers in 64 stages of 32 ranks: three layers each.
static void many_stages(void **state) {
  double sum[MOST_LAYERS + 2];
  int cut[MAX_STAGES + 1];
  alike(sum, MOST_LAYERS, 0, 0.01);
  for (int folded = 0; folded < 2; folded++) {
    cut_layers(sum, MOST_LAYERS, 64, (StageMap){32, folded}, cut);
    check_cut(MOST_LAYERS, 64, cut);
    Costs is = busiest(sum, MOST_LAYERS, 64, (StageMap){32, folded}, cut);
    assert_true(fabs(is.rank - 3.01) < 1e-9 && is.stage < 2.02);
  }
}

// Layers of any cost: what is cut for stages stays exact, what is cut for ranks is valid.
static void layers_that_differ(void **state) {
  static const double cost[] = {3, 1, 4, 1, 5, 9, 2, 6};
  double sum[MOST_LAYERS + 2] = {0};
  int cut[MAX_STAGES + 1], tried[MAX_STAGES + 1] = {0};
  for (int l = 0; l < 8; l++) sum[l + 1] = sum[l] + cost[l];
  sum[9] = sum[8] + 5;
  for (int stages = 2; stages <= 8; stages++) {
    Costs best = {INFINITY, INFINITY};
    cut_layers(sum, 8, stages, (StageMap){stages, 0}, cut);
    tried[stages] = 8;
    try_all(sum, 8, stages, (StageMap){stages, 0}, tried, 1, &best);
    assert_false(is_better(best, busiest(sum, 8, stages, (StageMap){stages, 0}, cut)));
    if (stages % 2) continue;
    cut_layers(sum, 8, stages, (StageMap){stages / 2, 1}, cut);
    check_cut(8, stages, cut);
  }
  memset(sum, 0, sizeof sum); // no FLOPs are known: evenly
  cut_layers(sum, 8, 4, (StageMap){2, 1}, cut);
  assert_int_equal(cut[1], 2);
  assert_int_equal(cut[3], 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_cut_is_better),
      cmocka_unit_test(the_busiest_rank_counts),
      cmocka_unit_test(many_stages),
      cmocka_unit_test(layers_that_differ),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
