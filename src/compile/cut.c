// Cuts layers into stages by cost, so that the busiest pipeline rank has the least to do.
//
// Example: four layers of cost 1 and a head of cost 2, 6 in all. Two stages: layers 0-2 cost 3, layer 3 and the head
// cost 3, so that the cut is {0, 3, 4}; two layers each would cost 2 and 4, and every microbatch would wait for the
// second. Three stages: {0, 2, 4, 4}, of which the last has the head alone.
#include "compile/cut.h"
#include "base/error.h"
#include <math.h>
#include <stdlib.h>

typedef struct Layers {
  const double *sum;
  int count, stages;
  StageMap map;
} Layers;

static const double EQUAL = 1e-9; // costs that differ by less, relatively, are the same

// The cost of a stage that has layers [from, to).
static double stage_cost(const Layers *l, int stage, int from, int to) {
  return l->sum[stage == l->stages - 1 ? l->count + 1 : to] - (stage ? l->sum[from] : 0);
}

// ---- one stage a rank ----------------------------------------------------------------------------------------------

// best[s · (layers + 1) + l]: of all cuts that give layers below l to stages 0 … s, the smallest largest cost; or with
// a `limit` on that, the smallest sum of squares. at: where the last of these stages starts.
static void cut_by(const Layers *all, double limit, double *best, int *at) {
  int wide = all->count + 1;
  for (int s = 0; s < all->stages; s++)
    for (int l = 0; l < wide; l++) {
      best[s * wide + l] = INFINITY;
      int last = s == all->stages - 1;
      for (int from = s ? s : 0; from <= (s ? l - !last : 0); from++) {
        if (!s && l < 1) continue;
        double cost = stage_cost(all, s, from, l), before = s ? best[(s - 1) * wide + from] : 0;
        double now = limit > 0 ? (cost <= limit ? before + cost * cost : INFINITY) : fmax(before, cost);
        if (now < best[s * wide + l]) best[s * wide + l] = now, at[s * wide + l] = from;
      }
    }
}

// The busiest stage has the least, and among such cuts the most even one is taken; layers may cost what they like.
static void cut_for_stages(const Layers *l, int *cut) {
  int wide = l->count + 1, last = l->stages * wide - 1;
  double *best = xcalloc((size_t)(l->stages * wide), sizeof *best);
  int *at = xcalloc((size_t)(l->stages * wide), sizeof *at);
  cut_by(l, 0, best, at);
  if (best[last] > 0) cut_by(l, best[last] * (1 + EQUAL), best, at);
  for (int s = l->stages - 1; s > 0; s--) cut[s] = at[s * wide + cut[s + 1]];
  free(best);
  free(at);
}

// ---- several stages a rank -----------------------------------------------------------------------------------------

typedef struct Deal {
  int count[MAX_STAGES];                    // layers of a stage
  double stage[MAX_STAGES], rank[MAX_STAGES]; // costs
  double busiest_stage, busiest_rank;
} Deal;

static void give(const Layers *l, Deal *d, int stage, int layers, double cost) {
  double *rank = &d->rank[stage_coordinate(stage, l->map)];
  d->count[stage] += layers;
  d->stage[stage] += cost;
  *rank += cost;
  d->busiest_stage = fmax(d->busiest_stage, d->stage[stage]);
  d->busiest_rank = fmax(d->busiest_rank, *rank);
}

// Who gets the next layer: the rank that has the least, for the one of its stages that has the least; of equals the
// last, whose activations are kept for the shortest time. -1: no stage may have more.
static int next_stage(const Layers *l, const Deal *d, double each, double limit) {
  int next = -1;
  for (int s = 0; s < l->stages; s++) {
    if (d->stage[s] + each > limit) continue;
    double more = next < 0 ? 0
                           : d->rank[stage_coordinate(s, l->map)] - d->rank[stage_coordinate(next, l->map)],
           same = EQUAL * each;
    if (next < 0 || more < -same || (more <= same && d->stage[s] <= d->stage[next] + same)) next = s;
  }
  return next;
}

// Deals layer by layer, each for the mean cost: models' layers are alike, and then no cut has a busiest rank with
// less. No stage gets more than `limit`. Returns 0 where that cannot be.
static int deal(const Layers *l, double limit, Deal *d) {
  double each = (l->sum[l->count] - l->sum[0]) / l->count;
  int last = l->stages - 1;
  if (each <= 0) each = 1;
  *d = (Deal){.busiest_stage = 0};
  for (int s = 0; s < last; s++) give(l, d, s, 1, each);
  give(l, d, 0, 0, l->sum[0]);
  give(l, d, last, 0, l->sum[l->count + 1] - l->sum[l->count]);
  for (int k = last; k < l->count; k++) {
    int s = next_stage(l, d, each, limit);
    if (s < 0) return 0;
    give(l, d, s, 1, each);
  }
  return d->busiest_stage <= limit;
}

// The busiest rank has the least, among such cuts the busiest stage.
static void cut_for_ranks(const Layers *l, int *cut) {
  Deal *best = xcalloc(2, sizeof *best), *other = best + 1;
  deal(l, INFINITY, best);
  while (deal(l, best->busiest_stage * (1 - EQUAL), other) && other->busiest_rank <= best->busiest_rank * (1 + EQUAL))
    *best = *other;
  for (int s = 0; s < l->stages; s++) cut[s + 1] = cut[s] + best->count[s];
  free(best);
}

void cut_layers(const double *sum, int layers, int stages, StageMap map, int *cut) {
  Layers l = {sum, layers, stages, map};
  cut[0] = 0;
  cut[stages] = layers;
  if (stages > map.coordinates) cut_for_ranks(&l, cut);
  else cut_for_stages(&l, cut);
}
